//! Operators on a few numbers worked out by hand.

use super::machine::Machine;
use cann_simulator::number::{decode, encode};
use cann_simulator::sys::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

const F16: i32 = ACL_FLOAT16;
const F32: i32 = ACL_FLOAT;

/// One machine, one stream, and results of known dims.
struct Bench {
    m: Machine,
    stream: aclrtStream,
}

impl Bench {
    fn new() -> Bench {
        let m = Machine::new("");
        let stream = m.stream();
        Bench { m, stream }
    }

    /// A tensor with numbers of a type.
    fn of(&self, dtype: i32, dims: &[i64], values: &[f64]) -> *mut aclTensor {
        self.m.tensor(dtype, dims, self.memory(dtype, values))
    }

    fn memory(&self, dtype: i32, values: &[f64]) -> *mut c_void {
        let size = bytes(dtype);
        let all: Vec<u8> = values.iter().flat_map(|v| encode(dtype, *v)[..size].to_vec()).collect();
        let ptr = self.m.alloc(all.len());
        assert_eq!(self.m.write(ptr, &all), 0);
        ptr
    }

    fn f32(&self, dims: &[i64], values: &[f64]) -> *mut aclTensor {
        self.of(F32, dims, values)
    }

    /// Runs what writes to a tensor of these dims, and compares.
    fn check(
        &self,
        dtype: i32,
        dims: &[i64],
        expected: &[f64],
        run: impl FnOnce(&Machine, *mut aclTensor) -> i32,
    ) {
        let n = expected.len();
        let ptr = self.m.alloc(n * bytes(dtype));
        let status = run(&self.m, self.m.tensor(dtype, dims, ptr));
        assert_eq!(status, 0, "{}", self.m.message());
        assert_eq!(self.m.sync(self.stream), 0, "{}", self.m.message());
        let found: Vec<u8> = self.m.read(ptr, n * bytes(dtype));
        let found: Vec<f64> = found.chunks_exact(bytes(dtype)).map(|b| decode(dtype, b)).collect();
        let near =
            found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs().max(1e-3) || a == b);
        assert!(near, "found {found:?}\nexpected {expected:?}");
    }
}

fn bytes(dtype: i32) -> usize {
    match dtype {
        F16 => 2,
        ACL_INT64 => 8,
        ACL_BOOL | ACL_INT8 => 1,
        _ => 4,
    }
}

#[test]
fn elements_are_added_scaled_and_compared() {
    let b = Bench::new();
    let (s, row) = (b.stream, b.f32(&[3], &[1.0, 2.0, 3.0]));
    let x = b.f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    b.check(F32, &[2, 3], &[3.0, 6.0, 9.0, 6.0, 9.0, 12.0], |m, y| {
        run!(m, math.aclnnAdd(x, row, m.scalar(2.0), y), s)
    });
    b.check(F32, &[2, 3], &[1.0, 1.0, 1.0, 4.0, 2.5, 2.0], |m, y| run!(m, math.aclnnDiv(x, row, y), s));
    b.check(ACL_BOOL, &[3], &[0.0, 1.0, 1.0], |m, y| run!(m, math.aclnnGtScalar(row, m.scalar(1.5), y), s));
    let chosen = b.of(ACL_BOOL, &[3], &[1.0, 0.0, 1.0]);
    b.check(F32, &[3], &[1.0, 9.0, 3.0], |m, y| {
        run!(m, math.aclnnSWhere(chosen, row, b.f32(&[1], &[9.0]), y), s)
    });
    b.check(F32, &[4], &[1.0, 1.5, 2.0, 2.5], |m, y| {
        run!(m, math.aclnnArange(m.scalar(1.0), m.scalar(3.0), m.scalar(0.5), y), s)
    });
    b.check(F32, &[2], &[1.0, 1.0], |m, y| run!(m, math.aclnnInplaceOne(y), s));
}

