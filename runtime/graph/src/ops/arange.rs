//! y[i] = start + step · i, as many as are before stop: ceil((stop - start) / step), as ggml's arange.
//!
//! Result: F32 [ceil((stop - start) / step)], at least one element.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::ArangeParams};

impl Graph {
    /// The numbers from `start` on, `step` apart, before `stop`.
    pub fn arange(&mut self, start: f32, stop: f32, step: f32) -> Tensor {
        self.push(Op::Arange, &[], &ArangeParams { start, stop, step }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(_src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(ArangeParams::from_bytes(params))?;
    let n = count(&p);
    match (1.0..=u32::MAX as f32).contains(&n) {
        true => Ok((DType::F32, [n as u64, 1, 1, 1])),
        false => Err(format!("{} to {} in steps of {} is no series", p.start, p.stop, p.step)),
    }
}

/// How many numbers; NaN, infinite or not positive if they are none.
fn count(p: &ArangeParams) -> f32 {
    ((p.stop - p.start) / p.step).ceil()
}

fn reference(_src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = ArangeParams::from_bytes(params).unwrap_or_default();
    let n = count(&p) as u64;
    Value::f32([n, 1, 1, 1], (0..n).map(|i| p.start + p.step * i as f32).collect())
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (start, stop, step) in [
        (0.0, 10.0, 1.0),
        (0.0, 1.0, 1.0),
        (0.0, 0.3, 1.0),
        (-3.5, 4.0, 0.25),
        (5.0, -5.0, -1.5),
        (0.0, 1048.0, 1.0),
        (0.0, 4999.5, 1.0),
        (2.0, 3.0, 0.001),
        (0.0, 1.0, 0.1),
    ] {
        cases.push(Case::new(format!("{start} to {stop} by {step}"), |g, _| {
            g.arange(start, stop, step);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::check;

    #[test]
    fn numbers_end_before_the_stop() {
        check(|g| g.arange(1.0, 2.0, 0.25), &[], &[1.0, 1.25, 1.5, 1.75]);
        check(|g| g.arange(1.0, 2.1, 0.5), &[], &[1.0, 1.5, 2.0]);
        check(|g| g.arange(2.0, 0.0, -1.0), &[], &[2.0, 1.0]);
    }

    #[test]
    fn what_is_no_series_is_refused() {
        for (start, stop, step) in [(0., 1., 0.), (1., 0., 1.), (0., f32::NAN, 1.), (0., 1., 1e-30)] {
            let mut g = Graph::new();
            g.arange(start, stop, step);
            assert!(g.finish().is_err(), "{start} {stop} {step}");
        }
    }
}
