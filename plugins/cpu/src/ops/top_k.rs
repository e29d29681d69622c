//! y = indices of the k largest values of each row, largest first; equal values keep the lower index first.
//! NaN counts as less than every number.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, elementwise};
use llmrt_plugin::abi::op::TopKParams;
use llmrt_plugin::{DType, NodeView, Reason};
use std::cmp::Ordering;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let k = check::params(TopKParams::from_bytes(node.params_bytes()))?.k as usize;
    let [n, ne1, ne2, ne3] = check::any_floats(node, 0)?.ne();
    ensure(k <= n && n <= i32::MAX as usize, Reason::Shape)?;
    check::result(node, DType::I32, [k, ne1, ne2, ne3])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let (x, k) = (a.arg(0), a.dst.ne[0]);
    for (at, y) in out.rows() {
        let x = elementwise::read(w.isa, x, at, 0..x.ne[0], &mut w.scratch.floats[0]);
        let ids = w.scratch.rows.take::<u32>(x.len());
        ids.iter_mut().enumerate().for_each(|(i, id)| *id = i as u32);
        let order = |a: &u32, b: &u32| largest_first(x[*a as usize], x[*b as usize]).then(a.cmp(b));
        if k < x.len() {
            ids.select_nth_unstable_by(k - 1, order);
        }
        ids[..k].sort_unstable_by(order);
        y.bytes().chunks_exact_mut(4).zip(&*ids).for_each(|(y, id)| y.copy_from_slice(&id.to_ne_bytes()));
    }
}

fn largest_first(a: f32, b: f32) -> Ordering {
    b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
