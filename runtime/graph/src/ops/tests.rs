//! Tests over all ops: every case runs, decompositions equal their ops, hostile operands are refused.

use super::*;
use crate::reference::{self, Memory};
use crate::tensor::{Kind, Role};
use proptest::prelude::*;
use value::Data;

/// Every op with each of its cases.
fn all_cases() -> impl Iterator<Item = (Op, Case)> {
    Op::ALL.iter().flat_map(|&op| rules(op).cases().into_iter().map(move |case| (op, case)))
}

fn run(case: &Case) -> (Memory, Value) {
    let mut memory = case.values(1).unwrap();
    reference::run(&case.graph, &mut memory).unwrap();
    let y = memory.get(&case.graph, case.graph.nodes.last().unwrap().dst).unwrap();
    (memory, y)
}

#[test]
fn every_case_ends_in_its_op_and_gives_finite_numbers() {
    for (op, case) in all_cases() {
        assert_eq!(case.graph.error(), None, "{op}: {}", case.name);
        let node = case.graph.nodes.last().unwrap();
        assert_eq!(node.op, op, "{}", case.name);
        let (_, y) = run(&case);
        assert_eq!(y.ne, case.graph.ne(node.dst), "{op}: {}", case.name);
        let masks = matches!(op, Op::PagedMask | Op::PagedScores | Op::DiagMaskInf);
        let finite = |v: &f32| v.is_finite() || (masks && *v == f32::NEG_INFINITY);
        assert!(y.floats().iter().all(finite), "{op}: {}", case.name);
        assert_eq!((y.floats().len() + y.ints().len()) as u64, y.ne.iter().product(), "{op}: {}", case.name);
    }
}

#[test]
fn every_op_has_cases_with_names_of_their_own() {
    for &op in Op::ALL {
        let mut names: Vec<String> = rules(op).cases().into_iter().map(|c| c.name).collect();
        assert!(!names.is_empty(), "{op}");
        names.sort();
        let twice: Vec<_> = names.windows(2).filter(|w| w[0] == w[1]).collect();
        assert!(twice.is_empty(), "{op}: {twice:?}");
    }
}

#[test]
fn any_dim_of_any_source_may_be_0_unless_there_is_a_reason() {
    for &op in Op::ALL {
        let found = empty::refused(rules(op), &(rules(op).cases)());
        let expected: Vec<_> =
            NEVER_0.iter().filter(|(of, ..)| *of == op).flat_map(|never| never.1).collect();
        let dims: Vec<_> = found.iter().map(|(dim, _)| dim).collect();
        assert_eq!(dims, expected, "{op}: {found:?}");
        assert!(found.iter().all(|(_, problem)| !problem.is_empty()), "{op}: {found:?}");
    }
}

/// Dims (source, dim) that are never 0, and why. Of values, `mean` and `argmax` refuse the one that does not exist: that
/// of an empty row, if there is such a row.
const NEVER_0: &[(Op, &[empty::Dim], &str)] = &[
    (
        Op::Rope,
        &[(0, 0), (2, 0)],
        "a head holds the dims that turn, at least 2, and each pair has its factor",
    ),
    (
        Op::Attention,
        &[(5, 0), (7, 0)],
        "query starts are one more than the sequences; the bias of distance 0 is in the middle",
    ),
    (Op::PagedMask, &[(2, 0)], "as in attention"),
    (Op::PagedScores, &[(4, 0)], "as in attention"),
    (Op::SparseAttention, &[(5, 0), (6, 1)], "as in attention; there is a set of positions at least"),
    (Op::TokenWindows, &[(3, 0)], "as in attention"),
    (Op::SsmConvRagged, &[(1, 0), (4, 0)], "as in im2col; as in attention"),
    (Op::SsmScan, &[(7, 0)], "as in attention"),
    (Op::RwkvWkv6, &[(7, 0)], "as in attention"),
    (Op::RwkvWkv7, &[(8, 0)], "as in attention"),
    (Op::GatedLinearAttn, &[(6, 0)], "as in attention"),
    (Op::GatedDeltaNet, &[(7, 0)], "as in attention"),
    (Op::WinUnpart, &[(0, 1), (0, 2)], "windows are of the size in the params, at least 1"),
    (Op::Im2col, &[(0, 0)], "a window without taps has no positions"),
    (Op::Im2col3d, &[(0, 0), (0, 1), (0, 2)], "as in im2col"),
    (Op::Conv1d, &[(0, 0)], "as in im2col"),
    (Op::Conv1dDw, &[(0, 0)], "as in im2col"),
    (Op::Conv2d, &[(0, 0), (0, 1)], "as in im2col"),
    (Op::Conv2dDw, &[(0, 0), (0, 1)], "as in im2col"),
    (Op::Conv3d, &[(0, 0), (0, 1), (0, 2)], "as in im2col"),
    (Op::Col2im1d, &[(0, 1)], "n columns make a signal of (n - 1) strides and more"),
    (Op::ConvTranspose1d, &[(1, 0)], "as in col2im_1d"),
    (Op::ConvTranspose2d, &[(1, 0), (1, 1)], "as in col2im_1d"),
];

