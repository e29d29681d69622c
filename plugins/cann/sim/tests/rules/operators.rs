//! Rules 18 and 21 to 23: chips, arithmetic, odd rules, packed and blocked layouts.

use super::machine::Machine;
use cann_simulator::sys::*;
use std::ptr::{null, null_mut};

fn halves(m: &Machine, values: &[f32]) -> *mut std::ffi::c_void {
    let bits: Vec<u16> = values.iter().map(|v| half(*v)).collect();
    let ptr = m.alloc(bits.len() * 2);
    assert_eq!(m.write(ptr, &bits), 0);
    ptr
}

fn half(v: f32) -> u16 {
    half::f16::from_f32(v).to_bits()
}

#[test]
fn chips_lack_dtypes_and_operators() {
    for (soc, dtype, answer) in [
        ("Ascend910B3", ACL_BF16, 0),
        ("Ascend310P3", ACL_BF16, ACLNN_ERR_PARAM_INVALID),
        ("Ascend910B", ACL_BF16, ACLNN_ERR_PARAM_INVALID),
        ("Ascend310P3", ACL_FLOAT16, 0),
    ] {
        let m = Machine::new(&format!("soc={soc}"));
        let t = m.tensor(dtype, &[8], m.alloc(16));
        assert_eq!(plan!(m, nn.aclnnSilu(t, t)).0, answer, "{soc} {dtype}");
    }
    // In practice the 310P adds; the vendor's table does not list it.
    for (config, answer) in
        [("soc=Ascend310P3", 0), ("soc=Ascend310P3,documented=1", ACLNN_ERR_RUNTIME_ERROR)]
    {
        let m = Machine::new(config);
        let t = m.tensor(ACL_FLOAT, &[8], m.alloc(32));
        assert_eq!(plan!(m, math.aclnnAdd(t, t, m.scalar(1.0), t)).0, answer, "{config}");
    }
}

#[test]
fn products_round_their_f32_by_the_mode_and_the_310p_keeps_none() {
    // 1 + 2^-12 is kept by F32, and lost with 10 bits of fraction; 70000 is too large for F16.
    let product_by = |config: &str, x: f32, by: f32, mode: i8| {
        let m = Machine::new(config);
        let (stream, y) = (m.stream(), m.alloc(4));
        let [a, b, c] = [m.floats(&[x]), m.floats(&[by]), y].map(|ptr| m.tensor(ACL_FLOAT, &[1, 1], ptr));
        match run!(m, nn.aclnnMm(a, b, c, mode), stream) {
            0 => {
                assert_eq!(m.sync(stream), 0);
                Ok(m.read::<f32>(y, 1)[0])
            }
            status => Err(status),
        }
    };
    let product = |config: &str, x: f32, mode: i8| product_by(config, x, 1.0, mode);
    let fine = 1.0 + 1.0 / 4096.0;
    assert_eq!(product("", fine, 0), Ok(fine));
    assert_eq!(product("", fine, 1), Ok(1.0));
    assert_eq!(product("", 70_000.0, 1), Ok(70_016.0));
    assert_eq!(product("", 70_000.0, 2), Ok(f32::INFINITY));
    assert_eq!(product("soc=Ascend310P3", 70_000.0, 1), Ok(f32::INFINITY));
    assert_eq!(product("soc=Ascend310P3", 1.0, 0), Err(ACLNN_ERR_PARAM_INVALID));
    // Mode 2 makes the result F16 on a 910B; a 310P rounds what goes in only.
    assert_eq!(product_by("", 300.0, 300.0, 2), Ok(f32::INFINITY));
    assert_eq!(product_by("soc=Ascend310P3", 300.0, 300.0, 2), Ok(90_000.0));
}

#[test]
fn an_arange_counts_in_double_precision() {
    let m = Machine::new("");
    let [start, end, step] = [0.0, 0.1f32 * 3.0, 0.1].map(|v| m.scalar(v));
    // In F32 the quotient is 3; in double it is a little more, and rounded up to 4.
    let [three, four] = [3, 4].map(|n| m.tensor(ACL_FLOAT, &[n], m.alloc(16)));
    assert_eq!(plan!(m, math.aclnnArange(start, end, step, three)).0, ACLNN_ERR_INNER_FIND_KERNEL_ERROR);
    assert_eq!(plan!(m, math.aclnnArange(start, end, step, four)).0, 0);
}

