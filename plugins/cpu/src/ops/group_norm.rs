//! y = (x - mean(x)) · rsqrt(mean((x - mean(x))²) + eps) over each group of ⌈c / n_groups⌉ channels of x [w, h, c, n].

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, layer_norm};
use llmrt_plugin::abi::op::GroupNormParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(GroupNormParams::from_bytes(node.params_bytes()))?;
    ensure(p.n_groups > 0, Reason::Param)?;
    check::result(node, DType::F32, check::floats(node, 0)?.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(GroupNormParams::from_bytes);
    let x = a.arg(0);
    let [n0, n1, c, _] = x.ne;
    for mut y in out.tiles([n0, n1, c.div_ceil(p.n_groups as usize), 1]) {
        let [_, _, channels, image] = y.dims();
        let image = image.start;
        let n = (n0 * n1 * channels.len()) as f64;
        let rows = || channels.clone().flat_map(|c| (0..n1).map(move |i1| [i1, c, image]));
        let mean = (rows().map(|at| layer_norm::sum(w.isa, x.row(at)) as f64).sum::<f64>() / n) as f32;
        let squares = rows().map(|at| layer_norm::sum_of_squares_about(w.isa, x.row(at), mean) as f64);
        let scale = ((squares.sum::<f64>() / n) as f32 + p.eps).sqrt().recip();
        for at in rows() {
            y.row(at).iter_mut().zip(x.row(at)).for_each(|(y, x)| *y = (x - mean) * scale);
        }
    }
}
