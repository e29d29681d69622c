//! y = activation(gate) · up; gpt-oss: y = g · sigmoid(alpha · g) · (u + 1) with g = min(gate, limit) and u = up within
//! ±limit. One source holds both as halves of its rows. Computed in f32. Semantics: ggml's glu.
//!
//! Result: dtype of the gate (F32, F16 or BF16) and its shape; with one source half of its rows.

use super::{Inferred, Rules, activations, check, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::GluParams};

#[path = "glu_cases.rs"]
mod glu_cases;

/// The number of gpt-oss's form, which is no activation alone.
const GPT_OSS: u32 = 6;

/// What a gate goes through.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Activation {
    /// x · sigmoid(x): SwiGLU.
    Silu = 0,
    /// gelu in its tanh form: GeGLU.
    Gelu = 1,
    /// max(x, 0): ReGLU.
    Relu = 2,
    /// gelu with the error function.
    GeluErf = 3,
    /// 1 / (1 + exp(-x)).
    Sigmoid = 4,
    /// x · sigmoid(1.702 x).
    GeluQuick = 5,
}

impl Activation {
    /// All, in the order of their numbers.
    pub const ALL: [Activation; 6] = [
        Activation::Silu,
        Activation::Gelu,
        Activation::Relu,
        Activation::GeluErf,
        Activation::Sigmoid,
        Activation::GeluQuick,
    ];

    /// The activation with this number.
    pub fn from_id(id: u32) -> Option<Activation> {
        Activation::ALL.get(id as usize).copied()
    }

    /// The activation of one number.
    pub fn apply(self, x: f32) -> f32 {
        match self {
            Activation::Silu => activations::silu(x),
            Activation::Gelu => activations::gelu(x),
            Activation::Relu => activations::relu(x),
            Activation::GeluErf => activations::gelu_erf(x),
            Activation::Sigmoid => activations::sigmoid(x),
            Activation::GeluQuick => activations::gelu_quick(x),
        }
    }
}

impl Graph {
    /// activation(gate) · up. Without `up`, the first half of `gate`'s rows is the gate and the second is up.
    pub fn glu(&mut self, activation: Activation, gate: Tensor, up: Option<Tensor>) -> Tensor {
        self.glu_of(GluParams { activation: activation as u32, ..Default::default() }, gate, up)
    }

    /// As [`Graph::glu`] of one tensor, with up in the first half and the gate in the second.
    pub fn glu_swapped(&mut self, activation: Activation, up_gate: Tensor) -> Tensor {
        self.glu_of(
            GluParams { activation: activation as u32, swapped: 1, ..Default::default() },
            up_gate,
            None,
        )
    }

    /// gpt-oss: g · sigmoid(alpha · g) · (u + 1), g = min(gate, limit), u = up within plus and minus `limit`.
    /// Without `up`, the first half of `gate`'s rows is the gate and the second is up.
    pub fn swiglu_oai(&mut self, gate: Tensor, up: Option<Tensor>, alpha: f32, limit: f32) -> Tensor {
        self.glu_of(GluParams { activation: GPT_OSS, swapped: 0, alpha, limit }, gate, up)
    }

    fn glu_of(&mut self, p: GluParams, gate: Tensor, up: Option<Tensor>) -> Tensor {
        match up {
            Some(up) => self.push(Op::Glu, &[Some(gate), Some(up)], &p.to_bytes()),
            None => self.push(Op::Glu, &[Some(gate)], &p.to_bytes()),
        }
    }

    /// The activation alone.
    pub fn activation(&mut self, activation: Activation, x: Tensor) -> Tensor {
        match activation {
            Activation::Silu => self.silu(x),
            Activation::Gelu => self.gelu(x),
            Activation::Relu => self.relu(x),
            Activation::GeluErf => self.gelu_erf(x),
            Activation::Sigmoid => self.sigmoid(x),
            Activation::GeluQuick => self.gelu_quick(x),
        }
    }
}

