//! y = activation(gate) · up. One source holds both as halves of its rows.

use super::check::{self, Answer, ensure};
use super::{Args, Worker};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::abi::op::GluParams;
use llmrt_plugin::{DType, NodeView, Reason};

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(GluParams::from_bytes(node.params_bytes()))?;
    ensure(p.activation < 6 && p.swapped < 2, Reason::Param)?;
    let gate = check::floats(node, 0)?;
    let mut ne = gate.ne();
    match check::optional_floats(node, 1)? {
        Some(up) => ensure(up.ne() == ne, Reason::Shape)?,
        None => {
            ensure(ne[0] % 2 == 0, Reason::Shape)?;
            ne[0] /= 2;
        }
    }
    check::result(node, DType::F32, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    let p = a.params(GluParams::from_bytes);
    let n = a.dst.ne[0];
    for (row, part) in w.pieces(&a.dst) {
        let at = a.dst.unravel(row);
        let first = a.arg(0).row(at);
        let (gate, up) = match &a.src[1] {
            Some(up) => (first, up.row(at)),
            None if p.swapped == 1 => (&first[n..], &first[..n]),
            None => (&first[..n], &first[n..]),
        };
        // SAFETY: pieces are disjoint.
        let y = unsafe { a.dst.part_mut(at, part.clone()) };
        gated(w.isa, p.activation, &gate[part.clone()], &up[part], y);
    }
}

dispatch! {
    fn gated(activation: u32, gate: &[f32], up: &[f32], y: &mut [f32]) = gated_with;
}

#[inline(always)]
fn gated_with<S: Simd>(s: S, activation: u32, gate: &[f32], up: &[f32], y: &mut [f32]) {
    // A macro: a function passed as an argument would not be sure to be inlined.
    macro_rules! map {
        ($f:path) => {{
            let (gates, gate_rest) = gate.as_chunks::<LANES>();
            let (ups, up_rest) = up.as_chunks::<LANES>();
            let (to, to_rest) = y.as_chunks_mut::<LANES>();
            for ((gate, up), y) in gates.iter().zip(ups).zip(to) {
                s.store(s.mul($f(s, s.load(gate)), s.load(up)), y);
            }
            if !gate_rest.is_empty() {
                s.store_part(s.mul($f(s, s.load_part(gate_rest)), s.load_part(up_rest)), to_rest);
            }
        }};
    }
    match activation {
        0 => map!(math::silu),
        1 => map!(math::gelu),
        2 => map!(math::relu),
        3 => map!(math::gelu_erf),
        4 => map!(math::sigmoid),
        _ => map!(math::gelu_quick),
    }
}
