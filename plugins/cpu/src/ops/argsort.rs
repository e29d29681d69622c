//! y = indices that sort each row: smallest or largest first; equal elements keep the lower index first, NaN comes last.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, elementwise};
use llmrt_plugin::abi::op::ArgsortParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(ArgsortParams::from_bytes(node.params_bytes()))?;
    ensure(p.descending < 2, Reason::Param)?;
    let ne = check::any_floats(node, 0)?.ne();
    ensure(ne[0] <= i32::MAX as usize, Reason::Shape)?;
    check::result(node, DType::I32, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let descending = a.params(ArgsortParams::from_bytes).descending == 1;
    let x = a.arg(0);
    for (at, y) in out.rows() {
        let x = elementwise::read(w.isa, x, at, 0..x.ne[0], &mut w.scratch.floats[0]);
        let ids = w.scratch.rows.take::<u32>(x.len());
        ids.iter_mut().enumerate().for_each(|(i, id)| *id = i as u32);
        ids.sort_unstable_by(|&i, &j| {
            let (a, b) = (x[i as usize], x[j as usize]);
            let (first, second) = if descending { (b, a) } else { (a, b) };
            first.partial_cmp(&second).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())).then(i.cmp(&j))
        });
        y.bytes().chunks_exact_mut(4).zip(&*ids).for_each(|(y, id)| y.copy_from_slice(&id.to_ne_bytes()));
    }
}