#[test]
fn activations_have_their_values_at_one() {
    let b = Bench::new();
    let (s, x) = (b.stream, b.f32(&[2], &[1.0, -1.0]));
    b.check(F32, &[2], &[0.731_059, -0.268_941], |m, y| run!(m, nn.aclnnSilu(x, y), s));
    b.check(F32, &[2], &[0.841_345, -0.158_655], |m, y| run!(m, nn.aclnnGeluV2(x, 0, y), s));
    b.check(F32, &[2], &[0.841_192, -0.158_808], |m, y| run!(m, nn.aclnnGeluV2(x, 1, y), s));
    b.check(F32, &[2], &[0.845_795, -0.154_205], |m, y| run!(m, nn.aclnnFastGelu(x, y), s));
    b.check(F32, &[2], &[1.313_262, 0.313_262], |m, y| {
        run!(m, nn.aclnnSoftplus(x, m.scalar(1.0), m.scalar(20.0), y), s)
    });
    // silu(1) · 3, silu(2) · 4
    let pair = b.f32(&[1, 4], &[1.0, 2.0, 3.0, 4.0]);
    b.check(F32, &[1, 2], &[2.193_176, 7.046_377], |m, y| run!(m, nn.aclnnSwiGlu(pair, -1, y), s));
}

#[test]
fn elements_are_moved() {
    let b = Bench::new();
    let (s, x) = (b.stream, b.f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    b.check(F32, &[3, 2], &[1.0, 4.0, 2.0, 5.0, 3.0, 6.0], |m, y| {
        run!(m, math.aclnnPermute(x, m.ints(&[1, 0]), y), s)
    });
    b.check(F16, &[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], |m, y| run!(m, math.aclnnCast(x, F16, y), s));
    b.check(F16, &[2, 3], &[7.0, 7.0, 7.0, 8.0, 8.0, 8.0], |m, y| {
        run!(m, math.aclnnInplaceCopy(y, b.f32(&[2, 1], &[7.0, 8.0])), s)
    });
    b.check(F32, &[2, 4], &[1.0, 2.0, 3.0, 7.0, 4.0, 5.0, 6.0, 8.0], |m, y| {
        let pieces = [x, b.f32(&[2, 1], &[7.0, 8.0])];
        // SAFETY: two live tensors.
        let list = unsafe { m.t.object.aclCreateTensorList.unwrap()(pieces.as_ptr().cast(), 2) };
        run!(m, math.aclnnCat(list, 1, y), s)
    });
    b.check(F32, &[2, 4], &[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0], |m, y| {
        run!(m, math.aclnnRepeat(b.f32(&[2], &[1.0, 2.0]), m.ints(&[2, 2]), y), s)
    });
    b.check(F32, &[2, 3], &[3.0, 1.0, 2.0, 6.0, 4.0, 5.0], |m, y| {
        run!(m, math.aclnnRoll(x, m.ints(&[1]), m.ints(&[1]), y), s)
    });
    b.check(F32, &[2, 3], &[1.0, 0.0, 0.0, 4.0, 5.0, 0.0], |m, y| run!(m, math.aclnnTril(x, 0, y), s));
    b.check(F32, &[1, 5], &[2.0, 1.0, 2.0, 3.0, 2.0], |m, y| {
        run!(m, math.aclnnReflectionPad1d(b.f32(&[1, 3], &[1.0, 2.0, 3.0]), m.ints(&[1, 1]), y), s)
    });
}

#[test]
fn rows_are_picked_and_written_by_number() {
    let b = Bench::new();
    let (s, x) = (b.stream, b.f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let ids = b.of(ACL_INT32, &[2], &[2.0, 0.0]);
    b.check(F32, &[2, 2], &[5.0, 6.0, 1.0, 2.0], |m, y| run!(m, nn.aclnnGatherV2(x, 0, ids, y), s));
    b.check(F32, &[3, 2], &[1.0, 2.0, 8.0, 8.0, 9.0, 9.0], |m, y| {
        assert_eq!(run!(m, math.aclnnInplaceCopy(y, x), s), 0);
        let rows = b.f32(&[2, 2], &[9.0, 9.0, 8.0, 8.0]);
        run!(m, nn.aclnnInplaceIndexCopy(y, 0, b.of(ACL_INT64, &[2], &[2.0, 1.0]), rows), s)
    });
    b.check(F32, &[4], &[1.0, 1.0, 2.0, 2.0], |m, y| {
        run!(m, nn.aclnnRepeatInterleaveIntWithDim(b.f32(&[2], &[1.0, 2.0]), 2, 0, 4, y), s)
    });
    b.check(ACL_INT64, &[1, 2], &[1.0, 2.0], |m, y| {
        let values = b.f32(&[1, 2], &[0.0, 0.0]);
        run!(m, math.aclnnTopk(b.f32(&[1, 3], &[1.0, 9.0, 5.0]), 2, -1, true, true, values, y), s)
    });
}

#[test]
fn rows_are_reduced_and_normalised() {
    let b = Bench::new();
    let (s, x) = (b.stream, b.f32(&[2, 2], &[3.0, 4.0, 0.0, 2.0]));
    b.check(F32, &[2, 1], &[7.0, 2.0], |m, y| run!(m, math.aclnnReduceSum(x, m.ints(&[1]), true, F32, y), s));
    b.check(F32, &[2], &[5.0, 2.0], |m, y| {
        run!(m, math.aclnnNorm(x, m.scalar(2.0), m.ints(&[-1]), false, y), s)
    });
    b.check(F32, &[2, 2], &[3.0, 7.0, 0.0, 2.0], |m, y| run!(m, math.aclnnCumsum(x, 1, F32, y), s));
    b.check(ACL_INT32, &[2], &[1.0, 1.0], |m, y| run!(m, math.aclnnArgMax(x, 1, false, y), s));
    b.check(F32, &[2, 2], &[0.268_941, 0.731_059, 0.119_203, 0.880_797], |m, y| {
        run!(m, nn.aclnnSoftmax(x, -1, y), s)
    });
    let (gamma, stats) = (b.f32(&[2], &[1.0, 10.0]), b.f32(&[2, 1], &[0.0, 0.0]));
    b.check(F32, &[2, 2], &[0.848_528, 11.313_708, 0.0, 14.142_136], |m, y| {
        run!(m, nn.aclnnRmsNorm(x, gamma, 0.0, y, stats), s)
    });
    b.check(F32, &[2, 2], &[-1.0, 10.0, -1.0, 10.0], |m, y| {
        run!(m, nn.aclnnLayerNorm(x, m.ints(&[2]), gamma, null(), 0.0, y, null_mut(), null_mut()), s)
    });
}

#[test]
fn matrices_are_multiplied_turned_and_in_batches() {
    let b = Bench::new();
    let s = b.stream;
    let x = b.f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    b.check(F32, &[2, 2], &[5.0, 11.0, 11.0, 25.0], |m, y| {
        let turned = m.view(F32, &[2, 2], &[1, 2], 0, b.memory(F32, &[1.0, 2.0, 3.0, 4.0]));
        run!(m, nn.aclnnMm(x, turned, y, 0), s)
    });
    b.check(F32, &[2, 1, 1], &[3.0, 7.0], |m, y| {
        let batch = b.f32(&[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]);
        run!(m, nn.aclnnBatchMatMul(batch, b.f32(&[1, 2, 1], &[1.0, 1.0]), y, 0), s)
    });
    // Two groups of rows with scales 0.5 and 2.
    let weight: Vec<f64> = (0..64)
        .map(|i| {
            if i == 1 {
                4.0
            } else if i == 33 {
                -3.0
            } else {
                0.0
            }
        })
        .collect();
    b.check(F16, &[1, 1], &[2.0 - 6.0], |m, y| {
        let (x, w) = (b.of(F16, &[1, 64], &[1.0; 64]), b.of(ACL_INT8, &[64, 1], &weight));
        let (scale, n) = (b.of(F16, &[2, 1], &[0.5, 2.0]), null());
        run!(m, nn.aclnnWeightQuantBatchMatmulV2(x, w, scale, n, n, n, n, 32, y), s)
    });
}

#[test]
fn positions_turn_halves_or_neighbours() {
    let b = Bench::new();
    let (s, x) = (b.stream, b.f32(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, 4.0]));
    let (cos, sin) = (b.f32(&[1, 1, 1, 4], &[0.0; 4]), b.f32(&[1, 1, 1, 4], &[1.0; 4]));
    let rope = |mode, expected: &[f64]| {
        b.check(F32, &[1, 1, 1, 4], expected, |m, y| {
            run!(m, transformer.aclnnRotaryPositionEmbedding(x, cos, sin, mode, y), s)
        });
    };
    rope(0, &[-3.0, -4.0, 1.0, 2.0]);
    rope(1, &[-2.0, 1.0, -4.0, 3.0]);
}

/// One query [1, 1, 2, 16] over keys of one head, in blocks or not; the second head's query looks the other way.
#[test]
fn attention_sees_what_its_lengths_table_and_mask_let_it() {
    let b = Bench::new();
    let s = b.stream;
    let unit = |x: f64| (0..16).map(move |i| if i == 0 { x } else { 0.0 });
    let q = b.of(F16, &[1, 1, 2, 16], &unit(100.0).chain(unit(-100.0)).collect::<Vec<_>>());
    // Three keys 1, 0, -1 with values 10, 20, 30, in a cache of two blocks of 16, the second first.
    let rows = |v: [f64; 3]| v.into_iter().flat_map(unit).collect::<Vec<_>>();
    let cache = |v: [f64; 3]| {
        let mut all = vec![f64::NAN; 2 * 16 * 16];
        all[256..256 + 48].copy_from_slice(&rows(v));
        b.of(F16, &[2, 16, 16], &all)
    };
    let attend = |paged: bool, len: i64, mask: *mut aclTensor, expected: [f64; 2]| {
        let expected: Vec<f64> = expected.into_iter().flat_map(unit).collect();
        b.check(F16, &[1, 1, 2, 16], &expected, |m, y| {
            let list = |v| {
                let t = if paged { cache(v) } else { b.of(F16, &[1, 3, 1, 16], &rows(v)) };
                // SAFETY: one live tensor.
                unsafe { m.t.object.aclCreateTensorList.unwrap()([t.cast_const()].as_ptr(), 1) }
            };
            let (k, v, n) = (list([1.0, 0.0, -1.0]), list([10.0, 20.0, 30.0]), null());
            let table = if paged { b.of(ACL_INT32, &[1, 1], &[1.0]) } else { null_mut() };
            let (lens, layout) = (m.ints(&[len]), c"BSND".as_ptr().cast_mut());
            run!(
                m,
                transformer.aclnnFusedInferAttentionScoreV2(
                    q,
                    k,
                    v,
                    n,
                    mask,
                    null(),
                    lens,
                    n,
                    n,
                    n,
                    n,
                    n,
                    n,
                    n,
                    table,
                    n,
                    n,
                    n,
                    n,
                    n,
                    n,
                    n,
                    n,
                    null(),
                    2,
                    1.0,
                    65_535,
                    65_535,
                    layout,
                    1,
                    0,
                    0,
                    if paged { 16 } else { 0 },
                    0,
                    false,
                    0,
                    0,
                    y,
                    null_mut(),
                ),
                s
            )
        });
    };
    for paged in [false, true] {
        attend(paged, 3, null_mut(), [10.0, 30.0]);
        attend(paged, 2, null_mut(), [10.0, 20.0]);
        let first_hidden = b.of(ACL_BOOL, &[1, 16], &unit(1.0).collect::<Vec<_>>());
        attend(paged, 3, first_hidden, [20.0, 30.0]);
    }
}

#[test]
fn experts_take_their_rows_and_leave_the_others() {
    let b = Bench::new();
    let s = b.stream;
    b.check(ACL_INT32, &[2, 1], &[1.0, 0.0], |m, expert| {
        let x = b.f32(&[2, 2], &[0.0, 1.0, 2.0, 0.0]);
        let (y, row) = (b.f32(&[2, 1], &[0.0; 2]), b.of(ACL_INT32, &[2, 1], &[0.0; 2]));
        run!(m, transformer.aclnnMoeGatingTopKSoftmax(x, null(), 1, y, expert, row), s)
    });
    b.check(F32, &[3, 1], &[10.0, 200.0, 5.0], |m, y| {
        assert_eq!(run!(m, math.aclnnInplaceFillScalar(y, m.scalar(5.0)), s), 0);
        let list = |t: *mut aclTensor| {
            // SAFETY: one live tensor.
            unsafe { m.t.object.aclCreateTensorList.unwrap()([t.cast_const()].as_ptr(), 1) }
        };
        let (x, w) = (list(b.f32(&[3, 1], &[1.0, 2.0, 3.0])), list(b.f32(&[2, 1, 1], &[10.0, 100.0])));
        let (groups, n) = (b.of(ACL_INT64, &[2], &[1.0, 2.0]), null());
        let op = m.t.transformer.aclnnGroupedMatmulV4;
        let (mut size, mut executor) = (0, null_mut());
        // SAFETY: live lists, and NULL where it is taken.
        let planned = unsafe {
            op.plan.unwrap()(
                x,
                w,
                n,
                n,
                n,
                n,
                n,
                n,
                groups,
                n.cast(),
                n.cast(),
                n.cast(),
                2,
                0,
                0,
                0,
                list(y),
                n.cast(),
                n.cast(),
                &mut size,
                &mut executor,
            )
        };
        assert_eq!(planned, 0, "{}", m.message());
        launch!(m, transformer.aclnnGroupedMatmulV4, m.alloc(size as usize), size, executor, s)
    });
}

#[test]
fn images_are_pooled_filtered_and_enlarged() {
    let b = Bench::new();
    let s = b.stream;
    let x = b.f32(&[1, 1, 2, 2], &[1.0, 2.0, 3.0, 4.0]);
    b.check(F32, &[1, 1, 1, 1], &[2.5], |m, y| {
        let (k, zero) = (m.ints(&[2, 2]), m.ints(&[0, 0]));
        run!(m, nn.aclnnAvgPool2d(x, k, k, zero, false, true, 0, 0, y), s)
    });
    b.check(F32, &[1, 1, 1, 1], &[4.0], |m, y| {
        let (k, zero, one) = (m.ints(&[2, 2]), m.ints(&[0; 4]), m.ints(&[1, 1]));
        run!(m, nn.aclnnMaxPool(x, k, k, 0, zero, one, 0, y), s)
    });
    b.check(F32, &[1, 1, 1, 2], &[1.0 + 30.0, 2.0 + 40.0], |m, y| {
        let (w, one, zero) = (b.f32(&[1, 1, 2, 1], &[1.0, 10.0]), m.ints(&[1, 1]), m.ints(&[0, 0]));
        run!(m, nn.aclnnConvolution(x, w, null(), one, zero, one, false, zero, 1, y, 0), s)
    });
    b.check(F32, &[1, 1, 4], &[1.0, 1.0 + 2.0, 2.0 + 3.0, 3.0], |m, y| {
        let (x, w) = (b.f32(&[1, 1, 3], &[1.0, 2.0, 3.0]), b.f32(&[1, 1, 2], &[1.0, 1.0]));
        let (one, zero) = (m.ints(&[1]), m.ints(&[0]));
        run!(m, nn.aclnnConvolution(x, w, null(), one, zero, one, true, zero, 1, y, 0), s)
    });
    b.check(F32, &[1, 2, 2], &[1.0, 2.0, 3.0, 4.0], |m, y| {
        let (k, one, zero) = (m.ints(&[2, 1]), m.ints(&[1, 1]), m.ints(&[0, 0]));
        run!(m, math.aclnnIm2col(x, k, one, zero, one, y), s)
    });
    b.check(F32, &[1, 1, 2, 4], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0], |m, y| {
        run!(m, cv.aclnnUpsampleNearest2d(x, m.ints(&[2, 4]), y), s)
    });
}
