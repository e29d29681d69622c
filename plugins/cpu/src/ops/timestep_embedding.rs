//! y[j, i] = cos(t[i] · f_j), y[half + j, i] = sin(t[i] · f_j), f_j = exp(-ln(max_period) · j / half).

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker};
use llmrt_plugin::abi::op::TimestepEmbeddingParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(TimestepEmbeddingParams::from_bytes(node.params_bytes()))?;
    ensure(p.max_period > 0, Reason::Param)?;
    let t = check::floats(node, 0)?;
    let n = t.ne()[0];
    check::vector(&t, n)?;
    check::result(node, DType::F32, [p.dim as usize, n, 1, 1])
}

pub fn compute(_: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(TimestepEmbeddingParams::from_bytes);
    let (times, half) = (a.arg(0).row([0; 3]), p.dim as usize / 2);
    let slope = -(p.max_period as f32).ln();
    for ([row, ..], part, y) in out.pieces() {
        let angle = |j: usize| times[row] * (slope * j as f32 / half as f32).exp();
        for (j, y) in part.zip(y.floats()) {
            *y = match j {
                _ if j < half => angle(j).cos(),
                _ if j < 2 * half => angle(j - half).sin(),
                _ => 0.0,
            };
        }
    }
}
