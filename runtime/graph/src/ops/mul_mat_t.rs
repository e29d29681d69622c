//! y[i, j] = Σₖ w[i, k] · h[k, j], over the k where h[k, j] is not 0: the matrix after the activation of an FFN, stored by
//! neurons, of which most do not fire. With scores, elements of h whose score does not pass count as zeros.
//!
//! Result: F32 [m, n] of w [m, k] (any dtype that can be decoded), h F32 [k, n] and scores F32 [k, n].

use super::{Inferred, Pick, Rules, case::Case, check, value::Value};
use crate::graph::{Graph, Node};
use crate::ops::case;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// The rows of `w` [m, k] times the elements of `h` [k, n], added up: [m, n]. With scores [k, n] and a rule, those of `h`
    /// count whose score passes.
    pub fn mul_mat_t(&mut self, w: Tensor, h: Tensor, scores: Option<(Tensor, Pick)>) -> Tensor {
        let src = [Some(w), Some(h)].into_iter().chain(scores.map(|(scores, _)| Some(scores)));
        let pick = scores.map_or(Pick::NotBelow(0.0), |(_, pick)| pick);
        self.push(Op::MulMatT, &src.collect::<Vec<_>>(), &pick.bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let w = check::decodable(src, 0, "w")?;
    let h = check::floats(src, 1, "h")?;
    Pick::read(params)?;
    let [m, k, w2, w3] = w.ne;
    if [w2, w3] != [1, 1] || h.ne[0] != k || h.ne[2..] != [1, 1] {
        return Err(format!("w {:?} for h {:?}, expected a row of w for each element of h", w.ne, h.ne));
    }
    match check::optional_floats(src, 2, "scores")? {
        Some(scores) if scores.ne != h.ne => Err(format!("scores {:?}, expected {:?}", scores.ne, h.ne)),
        _ => Ok((DType::F32, [m, h.ne[1], 1, 1])),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let pick = Pick::read(params).unwrap_or(Pick::Above(f32::INFINITY));
    let (w, h, scores) = (check::arg(src, 0), check::arg(src, 1), check::optional_arg(src, 2));
    let [m, n] = [w.ne[0], h.ne[1]].map(|n| n as usize);
    let mut y = Vec::with_capacity(m * n);
    for j in 0..n {
        let mut sums = vec![0f64; m];
        for (k, &factor) in h.row(j).iter().enumerate() {
            let passes = scores.is_none_or(|scores| pick.passes(scores.row(j)[k]));
            if factor != 0.0 && passes {
                sums.iter_mut().zip(w.row(k)).for_each(|(sum, w)| *sum += f64::from(*w) * f64::from(factor));
            }
        }
        y.extend(sums.into_iter().map(|sum| sum as f32));
    }
    Value::f32([w.ne[0], h.ne[1], 1, 1], y)
}

/// Outer products of the rows of w and those of h turned over.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let [w, h] = *node.src.first_chunk()?;
    let h = match node.src.get(2).copied().flatten() {
        None => h?,
        Some(scores) => {
            let passes = g.passes(scores, Pick::read(&node.params).ok()?);
            g.mul(h?, passes)
        }
    };
    let h = g.permute(h, [1, 0, 2, 3]); // [n, k]
    Some(g.out_prod(w?, h))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in case::weight_dtypes() {
        for (k, n) in [(1, 1), (70, 1), (33, 5)] {
            cases.push(case(dtype, [512, k], n));
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for (m, k, n) in [(1, 1, 1), (3, 40, 1), (130, 7, 2), (1030, 17, 1), (33, 600, 20)] {
            cases.push(case(dtype, [m, k], n));
        }
    }
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
        for pick in
            [Pick::Above(0.5), Pick::NotBelow(-0.5), Pick::Above(1.0), Pick::NotBelow(f32::NEG_INFINITY)]
        {
            for n in [1, 4] {
                cases.push(Case::new(format!("{dtype} weights, {n} rows, scores {pick:?}"), |g, _| {
                    let w = g.weight("w", dtype, &[96, 50], Role::Other);
                    let h = g.input("h", DType::F32, &[50, n]);
                    let scores = g.input("scores", DType::F32, &[50, n]);
                    g.mul_mat_t(w, h, Some((scores, pick)));
                }));
            }
        }
        for n in [1, 3] {
            cases.push(Case::new(format!("{dtype} weights, {n} rows of which half are zeros"), |g, _| {
                let w = g.weight("w", dtype, &[128, 75], Role::Other);
                let h = g.input("h", DType::F32, &[75, n]);
                let h = g.relu(h);
                g.mul_mat_t(w, h, None);
            }));
        }
    }
    cases.push(Case::new("a part of longer rows of h", |g, _| {
        let w = g.weight("w", DType::Q4_0, &[64, 24], Role::Other);
        let h = g.input("h", DType::F32, &[48, 3]);
        let h = g.slice(h, 0, 16, 24);
        g.mul_mat_t(w, h, None);
    }));
    cases
}

fn case(dtype: DType, w: [u64; 2], n: u64) -> Case {
    Case::new(format!("{dtype} weights {w:?}, {n} rows"), |g, _| {
        let h = g.input("h", DType::F32, &[w[1], n]);
        let w = g.weight("w", dtype, &w, Role::Other);
        g.mul_mat_t(w, h, None);
    })
}
