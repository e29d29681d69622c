//! y[i, j] = Σₖ w[k, i] · x[k, j] where score[i, j] passes, else 0: rows of neurons that a predictor, or their gate, lets fire.
//!
//! Which rows are computed depends on each column alone.
//!
//! Result: F32 [m, n] of w [k, m] (any dtype that can be decoded), x [k, n] (F32, F16 or BF16) and scores F32 [m, n].

use super::{Inferred, Pick, Rules, case::Case, check, mul_mat, value::Value};
use crate::graph::{Graph, Node};
use crate::ops::case;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// `w` [k, m] times `x` [k, n] where `scores` [m, n] pass, zeros elsewhere: [m, n].
    pub fn mul_mat_sparse(&mut self, w: Tensor, x: Tensor, scores: Tensor, pick: Pick) -> Tensor {
        self.push(Op::MulMatSparse, &[Some(w), Some(x), Some(scores)], &pick.bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let w = check::decodable(src, 0, "w")?;
    let x = check::numbers(src, 1, "x")?;
    let scores = check::floats(src, 2, "scores")?;
    Pick::read(params)?;
    let [k, m, w2, w3] = w.ne;
    if [w2, w3] != [1, 1] || x.ne[0] != k || x.ne[2..] != [1, 1] {
        return Err(format!(
            "w {:?} for rows {:?}, expected matrices whose rows are of one length",
            w.ne, x.ne
        ));
    }
    let ne = [m, x.ne[1], 1, 1];
    match scores.ne == ne {
        true => Ok((DType::F32, ne)),
        false => Err(format!("scores {:?}, expected {ne:?}", scores.ne)),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let pick = Pick::read(params).unwrap_or(Pick::Above(f32::INFINITY));
    let (w, x, scores) = (check::arg(src, 0), check::arg(src, 1), check::arg(src, 2));
    let m = w.ne[1] as usize;
    let element = |(at, score): (usize, &f32)| match pick.passes(*score) {
        true => mul_mat::dot(w.row(at % m), x.row(at / m)),
        false => 0.0,
    };
    Value::f32(scores.ne, scores.floats().iter().enumerate().map(element).collect())
}

/// All rows, times 1 or 0.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let [w, x, scores] = *node.src.first_chunk()?;
    let passes = g.passes(scores?, Pick::read(&node.params).ok()?);
    let y = g.mul_mat(w?, x?);
    Some(g.mul(y, passes))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in case::weight_dtypes() {
        for (m, n, k) in [(37, 1, 512), (300, 1, 256), (65, 3, 256), (40, 33, 256)] {
            cases.push(case(dtype, [k, m], n, Pick::Above(0.5)));
        }
    }
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
        for pick in [
            Pick::NotBelow(f32::NEG_INFINITY),
            Pick::NotBelow(-0.8),
            Pick::NotBelow(0.9),
            Pick::Above(1.0),
            Pick::NotBelow(f32::INFINITY),
        ] {
            for (m, n) in [(1, 1), (530, 1), (50, 9)] {
                cases.push(case(dtype, [64, m], n, pick));
            }
        }
    }
    for x in [DType::F16, DType::BF16] {
        cases.push(
            Case::new(format!("Q4_0 weights times rows of {x}"), |g, _| {
                let w = g.weight("w", DType::Q4_0, &[64, 70], Role::Matrix);
                let x = g.input("x", x, &[64, 2]);
                let scores = g.input("scores", DType::F32, &[70, 2]);
                g.mul_mat_sparse(w, x, scores, Pick::Above(0.0));
            })
            .nmse(mul_mat::QUANT_NMSE),
        );
    }
    cases.push(Case::new("a part of longer rows of scores and of x", |g, _| {
        let w = g.weight("w", DType::F32, &[20, 24], Role::Matrix);
        let x = g.input("x", DType::F32, &[33, 3]);
        let x = g.slice(x, 0, 8, 20);
        let scores = g.input("scores", DType::F32, &[48, 3]);
        let scores = g.slice(scores, 0, 16, 24);
        g.mul_mat_sparse(w, x, scores, Pick::NotBelow(0.0));
    }));
    cases
}

fn case(dtype: DType, w: [u64; 2], n: u64, pick: Pick) -> Case {
    Case::new(format!("{dtype} weights {w:?} times {n} rows, scores {pick:?}"), |g, _| {
        let w_t = g.weight("w", dtype, &w, Role::Matrix);
        let x = g.input("x", DType::F32, &[w[0], n]);
        let scores = g.input("scores", DType::F32, &[w[1], n]);
        g.mul_mat_sparse(w_t, x, scores, pick);
    })
    .nmse(mul_mat::limit(dtype))
}
