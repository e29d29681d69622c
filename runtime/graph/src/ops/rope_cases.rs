//! Operands for rope: modes, sections, scalings, dtypes, several sequences, strides, parts of heads, both ways.

use super::super::operand::NUMBERS;
use super::{INTERLEAVED, MROPE, NEOX, NORMAL, VISION, has_sections, n_pairs};
use crate::graph::Graph;
use crate::ops::case::Case;
use crate::tensor::{Shape, Tensor};
use llmrt_abi::{DType, op::RopeParams};

const PLAIN: RopeParams = RopeParams {
    n_dims: 64,
    mode: NORMAL,
    n_ctx_orig: 4096,
    freq_base: 10000.0,
    freq_scale: 1.0,
    ext_factor: 0.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    section0: 0,
    section1: 0,
    section2: 0,
    section3: 0,
    back: 0,
    offset: 0,
};

type Ints = Vec<(Tensor, Vec<i32>)>;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for mode in [NORMAL, NEOX, MROPE, VISION, INTERLEAVED] {
        scalings(mode, &mut cases);
        shapes(mode, &mut cases);
    }
    for (mode, sections) in [
        (MROPE, [16, 24, 24, 0]),
        (MROPE, [10, 12, 6, 4]),
        (MROPE, [3, 0, 5, 0]),
        (MROPE, [0, 0, 32, 0]),
        (VISION, [32, 32, 0, 0]),
        (VISION, [20, 20, 12, 12]),
        (VISION, [0, 7, 5, 0]),
        (INTERLEAVED, [24, 20, 20, 0]),
        (INTERLEAVED, [11, 11, 10, 0]),
        (INTERLEAVED, [4, 8, 4, 9]),
    ] {
        for n_dims in if mode == VISION { [64, 64] } else { [64, 128] } {
            for factors in [false, true] {
                let p = with_sections(RopeParams { mode, n_dims, ..PLAIN }, sections);
                let name = format!("mode {mode}, sections {sections:?} of {n_dims}, factors {factors}");
                if cases.iter().all(|c: &Case| c.name != name) {
                    cases.push(case(name, DType::F32, [128, 2, 3, 1], p, factors));
                }
            }
        }
    }
    cases
}

fn scalings(mode: u32, cases: &mut Vec<Case>) {
    let base = usual(mode);
    let yarn = RopeParams { freq_scale: 0.25, ext_factor: 1.0, attn_factor: 1.2, ..base };
    let partial = |n_dims| if mode == VISION { base.n_dims } else { n_dims };
    for (name, p) in [
        ("plain", base),
        ("partial", RopeParams { n_dims: partial(20), ..base }),
        ("linear scaling", RopeParams { freq_scale: 0.5, ..base }),
        ("yarn", yarn),
        ("partial yarn, half extrapolated", RopeParams { n_dims: partial(32), ext_factor: 0.5, ..yarn }),
        ("base of a million", RopeParams { freq_base: 1e6, ..base }),
    ] {
        for factors in [false, true] {
            for back in [0, 1] {
                for dtype in [DType::F32, DType::F16] {
                    let name = format!("mode {mode}, {name}, factors {factors}, back {back}, {dtype}");
                    cases.push(case(name, dtype, [64, 3, 5, 1], RopeParams { back, ..p }, factors));
                }
            }
        }
    }
}

fn shapes(mode: u32, cases: &mut Vec<Case>) {
    let base = usual(mode);
    for (ne, n_dims) in
        [([128, 1, 1, 1], 128), ([80, 4, 2, 1], 32), ([36, 2, 7, 3], 36), ([256, 2, 2, 2], 64)]
    {
        for dtype in NUMBERS {
            let n_dims = if mode == VISION { ne[0] as u32 / 2 } else { n_dims };
            let p = RopeParams { n_dims, ..base };
            cases.push(case(format!("mode {mode}, {ne:?} of {dtype}"), dtype, ne, p, false));
        }
    }
    if mode != VISION {
        for offset in [2, 32] {
            let p = RopeParams { n_dims: 24, offset, ..base };
            cases.push(case(
                format!("mode {mode}, from element {offset} on"),
                DType::F32,
                [64, 2, 3, 1],
                p,
                true,
            ));
        }
        cases.push(case(
            format!("mode {mode}, one head of two"),
            DType::F32,
            [2, 1, 1, 1],
            RopeParams { n_dims: 2, section0: 1, section1: 0, section2: 0, ..base },
            false,
        ));
    }
    cases.push(Case::new(format!("mode {mode}, heads of a fused projection"), |g, ints| {
        let qkv = g.input("qkv", DType::F32, &[3 * 128, 4]);
        let q = g.slice(qkv, 0, 128, 128);
        let q = g.split_heads(q, 2);
        let pos = positions(g, ints, &base, 4);
        g.rope(q, pos, None, &base);
    }));
    for dtype in [DType::F32, DType::F16] {
        cases.push(Case::new(format!("mode {mode}, transposed heads of {dtype}"), |g, ints| {
            let x = g.input("x", dtype, &[3, 64, 2]);
            let x = g.permute(x, [1, 0, 2, 3]); // [64, 3, 2]
            let pos = positions(g, ints, &base, 2);
            g.rope(x, pos, None, &base);
        }));
    }
}

/// For heads of 64.
fn usual(mode: u32) -> RopeParams {
    let p = RopeParams { mode, ..PLAIN };
    match mode {
        VISION => with_sections(RopeParams { n_dims: 32, ..p }, [16, 16, 0, 0]),
        MROPE | INTERLEAVED => with_sections(p, [8, 12, 11, 1]),
        _ => p,
    }
}

fn with_sections(p: RopeParams, [section0, section1, section2, section3]: [u32; 4]) -> RopeParams {
    RopeParams { section0, section1, section2, section3, ..p }
}

fn case(name: impl Into<String>, dtype: DType, ne: Shape, p: RopeParams, factors: bool) -> Case {
    Case::new(name, |g, ints| {
        let x = g.input("x", dtype, &ne);
        let pos = positions(g, ints, &p, ne[2] as usize);
        let f = factors.then(|| {
            let f = g.input("uniform", DType::F32, &[n_pairs(&p) as u64]);
            let f = g.sigmoid(f);
            g.scale_bias(f, 3.0, 1.0)
        });
        g.rope(x, pos, f, &p);
    })
}

fn positions(g: &mut Graph, ints: &mut Ints, p: &RopeParams, n_tokens: usize) -> Tensor {
    let n = if has_sections(p) { 4 * n_tokens } else { n_tokens };
    let pos = g.input("positions", DType::I32, &[n as u64]);
    let some = [0, 1, 2, 100, 1023, 7, 3, 3, 12, 55, 4];
    ints.push((pos, some.into_iter().cycle().take(n).collect()));
    pos
}
