//! Which scores pass: what `mul_mat_sparse` and `mul_mat_t` compute depends on it.

use super::check;
use crate::graph::Graph;
use crate::tensor::Tensor;
use llmrt_abi::op::PickParams;

/// Which scores pass.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pick {
    /// Those that are not below this: equal ones and NaN pass.
    NotBelow(f32),
    /// Those above this: equal ones and NaN do not.
    Above(f32),
}

impl Pick {
    /// Whether a score passes.
    pub fn passes(self, score: f32) -> bool {
        match self {
            Pick::NotBelow(t) => score >= t || score.is_nan(),
            Pick::Above(t) => score > t,
        }
    }

    pub(super) fn bytes(self) -> [u8; PickParams::SIZE] {
        let (threshold, strict) = match self {
            Pick::NotBelow(t) => (t, 0),
            Pick::Above(t) => (t, 1),
        };
        PickParams { threshold, strict }.to_bytes()
    }

    /// The rule in a node's params, or what is wrong with them.
    pub(crate) fn read(params: &[u8]) -> Result<Pick, String> {
        let p = check::params(PickParams::from_bytes(params))?;
        match (p.strict, p.threshold) {
            (_, t) if t.is_nan() => Err("a threshold of NaN, expected a number".to_string()),
            (0, t) => Ok(Pick::NotBelow(t)),
            (1, t) => Ok(Pick::Above(t)),
            (strict, _) => Err(format!("strict is {strict}, expected 0 or 1")),
        }
    }
}

impl Graph {
    /// 1 where a score passes, else 0.
    pub(crate) fn passes(&mut self, scores: Tensor, pick: Pick) -> Tensor {
        match pick {
            Pick::Above(t) => {
                let above = self.scale_bias(scores, 1.0, -t);
                self.step(above)
            }
            Pick::NotBelow(t) => {
                let below = self.scale_bias(scores, -1.0, t);
                let below = self.step(below);
                self.scale_bias(below, -1.0, 1.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_scores_and_nan_pass_one_rule_and_not_the_other() {
        let passed =
            |pick: Pick| [-1.0, 0.5, 0.6, f32::NAN, f32::NEG_INFINITY].map(|score| pick.passes(score));
        assert_eq!(passed(Pick::NotBelow(0.5)), [false, true, true, true, false]);
        assert_eq!(passed(Pick::Above(0.5)), [false, false, true, false, false]);
        assert_eq!(passed(Pick::NotBelow(f32::NEG_INFINITY)), [true; 5]);
    }

    #[test]
    fn a_rule_survives_its_params_and_a_bad_one_is_refused() {
        for pick in [Pick::NotBelow(0.25), Pick::Above(-1.0)] {
            assert_eq!(Pick::read(&pick.bytes()), Ok(pick));
        }
        assert!(Pick::read(&Pick::Above(f32::NAN).bytes()).unwrap_err().contains("NaN"));
        let unknown = PickParams { threshold: 0.0, strict: 2 };
        assert!(Pick::read(&unknown.to_bytes()).unwrap_err().contains("strict"));
    }
}
