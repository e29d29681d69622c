//! y[j, i] = cos(t[i] · f_j), y[half + j, i] = sin(t[i] · f_j), half = dim div 2, f_j = exp(-ln(max_period) · j / half);
//! the last of an odd number of elements is 0. As ggml's timestep_embedding.
//!
//! Result: F32 [dim, n] of t F32 [n].

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::TimestepEmbeddingParams};

impl Graph {
    /// Embeddings [dim, n] of the times `t` [n].
    pub fn timestep_embedding(&mut self, t: Tensor, dim: u32, max_period: u32) -> Tensor {
        let p = TimestepEmbeddingParams { dim, max_period };
        self.push(Op::TimestepEmbedding, &[Some(t)], &p.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(TimestepEmbeddingParams::from_bytes(params))?;
    let t = check::floats(src, 0, "t")?;
    check::vector(t, t.ne[0], "t")?;
    if p.max_period == 0 {
        return Err("max_period is 0, expected at least 1".to_string());
    }
    Ok((DType::F32, [p.dim as u64, t.ne[0], 1, 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = TimestepEmbeddingParams::from_bytes(params).unwrap_or_default();
    let t = check::arg(src, 0);
    let half = p.dim / 2;
    let frequency = |j: u32| (-(p.max_period as f32).ln() * j as f32 / half as f32).exp();
    let mut y = vec![];
    for &t in t.floats() {
        y.extend((0..half).map(|j| (t * frequency(j)).cos()));
        y.extend((0..half).map(|j| (t * frequency(j)).sin()));
        y.extend((p.dim % 2 == 1).then_some(0.0));
    }
    Value::f32([p.dim as u64, t.ne[0], 1, 1], y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dim in [1, 2, 15, 16, 320, 1281] {
        for max_period in [1, 100, 10_000] {
            for n in [1, 4, 33] {
                let name = format!("{n} times in {dim} numbers, period up to {max_period}");
                cases.push(Case::new(name, |g, _| {
                    let t = g.input("t", DType::F32, &[n]);
                    let t = g.scale_bias(t, 500.0, 500.0);
                    g.timestep_embedding(t, dim, max_period);
                }));
            }
        }
    }
    cases.push(Case::new("a slice of times", |g, _| {
        let t = g.input("t", DType::F32, &[9]);
        let t = g.slice(t, 0, 3, 4);
        g.timestep_embedding(t, 12, 1000);
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    #[test]
    fn cosines_come_before_sines() {
        let build = |g: &mut Graph| {
            let t = g.input("t", DType::F32, &[2]);
            g.timestep_embedding(t, 5, 10_000)
        };
        check(
            build,
            &[("t", floats(&[0., 3.]))],
            &[1., 1., 0., 0., 0., -0.989_992_5, 0.999_55, 0.141_120_01, 0.029_995_5, 0.],
        );
    }
}