#[test]
fn pads_begin_with_the_last_dim() {
    let m = Machine::new("");
    let (stream, y) = (m.stream(), m.alloc(4 * 8));
    let [x, out] =
        [m.tensor(ACL_FLOAT, &[2, 2], m.floats(&[1.0, 2.0, 3.0, 4.0])), m.tensor(ACL_FLOAT, &[2, 4], y)];
    assert_eq!(run!(m, math.aclnnConstantPadNd(x, m.ints(&[1, 1]), m.scalar(0.0), out), stream), 0);
    assert_eq!(m.sync(stream), 0);
    assert_eq!(m.read::<f32>(y, 8), [0.0, 1.0, 2.0, 0.0, 0.0, 3.0, 4.0, 0.0]);
}

#[test]
fn order_is_int64_and_equal_values_come_as_they_like() {
    let order = |seed| {
        let m = Machine::new(&format!("seed={seed}"));
        let (stream, y) = (m.stream(), m.alloc(64));
        let x = m.tensor(ACL_FLOAT, &[8], m.floats(&[1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0]));
        assert_eq!(
            plan!(m, math.aclnnArgsort(x, 0, true, m.tensor(ACL_INT32, &[8], y))).0,
            ACLNN_ERR_PARAM_INVALID
        );
        assert_eq!(run!(m, math.aclnnArgsort(x, 0, true, m.tensor(ACL_INT64, &[8], y)), stream), 0);
        assert_eq!(m.sync(stream), 0);
        m.read::<i64>(y, 8)
    };
    let (a, b) = (order(1), order(2));
    assert_eq!((a[0], b[0]), (7, 7));
    assert_ne!(a, b);
}

#[test]
fn swiglu_takes_no_gaps() {
    let m = Machine::new("");
    let x = m.view(ACL_FLOAT, &[2, 4], &[8, 1], 0, m.alloc(64));
    let y = m.tensor(ACL_FLOAT, &[2, 2], m.alloc(16));
    assert_eq!(plan!(m, nn.aclnnSwiGlu(x, -1, y)).0, ACLNN_ERR_PARAM_INVALID);
}

