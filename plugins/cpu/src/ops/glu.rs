//! y = activation(gate) · up, or gpt-oss's form of it. One source holds both as halves of its rows. Computed in f32.

use super::check::{self, Answer, ensure};
use super::elementwise::{flattened, read, write};
use super::{Args, Output, Worker};
use crate::simd::{LANES, Simd, dispatch, math};
use llmrt_plugin::abi::op::GluParams;
use llmrt_plugin::{NodeView, Reason};

/// The number of gpt-oss's form.
const GPT_OSS: u32 = 6;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(GluParams::from_bytes(node.params_bytes()))?;
    ensure(p.activation <= GPT_OSS && p.swapped < 2, Reason::Param)?;
    let gate = check::numbers(node, 0)?;
    let mut ne = gate.ne();
    if node.src(1).is_some() {
        let up = check::numbers(node, 1)?;
        ensure(up.dtype() == gate.dtype(), Reason::Type)?;
        ensure(up.ne() == ne, Reason::Shape)?;
    } else {
        ensure(ne[0].is_multiple_of(2), Reason::Shape)?;
        ne[0] /= 2;
    }
    check::result(node, gate.dtype().ok_or(Reason::Type)?, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(GluParams::from_bytes);
    let (isa, n, first) = (w.isa, a.dst.ne[0], *a.arg(0));
    // Gate and up, the result, and the elements at which gate and up start in their rows.
    let (([gate, up], out), [gate_start, up_start]) = match &a.src[1] {
        Some(up) => (flattened([&first, up], out), [0, 0]),
        None if p.swapped == 1 => (([first, first], out), [n, 0]),
        None => (([first, first], out), [0, n]),
    };
    let in_place = gate.has_f32_rows() && up.has_f32_rows();
    for (at, part, y) in out.pieces() {
        let [in_gate, in_up] = [gate_start, up_start].map(|start| start + part.start..start + part.end);
        if in_place {
            let y = y.floats();
            gated(isa, &p, &gate.row(at)[in_gate], &up.row(at)[in_up], y);
            continue;
        }
        let [of_gate, of_up, of_y, ..] = &mut w.scratch.floats;
        let gates = read(isa, &gate, at, in_gate, of_gate);
        let ups = read(isa, &up, at, in_up, of_up);
        write(isa, y, of_y, |y| gated(isa, &p, gates, ups, y));
    }
}

dispatch! {
    fn gated(p: &GluParams, gate: &[f32], up: &[f32], y: &mut [f32]) = gated_with;
}

#[inline(always)]
fn gated_with<S: Simd>(s: S, p: &GluParams, gate: &[f32], up: &[f32], y: &mut [f32]) {
    // A macro: a function passed as an argument would not be sure to be inlined.
    macro_rules! map {
        (|$gate:ident, $up:ident| $y:expr) => {{
            let (gates, gate_rest) = gate.as_chunks::<LANES>();
            let (ups, up_rest) = up.as_chunks::<LANES>();
            let (to, to_rest) = y.as_chunks_mut::<LANES>();
            for ((gate, up), y) in gates.iter().zip(ups).zip(to) {
                let ($gate, $up) = (s.load(gate), s.load(up));
                s.store($y, y);
            }
            if !gate_rest.is_empty() {
                let ($gate, $up) = (s.load_part(gate_rest), s.load_part(up_rest));
                s.store_part($y, to_rest);
            }
        }};
    }
    match p.activation {
        0 => map!(|g, u| s.mul(math::silu(s, g), u)),
        1 => map!(|g, u| s.mul(math::gelu(s, g), u)),
        2 => map!(|g, u| s.mul(math::relu(s, g), u)),
        3 => map!(|g, u| s.mul(math::gelu_erf(s, g), u)),
        4 => map!(|g, u| s.mul(math::sigmoid(s, g), u)),
        5 => map!(|g, u| s.mul(math::gelu_quick(s, g), u)),
        _ => map!(|g, u| gpt_oss(s, p.alpha, p.limit, g, u)),
    }
}

/// g · sigmoid(alpha · g) · (u + 1) with g at most `limit` and u within plus and minus it.
#[inline(always)]
fn gpt_oss<S: Simd>(s: S, alpha: f32, limit: f32, gate: S::F, up: S::F) -> S::F {
    let (low, high) = (s.splat(-limit), s.splat(limit));
    let gate = s.above(gate, high, high, gate);
    let up = s.max(s.above(up, high, high, up), low);
    let share = math::sigmoid(s, s.mul(gate, s.splat(alpha)));
    s.mul(s.mul(gate, share), s.add(up, s.splat(1.0)))
}
