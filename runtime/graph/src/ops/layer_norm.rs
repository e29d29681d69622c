//! y = (x - mean(x)) · rsqrt(mean((x - mean(x))²) + eps) · w + b, over rows; w and b may be left out.
//!
//! Result: F32 in the shape of x, which is F32; w and b are F32 [n].

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::NormParams};

impl Graph {
    /// Layer norm of the rows of `x`, times `w`, plus `b` (rows) if given.
    pub fn layer_norm(
        &mut self,
        x: Tensor,
        w: impl Into<Option<Tensor>>,
        b: impl Into<Option<Tensor>>,
        eps: f32,
    ) -> Tensor {
        self.push(Op::LayerNorm, &[Some(x), w.into(), b.into()], &NormParams { eps }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(NormParams::from_bytes(params))?;
    let x = check::floats(src, 0, "x")?;
    for (i, what) in [(1, "weight"), (2, "bias")] {
        if let Some(row) = check::optional_floats(src, i, what)? {
            check::vector(row, x.ne[0], what)?;
        }
    }
    Ok((DType::F32, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let eps = NormParams::from_bytes(params).unwrap_or_default().eps;
    let x = check::arg(src, 0);
    let (w, b) = (check::optional_arg(src, 1), check::optional_arg(src, 2));
    let mut y = Vec::with_capacity(x.floats().len());
    for i in 0..x.n_rows() {
        let row = x.row(i);
        let mean = row.iter().map(|&v| v as f64).sum::<f64>() / row.len() as f64;
        let variance = row.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let scale = (variance as f32 + eps).sqrt().recip();
        y.extend(row.iter().enumerate().map(|(i, x)| {
            let normed = (x - mean as f32) * scale;
            normed * w.map_or(1.0, |w| w.floats()[i]) + b.map_or(0.0, |b| b.floats()[i])
        }));
    }
    Value::f32(x.ne, y)
}

/// The norm alone, then a product with the weight, then a sum with the bias.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let (x, w, b) = (node.src[0]?, node.src.get(1).copied().flatten(), node.src.get(2).copied().flatten());
    if w.is_none() && b.is_none() {
        return None;
    }
    let normed = g.layer_norm(x, None, None, NormParams::from_bytes(&node.params)?.eps);
    let scaled = w.map_or(normed, |w| g.mul(normed, w));
    Some(b.map_or(scaled, |b| g.add(scaled, b)))
}

fn cases() -> Vec<Case> {
    const OPERANDS: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];
    let mut cases = vec![];
    let shapes = [
        [64, 5, 4, 3],
        [1, 1, 1, 1],
        [2, 1, 1, 1],
        [15, 3, 1, 1],
        [16, 2, 1, 2],
        [33, 7, 1, 1],
        [1025, 3, 1, 1],
        [4096, 2, 1, 1],
    ];
    for ne in shapes {
        for eps in [1e-6, 1e-5, 0.1] {
            for (weight, bias) in OPERANDS {
                let name = format!("rows of {ne:?}, weight {weight}, bias {bias}, eps {eps}");
                cases.push(case(name, weight, bias, eps, |g| g.input("x", DType::F32, &ne)));
            }
        }
    }
    for (weight, bias) in OPERANDS {
        let name = format!("parts of rows, weight {weight}, bias {bias}");
        cases.push(case(name, weight, bias, 1e-6, |g| {
            let x = g.input("x", DType::F32, &[96, 5, 2]);
            let part = g.slice(x, 0, 32, 64);
            g.slice(part, 1, 1, 3)
        }));
        for axes in [[0, 2, 1, 3], [0, 3, 2, 1]] {
            let name = format!("rows permuted by {axes:?}, weight {weight}, bias {bias}");
            cases.push(case(name, weight, bias, 1e-5, |g| {
                let x = g.input("x", DType::F32, &[40, 4, 3, 2]);
                g.permute(x, axes)
            }));
        }
    }
    cases.push(case("numbers far from zero", true, true, 1e-5, |g| {
        let x = g.input("x", DType::F32, &[70, 3]);
        g.scale_bias(x, 1.0, 30.0)
    }));
    cases
}

fn case(
    name: impl Into<String>,
    weight: bool,
    bias: bool,
    eps: f32,
    x: impl FnOnce(&mut Graph) -> Tensor,
) -> Case {
    Case::new(name, |g, _| {
        let x = x(g);
        let n = g.ne(x)[0];
        let w = weight.then(|| g.weight("w", DType::F32, &[n], Role::Norm));
        let b = bias.then(|| g.weight("b", DType::F32, &[n], Role::Bias));
        g.layer_norm(x, w, b, eps);
    })
}