#[test]
fn decompositions_compute_what_their_op_computes() {
    for &op in Op::ALL.iter().filter(|&&op| rules(op).is_composite()) {
        let mut n_decomposed = 0;
        for case in rules(op).cases() {
            let node = case.graph.nodes.last().unwrap().clone();
            let mut g = case.graph.clone();
            let Some(simple) = rules(op).decompose(&mut g, &node) else { continue };
            n_decomposed += 1;
            let mut memory = case.values(1).unwrap();
            reference::run(&g, &mut memory).unwrap();
            let (y, expected) = (memory.get(&g, simple).unwrap(), memory.get(&g, node.dst).unwrap());
            assert_eq!(y.ne, expected.ne, "{op}: {}", case.name);
            assert!(nmse(y.floats(), expected.floats()) < 1e-11, "{op}: {}", case.name);
        }
        assert!(n_decomposed > 2, "{op}");
    }
}

/// Σ(a - b)² / Σ b²; 0 when both are zero.
fn nmse(a: &[f32], b: &[f32]) -> f64 {
    let error: f64 = a.iter().zip(b).map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
    error / b.iter().map(|b| (*b as f64).powi(2)).sum::<f64>().max(f64::MIN_POSITIVE)
}

/// A result of one op on small operands, as numbers.
pub(super) fn compute(build: impl FnOnce(&mut Graph) -> Tensor, inputs: &[(&str, Data)]) -> Vec<f32> {
    let mut g = Graph::new();
    let y = build(&mut g);
    let g = g.finish().unwrap();
    let mut memory = Memory::new();
    for (name, data) in inputs {
        let t = g.find(name).unwrap();
        memory.set(&g, t, &Value { ne: g.ne(t), data: data.clone() }).unwrap();
    }
    reference::run(&g, &mut memory).unwrap();
    let y = memory.get(&g, y).unwrap();
    y.floats().iter().copied().chain(y.ints().iter().map(|&i| i as f32)).collect()
}

pub(super) fn check(build: impl FnOnce(&mut Graph) -> Tensor, inputs: &[(&str, Data)], expected: &[f32]) {
    let y = compute(build, inputs);
    assert_eq!(y.len(), expected.len());
    let near = y.iter().zip(expected).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0));
    assert!(near, "{y:?}, expected {expected:?}");
}

pub(super) fn floats(v: &[f32]) -> Data {
    Data::F32(v.to_vec())
}

/// factor · sin(i·a + b) for i < n.
pub(super) fn sines(n: usize, factor: f32, a: f32, b: f32) -> Data {
    Data::F32((0..n).map(|i| factor * (i as f32 * a + b).sin()).collect())
}

pub(super) fn ints(v: &[i32]) -> Data {
    Data::I32(v.to_vec())
}

