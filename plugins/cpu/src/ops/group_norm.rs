//! y = (x - mean(x)) · rsqrt(mean((x - mean(x))²) + eps) over each group of ⌈c / n_groups⌉ channels of x [w, h, c, n].

use super::check::{self, Answer, ensure};
use super::{Args, Worker, layer_norm};
use llmrt_plugin::abi::op::GroupNormParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(GroupNormParams::from_bytes(node.params_bytes()))?;
    ensure(p.n_groups > 0, Reason::Param)?;
    check::result(node, DType::F32, check::floats(node, 0)?.ne())
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let p = a.params(GroupNormParams::from_bytes);
    let x = a.arg(0);
    let [n0, n1, c, n_images] = x.ne;
    let per_group = c.div_ceil(p.n_groups as usize);
    let n_groups = c.div_ceil(per_group); // those that have channels
    for i in w.share(n_groups * n_images) {
        let (image, first) = (i / n_groups, i % n_groups * per_group);
        let channels = first..c.min(first + per_group);
        let n = (n0 * n1 * channels.len()) as f64;
        let rows = || channels.clone().flat_map(|c| (0..n1).map(move |i1| [i1, c, image]));
        let mean = (rows().map(|at| layer_norm::sum(w.isa, x.row(at)) as f64).sum::<f64>() / n) as f32;
        let squares = rows().map(|at| layer_norm::sum_of_squares_about(w.isa, x.row(at), mean) as f64);
        let scale = ((squares.sum::<f64>() / n) as f32 + p.eps).sqrt().recip();
        for at in rows() {
            // SAFETY: groups are shared out.
            let y = unsafe { a.dst.row_mut(at) };
            y.iter_mut().zip(x.row(at)).for_each(|(y, x)| *y = (x - mean) * scale);
        }
    }
}
