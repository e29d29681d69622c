//! y = 0 where |x| < t, else x: inputs of a product that count as zeros because they are small (TEAL, arXiv 2408.14690).
//!
//! Result: F32, shape of x. NaN stays.

use super::operand::{Layout, operand};
use super::{Inferred, Pick, Rules, case::Case, check, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::ThresholdParams};

impl Graph {
    /// x, with zeros for elements of a smaller magnitude than `threshold`.
    pub fn threshold(&mut self, x: Tensor, threshold: f32) -> Tensor {
        self.push(Op::Threshold, &[Some(x)], &ThresholdParams { threshold }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(ThresholdParams::from_bytes(params))?;
    if p.threshold.is_nan() {
        return Err("a threshold of NaN, expected a number".to_string());
    }
    let x = check::any_floats(src, 0, "x")?;
    Ok((DType::F32, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let ThresholdParams { threshold } = ThresholdParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let kept = |x: &f32| if x.abs() < threshold { 0.0 } else { *x };
    Value::f32(x.ne, x.floats().iter().map(kept).collect())
}

/// x times 1 or 0.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let x = (*node.src.first()?)?;
    let ThresholdParams { threshold } = ThresholdParams::from_bytes(&node.params)?;
    let size = g.abs(x);
    let passes = g.passes(size, Pick::NotBelow(threshold));
    Some(g.mul(x, passes))
}

fn cases() -> Vec<Case> {
    let case = |threshold, ne: [u64; 4], layout| {
        Case::new(format!("{ne:?} from {threshold} on, {layout:?}"), move |g, _| {
            let x = operand(g, "x", DType::F32, ne, layout);
            g.threshold(x, threshold);
        })
    };
    let mut cases = vec![];
    for threshold in [0.0, 0.3, 1e9, -1.0] {
        for ne in [[10, 9, 3, 2], [1, 1, 1, 1], [1025, 5, 1, 1], [1, 33, 1, 1]] {
            cases.push(case(threshold, ne, Layout::Dense));
        }
        for layout in Layout::STRIDED {
            cases.push(case(threshold, [33, 5, 3, 2], layout));
        }
    }
    cases
}
