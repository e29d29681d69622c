//! y = the router's weights of each token's chosen experts: softmax or sigmoid of the logits, picked by ids,
//! divided by their sum (at least 2⁻¹⁴) if `norm` is set, times a factor.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, soft_max::soft_max_row};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::abi::op::MoeWeightsParams;
use llmrt_plugin::{DType, NodeView, Reason};

const SOFT_MAX_THEN_PICK: u32 = 0;
const SIGMOID_THEN_PICK: u32 = 1;
const PICK_THEN_SOFT_MAX: u32 = 2;

/// What a sum is at least before it divides.
const SMALLEST_SUM: f32 = 6.103_515_6e-5;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(MoeWeightsParams::from_bytes(node.params_bytes()))?;
    ensure(p.gating <= PICK_THEN_SOFT_MAX && p.normalise < 2, Reason::Param)?;
    let (logits, ids) = (check::floats(node, 0)?.ne(), check::ints(node, 1)?.ne());
    ensure(logits[2..] == [1, 1] && ids[2..] == [1, 1] && logits[1] == ids[1], Reason::Shape)?;
    check::result(node, DType::F32, [1, ids[0], ids[1], 1])
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(MoeWeightsParams::from_bytes);
    let (logits, ids) = (a.arg(0), a.arg(1));
    let (n_expert, n_used) = (logits.ne[0], ids.ne[0]);
    for ([token, ..], y) in out.reshaped([n_used, ids.ne[1], 1, 1]).rows() {
        let (probs, picked) = w.scratch.rows.take::<f32>(n_expert + n_used).split_at_mut(n_expert);
        probs.copy_from_slice(logits.row([token, 0, 0]));
        match p.gating {
            SOFT_MAX_THEN_PICK => soft_max_row(w.isa, probs, None),
            SIGMOID_THEN_PICK => sigmoids(w.isa, probs),
            _ => {}
        }
        for (picked, &id) in picked.iter_mut().zip(ids.ints([token, 0, 0])) {
            *picked = usize::try_from(id).ok().and_then(|id| probs.get(id)).copied().unwrap_or(0.0);
        }
        if p.gating == PICK_THEN_SOFT_MAX {
            soft_max_row(w.isa, picked, None);
        }
        let divisor = if p.normalise == 1 { picked.iter().sum::<f32>().max(SMALLEST_SUM) } else { 1.0 };
        let factor = if p.scale == 0.0 { 1.0 } else { p.scale };
        y.floats().iter_mut().zip(picked).for_each(|(y, picked)| *y = *picked / divisor * factor);
    }
}

dispatch! {
    fn sigmoids(x: &mut [f32]) = sigmoids_with;
}

#[inline(always)]
fn sigmoids_with<S: Simd>(s: S, x: &mut [f32]) {
    let (vectors, rest) = x.as_chunks_mut::<LANES>();
    for v in vectors {
        s.store(math::sigmoid(s, s.load(v)), v);
    }
    s.store_part(math::sigmoid(s, s.load_part(rest)), rest);
}