#[test]
fn a_row_out_of_range_is_a_fault_of_the_kernel() {
    let m = Machine::new("");
    let (stream, ids) = (m.stream(), m.alloc(4));
    assert_eq!(m.write(ids, &[5i32]), 0);
    let [x, y] = [m.tensor(ACL_FLOAT, &[4, 2], m.alloc(32)), m.tensor(ACL_FLOAT, &[1, 2], m.alloc(8))];
    assert_eq!(run!(m, nn.aclnnGatherV2(x, 0, m.tensor(ACL_INT32, &[1], ids), y), stream), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    assert!(m.message().contains("row 5 of 4"));
}

/// x · w for one row of ones, with w of int4, all scales 1, in groups of 32.
fn int4_product(m: &Machine, k: i64, weight: &[u8], group: i32) -> (i32, Vec<u16>) {
    let (stream, y, packed) = (m.stream(), m.alloc(2), m.alloc(weight.len()));
    assert_eq!(m.write(packed, weight), 0);
    let groups = if group > 0 { k / 32 } else { 1 };
    let x = m.tensor(ACL_FLOAT16, &[1, k], halves(m, &vec![1.0; k as usize]));
    let w = m.view(ACL_INT4, &[k, 1], &[1, k], 0, packed);
    let dims = [groups, 1];
    let scale = m.tensor(
        ACL_FLOAT16,
        if group > 0 { &dims } else { &dims[..1] },
        halves(m, &vec![1.0; groups as usize]),
    );
    let out = m.tensor(ACL_FLOAT16, &[1, 1], y);
    let n = null();
    let status = run!(m, nn.aclnnWeightQuantBatchMatmulV2(x, w, scale, n, n, n, n, group, out), stream);
    if status == 0 {
        assert_eq!(m.sync(stream), 0, "{}", m.message());
    }
    (status, m.read::<u16>(y, 1))
}

#[test]
fn int4_has_its_even_element_in_the_low_nibble_and_a_sign() {
    let m = Machine::new("");
    let mut weight = [0u8; 32];
    weight[0] = 0x1f; // element 0 is -1, element 1 is 1
    weight[1] = 0x08; // element 2 is -8
    assert_eq!(int4_product(&m, 64, &weight, 32), (0, vec![half(-8.0)]));
    let odd = m.tensor_of(ACL_INT4, &[3], &[1], 0, ACL_FORMAT_ND, &[3], null_mut());
    assert!(odd.is_null(), "an odd inner dim");
}

#[test]
fn groups_are_multiples_of_32_and_smaller_than_k() {
    let m = Machine::new("");
    let status = |k, group| int4_product(&m, k, &vec![0; k as usize / 2], group).0;
    assert_eq!(status(64, 32), 0);
    assert_eq!(status(32, 32), ACLNN_ERR_INNER_TILING_ERROR);
    assert_eq!(status(32, 0), 0);
    assert_eq!(status(64, 16), ACLNN_ERR_INNER_TILING_ERROR);
}

#[test]
fn blocks_read_as_a_plain_tensor_are_permuted() {
    let m = Machine::new("");
    let (stream, ptr) = (m.stream(), m.alloc(16 * 32 * 2));
    let values: Vec<u16> = (0..16 * 32).map(|i| half(i as f32)).collect();
    assert_eq!(m.write(ptr, &values), 0);
    let plain = m.tensor(ACL_FLOAT16, &[16, 32], ptr);
    assert_eq!(run!(m, nn.aclnnTransMatmulWeight(plain), stream), 0);
    assert_eq!(m.sync(stream), 0);
    let stored = m.read::<u16>(ptr, 16 * 32);
    // Row 1 of the first 16 columns follows row 0 of them.
    assert_eq!((stored[16], stored[256]), (half(32.0), half(16.0)));
    let y = m.alloc(16 * 32 * 2);
    let eye: Vec<f32> = (0..256).map(|i| if i % 17 == 0 { 1.0 } else { 0.0 }).collect();
    let x = m.tensor(ACL_FLOAT16, &[16, 16], halves(&m, &eye));
    let blocks =
        m.tensor_of(ACL_FLOAT16, &[16, 32], &[32, 1], 0, ACL_FORMAT_FRACTAL_NZ, &[2, 1, 16, 16], ptr);
    assert_eq!(run!(m, nn.aclnnMm(x, blocks, m.tensor(ACL_FLOAT16, &[16, 32], y), 0), stream), 0);
    assert_eq!(m.sync(stream), 0);
    assert_eq!(m.read::<u16>(y, 16 * 32), values);
    let mut n = 0;
    let size = m.t.nn.aclnnCalculateMatmulWeightSizeV2.unwrap();
    // SAFETY: a live array.
    assert_eq!(unsafe { size(m.ints(&[17, 5]), ACL_FLOAT16, &mut n) }, 0);
    assert_eq!(n, 32 * 16, "elements, and not bytes");
}

/// The sum of 16 products of 75 and 75, with a weight in blocks, into F32.
fn beyond_f16(m: &Machine) -> f32 {
    let (stream, many) = (m.stream(), [75.0; 256]);
    let x = m.tensor(ACL_FLOAT16, &[16, 16], halves(m, &many));
    let blocks = [1, 1, 16, 16];
    let w =
        m.tensor_of(ACL_FLOAT16, &[16, 16], &[1, 16], 0, ACL_FORMAT_FRACTAL_NZ, &blocks, halves(m, &many));
    let y = m.alloc(256 * 4 + 64);
    assert_eq!(run!(m, nn.aclnnMm(x, w, m.tensor(ACL_FLOAT, &[16, 16], y), 0), stream), 0);
    assert_eq!(m.sync(stream), 0);
    m.read::<f32>(y, 1)[0]
}

#[test]
fn several_matrices_give_the_result_their_type_before_9_1() {
    // The sum of 16 products of 75 and 75 in each of two; 75 in F16, and in BF16.
    let types = [(ACL_FLOAT16, half(75.0)), (ACL_BF16, (75f32.to_bits() >> 16) as u16)];
    for (config, expected) in [
        ("", [90_000.0, 90_000.0]),
        ("release=9.0", [f32::INFINITY, 90_112.0]),
        ("release=8.5,soc=Ascend910_9391", [f32::INFINITY, 90_112.0]),
        ("broken=batch-out", [f32::INFINITY, 90_112.0]),
        ("release=9.0,broken=batch-out", [90_000.0, 90_000.0]),
    ] {
        let m = Machine::new(config);
        let stream = m.stream();
        let found = types.map(|(dtype, number)| {
            let [x, w] = [(); 2].map(|()| {
                let ptr = m.alloc(2 * 16 * 16 * 2 + 64);
                assert_eq!(m.write(ptr, &[number; 2 * 16 * 16]), 0);
                m.tensor(dtype, &[2, 16, 16], ptr)
            });
            let y = m.alloc(2 * 16 * 16 * 4 + 64);
            assert_eq!(run!(m, nn.aclnnMatmul(x, w, m.tensor(ACL_FLOAT, &[2, 16, 16], y), 0), stream), 0);
            assert_eq!(m.sync(stream), 0);
            m.read::<f32>(y, 1)[0]
        });
        assert_eq!(found, expected, "{config}");
    }
}

#[test]
fn a_weight_in_blocks_gives_the_result_its_type_before_9_1() {
    for (config, expected) in [
        ("", 90_000.0),
        ("release=9.0", f32::INFINITY),
        ("release=8.5", f32::INFINITY),
        ("soc=Ascend310P3", f32::INFINITY),
        ("broken=nz-out", f32::INFINITY),
        ("release=9.0,broken=nz-out", 90_000.0),
    ] {
        assert_eq!(beyond_f16(&Machine::new(config)), expected, "{config}");
    }
}

#[test]
fn a_weight_in_blocks_has_the_dims_of_its_blocks() {
    let m = Machine::new("");
    let (x, y) =
        (m.tensor(ACL_FLOAT16, &[16, 32], m.alloc(2048)), m.tensor(ACL_FLOAT, &[16, 64], m.alloc(8192)));
    let status = |strides: [i64; 2], storage: &[i64]| {
        let w =
            m.tensor_of(ACL_FLOAT16, &[32, 64], &strides, 0, ACL_FORMAT_FRACTAL_NZ, storage, m.alloc(8192));
        plan!(m, nn.aclnnMm(x, w, y, 0)).0
    };
    assert_eq!(status([64, 1], &[4, 2, 16, 16]), 0);
    assert_eq!(status([1, 32], &[2, 4, 16, 16]), 0, "turned around");
    assert_eq!(status([64, 1], &[2, 4, 16, 16]), ACLNN_ERR_PARAM_INVALID);
    assert_eq!(status([1, 32], &[2048]), ACLNN_ERR_PARAM_INVALID);
}

#[test]
fn int4_and_scales_follow_the_order_of_the_weight() {
    let m = Machine::new("");
    let status = |n: i64, weight: [i64; 2], scales: [i64; 2]| {
        let halves = |dims: &[i64]| m.tensor(ACL_FLOAT16, dims, m.alloc(65_536));
        let w = m.view(ACL_INT4, &[64, n], &weight, 0, m.alloc(65_536));
        let scale = m.view(ACL_FLOAT16, &[2, n], &scales, 0, m.alloc(65_536));
        let none = null();
        let (x, y) = (halves(&[1, 64]), halves(&[1, n]));
        plan!(m, nn.aclnnWeightQuantBatchMatmulV2(x, w, scale, none, none, none, none, 32, y)).0
    };
    assert_eq!(status(6, [1, 64], [1, 2]), 0, "both turned around");
    assert_eq!(status(6, [6, 1], [6, 1]), 0, "neither");
    assert_eq!(status(6, [6, 1], [1, 2]), ACLNN_ERR_PARAM_INVALID, "scales alone");
    assert_eq!(status(5, [1, 64], [5, 1]), 0);
    assert_eq!(status(5, [5, 1], [5, 1]), ACLNN_ERR_PARAM_INVALID, "half a byte is left");
}
