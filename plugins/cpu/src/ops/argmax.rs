//! y = index of the largest element of each row; of equal ones the first. NaN counts as less than every number.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, elementwise};
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let [n, ne1, ne2, ne3] = check::any_floats(node, 0)?.ne();
    ensure((n > 0 || [ne1, ne2, ne3].contains(&0)) && n <= i32::MAX as usize, Reason::Shape)?;
    check::result(node, DType::I32, [ne1, ne2, ne3, 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let x = a.arg(0);
    for ([row, ..], y) in out.reshaped([1, x.n_rows(), 1, 1]).rows() {
        let id = argmax(elementwise::read(w.isa, x, x.unravel(row), 0..x.ne[0], &mut w.scratch.rows));
        y.bytes().copy_from_slice(&(id as i32).to_ne_bytes());
    }
}

fn argmax(row: &[f32]) -> usize {
    let (mut id, mut largest) = (0, f32::NAN);
    for (i, &v) in row.iter().enumerate() {
        if v > largest || (largest.is_nan() && !v.is_nan()) {
            (id, largest) = (i, v);
        }
    }
    id
}
