//! y = x · rsqrt(mean(x²) + eps) · w, over rows; w may be left out.

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
    for ne in [[64, 5, 4, 3], [1, 1, 1, 1], [33, 7, 1, 1], [4096, 2, 1, 1]] {
        for eps in [0.0, 1e-6, 0.1] {
            cases.push(Case::new(format!("rows of {} without weight, eps {eps}", ne[0]), |g, _| {
                let x = g.input("x", DType::F32, &ne);
                g.rms_norm(x, None, eps);
            }));
        }
        cases.push(Case::new(format!("rows of {} with weight", ne[0]), |g, _| {
            let x = g.input("x", DType::F32, &ne);
            let w = g.weight("w", DType::F32, &ne[..1], Role::Norm);
            g.rms_norm(x, w, 1e-5);
        }));
    }
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[96, 5]);
        let part = g.slice(x, 0, 32, 64);
        g.rms_norm(part, None, 1e-5);
    }));
    cases
}