#[test]
fn a_matrix_product_takes_rows_of_both() {
    let build = |g: &mut Graph| {
        let w = g.weight("w", DType::F32, &[2, 3], Role::Matrix);
        let x = g.input("x", DType::F32, &[2, 1]);
        g.mul_mat(w, x)
    };
    check(build, &[("w", floats(&[1., 2., 3., 4., 5., 6.])), ("x", floats(&[10., 1.]))], &[12., 34., 56.]);
}

#[test]
fn norms_have_unit_mean_square() {
    let x = ("x", floats(&[3., -4.]));
    let rms = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[2]);
        g.rms_norm(x, None, 0.0)
    };
    check(rms, std::slice::from_ref(&x), &[0.848_528_1, -1.131_370_9]);
    let layer = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[2]);
        g.layer_norm(x, None, None, 0.0)
    };
    check(layer, &[x], &[1., -1.]);
}

#[test]
fn a_quarter_turn_swaps_a_pair_and_modes_differ_in_what_a_pair_is() {
    // base 1: all pairs turn by the position times the scale, here π/2.
    let p = llmrt_abi::op::RopeParams {
        n_dims: 4,
        freq_base: 1.0,
        freq_scale: std::f32::consts::FRAC_PI_2,
        attn_factor: 1.0,
        ..Default::default()
    };
    for (mode, expected) in [(0, [-2., 1., -4., 3., 5.]), (2, [-3., -4., 1., 2., 5.])] {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[5, 1, 1]);
            let pos = g.input("pos", DType::I32, &[1]);
            g.rope(x, pos, None, &llmrt_abi::op::RopeParams { mode, ..p })
        };
        check(build, &[("x", floats(&[1., 2., 3., 4., 5.])), ("pos", ints(&[1]))], &expected);
    }
}

#[test]
fn a_query_with_equal_scores_averages_the_values_it_may_see() {
    for (window, seq_len, expected) in [(0, 3, [20., 2.]), (2, 3, [15., 1.5]), (0, 1, [30., 3.])] {
        let build = |g: &mut Graph| {
            let q = g.input("q", DType::F32, &[2, 1, 1]);
            let k = g.state("k", DType::F32, &[2, 4], Role::KCache);
            let v = g.state("v", DType::F32, &[2, 4], Role::VCache);
            let paged = Paged {
                block_table: g.input("table", DType::I32, &[2, 1]),
                seq_lens: g.input("lens", DType::I32, &[1]),
                query_starts: g.input("starts", DType::I32, &[2]),
            };
            let p = llmrt_abi::op::AttentionParams {
                n_kv_heads: 1,
                block_size: 2,
                scale: 1.0,
                window,
                ..Default::default()
            };
            g.attention(q, k, v, &paged, &p)
        };
        let inputs = [
            ("q", floats(&[0.; 2])),
            ("v", floats(&[10., 1., 999., 999., 30., 3., 20., 2.])),
            ("table", ints(&[1, 0])),
            ("lens", ints(&[seq_len])),
            ("starts", ints(&[0, 1])),
        ];
        check(build, &inputs, &expected);
    }
}

#[test]
fn a_sink_takes_its_share() {
    let build = |g: &mut Graph| {
        let q = g.input("q", DType::F32, &[1, 2, 1]);
        let k = g.state("k", DType::F32, &[1, 1], Role::KCache);
        let v = g.input("v", DType::F32, &[1, 1]);
        let sinks = g.input("sinks", DType::F32, &[2]);
        let paged = Paged {
            block_table: g.input("table", DType::I32, &[1, 1]),
            seq_lens: g.input("lens", DType::I32, &[1]),
            query_starts: g.input("starts", DType::I32, &[2]),
        };
        let p = llmrt_abi::op::AttentionParams { n_kv_heads: 1, block_size: 1, ..Default::default() };
        g.attention_with_sinks(q, k, v, sinks, &paged, &p)
    };
    let inputs = [
        ("q", floats(&[1., 1.])),
        ("v", floats(&[8.])),
        ("sinks", floats(&[0., 3f32.ln()])),
        ("table", ints(&[0])),
        ("lens", ints(&[1])),
        ("starts", ints(&[0, 1])),
    ];
    check(build, &inputs, &[4., 2.]);
}

