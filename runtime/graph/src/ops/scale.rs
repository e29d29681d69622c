//! y = x · scale + bias.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::ScaleParams};

impl Graph {
    /// x · scale.
    pub fn scale(&mut self, x: Tensor, scale: f32) -> Tensor {
        self.scale_bias(x, scale, 0.0)
    }

    /// x · scale + bias.
    pub fn scale_bias(&mut self, x: Tensor, scale: f32, bias: f32) -> Tensor {
        self.push(Op::Scale, &[Some(x)], &ScaleParams { scale, bias }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(ScaleParams::from_bytes(params))?;
    Ok((DType::F32, check::floats(src, 0, "x")?.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let ScaleParams { scale, bias } = ScaleParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    Value::f32(x.ne, x.floats().iter().map(|x| x * scale + bias).collect())
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (scale, bias) in [(2.0, 0.0), (-0.37, 0.0), (2.0, 1.0), (0.0, -3.5)] {
        cases.push(Case::new(format!("x · {scale} + {bias}"), |g, _| {
            let x = g.input("x", DType::F32, &[10, 9, 3, 2]);
            g.scale_bias(x, scale, bias);
        }));
    }
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[30, 4]);
        let x = g.slice(x, 0, 7, 11);
        g.scale(x, 0.125);
    }));
    cases
}
