//! y = x · rsqrt(mean(x²) + eps) · w, over rows; w may be left out.
//!
//! Result: F32 in the shape of x, which is F32; w is F32 [n].

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::NormParams};

impl Graph {
    /// Root-mean-square norm of the rows of `x`, times `w` (a row) if given.
    pub fn rms_norm(&mut self, x: Tensor, w: impl Into<Option<Tensor>>, eps: f32) -> Tensor {
        let params = NormParams { eps }.to_bytes();
        match w.into() {
            Some(w) => self.push(Op::RmsNorm, &[Some(x), Some(w)], &params),
            None => self.push(Op::RmsNorm, &[Some(x)], &params),
        }
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(NormParams::from_bytes(params))?;
    let x = check::floats(src, 0, "x")?;
    if let Some(w) = check::optional_floats(src, 1, "weight")? {
        check::vector(w, x.ne[0], "weight")?;
    }
    Ok((DType::F32, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let eps = NormParams::from_bytes(params).unwrap_or_default().eps;
    let (x, w) = (check::arg(src, 0), check::optional_arg(src, 1));
    let mut y = Vec::with_capacity(x.floats().len());
    for i in 0..x.n_rows() {
        let row = x.row(i);
        let mean_sq = row.iter().map(|&v| v as f64 * v as f64).sum::<f64>() / row.len() as f64;
        let scale = (mean_sq as f32 + eps).sqrt().recip();
        match w {
            Some(w) => y.extend(row.iter().zip(w.floats()).map(|(x, w)| x * scale * w)),
            None => y.extend(row.iter().map(|x| x * scale)),
        }
    }
    Value::f32(x.ne, y)
}

/// The norm alone, then a product with the weight.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let (x, w) = (node.src[0]?, node.src.get(1).copied().flatten()?);
    let eps = NormParams::from_bytes(&node.params)?.eps;
    let normed = g.rms_norm(x, None, eps);
    Some(g.mul(normed, w))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let shapes = [
        [64, 5, 4, 3],
        [1, 1, 1, 1],
        [1, 7, 2, 1],
        [15, 3, 1, 1],
        [16, 2, 1, 2],
        [33, 7, 1, 1],
        [1025, 3, 1, 1],
        [4096, 2, 1, 1],
        [8191, 1, 1, 1],
    ];
    for ne in shapes {
        for eps in [0.0, 1e-6, 0.1, 10.0] {
            for weight in [false, true] {
                cases.push(Case::new(format!("rows of {ne:?}, weight {weight}, eps {eps}"), |g, _| {
                    let x = g.input("x", DType::F32, &ne);
                    let w = weight.then(|| g.weight("w", DType::F32, &ne[..1], Role::Norm));
                    g.rms_norm(x, w, eps);
                }));
            }
        }
    }
    for weight in [false, true] {
        cases.push(Case::new(format!("parts of rows, weight {weight}"), |g, _| {
            let x = g.input("x", DType::F32, &[96, 5, 2]);
            let part = g.slice(x, 0, 32, 64);
            let part = g.slice(part, 1, 1, 3);
            let w = weight.then(|| g.weight("w", DType::F32, &[64], Role::Norm));
            g.rms_norm(part, w, 1e-5);
        }));
        for axes in [[0, 2, 1, 3], [0, 3, 2, 1]] {
            cases.push(Case::new(format!("rows permuted by {axes:?}, weight {weight}"), |g, _| {
                let x = g.input("x", DType::F32, &[40, 4, 3, 2]);
                let x = g.permute(x, axes);
                let w = weight.then(|| g.weight("w", DType::F32, &[40], Role::Norm));
                g.rms_norm(x, w, 1e-5);
            }));
        }
    }
    cases.push(Case::new("heads of a fused projection", |g, _| {
        let qkv = g.input("qkv", DType::F32, &[3 * 96, 4]);
        let k = g.slice(qkv, 0, 96, 96);
        let k = g.split_heads(k, 3);
        let w = g.weight("w", DType::F32, &[32], Role::Norm);
        g.rms_norm(k, w, 1e-6);
    }));
    cases.push(Case::new("large numbers", |g, _| {
        let x = g.input("x", DType::F32, &[70, 3]);
        let x = g.scale(x, 1e15);
        g.rms_norm(x, None, 1e-5);
    }));
    cases
}