#[test]
fn a_row_masked_all_over_becomes_zeros() {
    let build = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[2, 2]);
        let mask = g.input("mask", DType::F32, &[2, 2]);
        g.soft_max(x, Some(mask), 1.0)
    };
    let inf = f32::NEG_INFINITY;
    check(build, &[("x", floats(&[1.; 4])), ("mask", floats(&[inf, inf, 0., inf]))], &[0., 0., 1., 0.]);
}

#[test]
fn the_largest_come_first_and_nan_last() {
    let build = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[5]);
        g.top_k(x, 5)
    };
    check(build, &[("x", floats(&[f32::NAN, 2., 7., 2., -1.]))], &[2., 1., 3., 4., 0.]);
}

#[test]
fn mistakes_name_op_tensor_and_shapes() {
    let mut g = Graph::new();
    let w = g.weight("blk.0.ffn_up.weight", DType::Q4_K, &[256, 4], Role::Matrix);
    let x = g.input("x", DType::F32, &[128, 2]);
    g.mul_mat(w, x);
    let error = g.finish().unwrap_err().to_string();
    assert_eq!(
        error,
        "mul_mat of `blk.0.ffn_up.weight`: w [256, 4, 1, 1] has rows of 256, x [128, 2, 1, 1] of 128"
    );
}

proptest! {
    #[test]
    fn shape_rules_refuse_or_accept_any_operands(
        op in 0..Op::ALL.len(),
        src in prop::collection::vec(prop::option::weighted(0.9, hostile_def()), 0..8),
        params in prop::collection::vec(prop::sample::select(&[0, 1, 2, 64, 255]), 0..48),
    ) {
        let src: Vec<_> = src.iter().map(Option::as_ref).collect();
        let _ = rules(Op::ALL[op]).infer(&src, &params);
    }

    #[test]
    fn builders_refuse_or_accept_any_dims(
        dims in prop::collection::vec(hostile_dim(), 1..5),
        dtype in prop::sample::select(DType::ALL),
        (a, b, c) in (hostile_dim(), hostile_dim(), hostile_dim()),
        axes in prop::array::uniform4(0usize..5),
    ) {
        let mut g = Graph::new();
        let t = g.weight("t", dtype, &dims, Role::Other);
        let u = g.slice(t, (a % 4) as usize, b, c);
        let v = g.split_heads(u, a);
        let w = g.permute(v, axes);
        let x = g.reshape(w, &[a, b, c]);
        let y = g.view(x, [a, b, c, 1], [c, b, a, 1], a);
        let z = g.cont(y);
        let _ = (g.add(z, t), g.mul_mat(t, z), g.finish());
    }

    #[test]
    fn references_survive_any_integers(
        case in 0..all_cases().count(),
        wild in prop::collection::vec(prop::sample::select(&[i32::MIN, -7, -1, 0, 1, 2, 3, 5, 900, i32::MAX]), 64),
    ) {
        let (_, mut case) = all_cases().nth(case).unwrap();
        for (_, ints) in &mut case.ints {
            ints.iter_mut().zip(wild.iter().cycle()).for_each(|(to, from)| *to = *from);
        }
        run(&case);
    }
}

fn hostile_dim() -> impl Strategy<Value = u64> {
    prop::sample::select(&[0, 1, 1, 1, 2, 3, 4, 32, 256, 1 << 31, u32::MAX as u64, 1 << 62, u64::MAX])
}

fn hostile_def() -> impl Strategy<Value = TensorDef> {
    let dtype =
        prop::sample::select(&[DType::F32, DType::F32, DType::I32, DType::F16, DType::Q8_0, DType::IQ1_S]);
    let dims = (prop::array::uniform4(hostile_dim()), prop::array::uniform4(hostile_dim()));
    (dtype, dims, any::<bool>()).prop_map(|(dtype, (ne, mut nb), dense)| {
        if dense {
            nb[0] = dtype.block_bytes() as u64;
        }
        let (kind, role) = (Kind::Input, Role::Other);
        TensorDef { name: "t".into(), dtype, ne, nb, kind, role, output: false, view: None, listed: None }
    })
}
