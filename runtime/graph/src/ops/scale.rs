//! y = x · scale + bias, computed in f32. Semantics: ggml's scale.
//!
//! Result: dtype (F32, F16 or BF16) and shape of x.

use super::operand::{Layout, NUMBERS, operand, rounding};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{Op, op::ScaleParams};

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
    let x = check::numbers(src, 0, "x")?;
    Ok((x.dtype, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let ScaleParams { scale, bias } = ScaleParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    Value::f32(x.ne, x.floats().iter().map(|x| x * scale + bias).collect())
}

fn cases() -> Vec<Case> {
    let case = |scale, bias, dtype, ne: [u64; 4], layout| {
        Case::new(format!("x · {scale} + {bias}, {dtype} {ne:?}, {layout:?}"), |g, _| {
            let x = operand(g, "x", dtype, ne, layout);
            g.scale_bias(x, scale, bias);
        })
        .nmse(rounding(dtype))
    };
    let mut cases = vec![];
    for dtype in NUMBERS {
        for (scale, bias) in [(2.0, 0.0), (-0.37, 0.0), (2.0, 1.0), (0.0, -3.5)] {
            for ne in
                [[10, 9, 3, 2], [1, 1, 1, 1], [1025, 5, 1, 1], [1, 33, 1, 1], [0, 3, 1, 1], [5, 0, 1, 2]]
            {
                cases.push(case(scale, bias, dtype, ne, Layout::Dense));
            }
            for layout in Layout::STRIDED {
                cases.push(case(scale, bias, dtype, [33, 5, 3, 2], layout));
            }
        }
    }
    cases
}