pub(super) const RULES: Rules =
    Rules { infer, reference, decompose: Some(decompose), cases: glu_cases::cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(GluParams::from_bytes(params))?;
    if p.activation > GPT_OSS || p.swapped > 1 {
        return Err(format!("activation {} with swapped {} is unknown", p.activation, p.swapped));
    }
    let gate = check::numbers(src, 0, "gate")?;
    let ne = gate.ne;
    if src.get(1).copied().flatten().is_none() {
        return match ne[0].is_multiple_of(2) {
            true => Ok((gate.dtype, [ne[0] / 2, ne[1], ne[2], ne[3]])),
            false => Err(format!("rows of {} have no halves", ne[0])),
        };
    }
    let up = check::numbers(src, 1, "up")?;
    match (up.dtype, up.ne) == (gate.dtype, ne) {
        true => Ok((gate.dtype, ne)),
        false => Err(format!("gate {} {ne:?} and up {} {:?} differ", gate.dtype, up.dtype, up.ne)),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = GluParams::from_bytes(params).unwrap_or_default();
    let gate = check::arg(src, 0);
    let gated = |(g, u): (&f32, &f32)| gated(&p, *g, *u);
    if let Some(up) = check::optional_arg(src, 1) {
        return Value::f32(gate.ne, gate.floats().iter().zip(up.floats()).map(gated).collect());
    }
    let mut y = Vec::with_capacity(gate.floats().len() / 2);
    for i in 0..gate.n_rows() {
        let (first, second) = gate.row(i).split_at(gate.ne[0] as usize / 2);
        let (gate, up) = if p.swapped == 1 { (second, first) } else { (first, second) };
        y.extend(gate.iter().zip(up).map(gated));
    }
    Value::f32([gate.ne[0] / 2, gate.ne[1], gate.ne[2], gate.ne[3]], y)
}

fn gated(p: &GluParams, gate: f32, up: f32) -> f32 {
    match Activation::from_id(p.activation) {
        Some(f) => f.apply(gate) * up,
        None => {
            let (gate, up) = (gate.min(p.limit), up.min(p.limit).max(-p.limit));
            gate * activations::sigmoid(p.alpha * gate) * (up + 1.0)
        }
    }
}

/// The halves as views, the activation of the gate, a product. F32 alone: results in between are rounded.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = GluParams::from_bytes(&node.params)?;
    let both = node.src[0]?;
    if g.def(both).dtype != DType::F32 {
        return None;
    }
    let (gate, up) = match node.src.get(1).copied().flatten() {
        Some(up) => (both, up),
        None => {
            let n = g.ne(both)[0] / 2;
            let (first, second) = (g.slice(both, 0, 0, n), g.slice(both, 0, n, n));
            if p.swapped == 1 { (second, first) } else { (first, second) }
        }
    };
    if let Some(activation) = Activation::from_id(p.activation) {
        let gate = g.activation(activation, gate);
        return Some(g.mul(gate, up));
    }
    let gate = g.clamp(gate, f32::NEG_INFINITY, p.limit);
    let share = g.scale(gate, p.alpha);
    let share = g.sigmoid(share);
    let gate = g.mul(gate, share);
    let up = g.clamp(up, -p.limit, p.limit);
    let up = g.scale_bias(up, 1.0, 1.0);
    Some(g.mul(gate, up))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn gpt_oss_bounds_gate_and_up_and_adds_one() {
        // Numbers of ggml's CPU.
        let x = [-30., -4., -1.5, -0.5, 0., 0.1, 1.5, 4., 25.];
        let y = [
            0.,
            0.013_244_17,
            0.054_168_902,
            -0.074_805_78,
            0.,
            0.059_669_24,
            3.479_155_5,
            19.977_924,
            55.999_626,
        ];
        let build = |g: &mut Graph| {
            let (gate, up) = (g.input("gate", DType::F32, &[9]), g.input("up", DType::F32, &[9]));
            g.swiglu_oai(gate, Some(up), 1.702, 7.0)
        };
        check(build, &[("gate", floats(&x)), ("up", floats(&x))], &y);
    }
}
