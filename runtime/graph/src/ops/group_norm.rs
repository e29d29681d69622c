//! y = (x - mean(x)) · rsqrt(mean((x - mean(x))²) + eps) over each group of channels of x [w, h, c, n]. A group has
//! ⌈c / n_groups⌉ channels, the last ones fewer or none (ggml's `group_norm`).
//!
//! Result: F32 in the shape of x, which is F32.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::GroupNormParams};

impl Graph {
    /// `x` [w, h, c, n] with zero mean and unit variance in each of `n_groups` groups of channels.
    pub fn group_norm(&mut self, x: Tensor, n_groups: u32, eps: f32) -> Tensor {
        self.push(Op::GroupNorm, &[Some(x)], &GroupNormParams { n_groups, eps }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(GroupNormParams::from_bytes(params))?;
    if p.n_groups == 0 {
        return Err("n_groups is 0, expected at least 1".into());
    }
    Ok((DType::F32, check::floats(src, 0, "x")?.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = GroupNormParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let [channel, image] = [x.ne[0] * x.ne[1], x.ne[0] * x.ne[1] * x.ne[2]].map(|n| n as usize);
    let per_group = x.ne[2].div_ceil(p.n_groups.into()) as usize;
    let mut y = vec![];
    for image in x.floats().chunks_exact(image) {
        for group in image.chunks(per_group * channel) {
            let n = group.len() as f64;
            let mean = group.iter().map(|&v| v as f64).sum::<f64>() / n;
            let variance = group.iter().map(|&v| (v as f64 - mean).powi(2)).sum::<f64>() / n;
            let scale = (variance as f32 + p.eps).sqrt().recip();
            y.extend(group.iter().map(|v| (v - mean as f32) * scale));
        }
    }
    Value::f32(x.ne, y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for ne in [[9, 9, 64, 1], [64, 64, 8, 1], [1, 1, 32, 3], [5, 3, 12, 2], [1030, 2, 4, 1], [2, 1, 7, 1]] {
        for n_groups in [1, 2, 3, 4, 32] {
            for eps in [1e-6, 1e-1] {
                cases.push(Case::new(format!("{ne:?} in {n_groups} groups, eps {eps}"), |g, _| {
                    let x = g.input("x", DType::F32, &ne);
                    g.group_norm(x, n_groups, eps);
                }));
            }
        }
    }
    for n_groups in [1, 3] {
        cases.push(Case::new(format!("a part of x in {n_groups} groups"), |g, _| {
            let x = g.input("x", DType::F32, &[20, 6, 9, 2]);
            let x = g.slice(x, 0, 3, 11);
            let x = g.slice(x, 1, 1, 4);
            let x = g.slice(x, 2, 2, 6);
            g.group_norm(x, n_groups, 1e-5);
        }));
        cases.push(Case::new(format!("channels and images swapped, {n_groups} groups"), |g, _| {
            let x = g.input("x", DType::F32, &[8, 4, 2, 6]);
            let x = g.permute(x, [0, 1, 3, 2]);
            g.group_norm(x, n_groups, 1e-5);
        }));
    }
    cases
}
