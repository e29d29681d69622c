//! y = activation(gate) · up. One source holds both as halves of its rows.

use super::{Inferred, Rules, case::Case, check, unary, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::GluParams};

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
            Activation::Silu => unary::silu(x),
            Activation::Gelu => unary::gelu(x),
            Activation::Relu => unary::relu(x),
            Activation::GeluErf => unary::gelu_erf(x),
            Activation::Sigmoid => unary::sigmoid(x),
            Activation::GeluQuick => unary::gelu_quick(x),
        }
    }
}

impl Graph {
    /// activation(gate) · up. Without `up`, the first half of `gate`'s rows is the gate and the second is up.
    pub fn glu(&mut self, activation: Activation, gate: Tensor, up: Option<Tensor>) -> Tensor {
        let params =
            GluParams { activation: activation as u32, swapped: 0, ..GluParams::default() }.to_bytes();
        match up {
            Some(up) => self.push(Op::Glu, &[Some(gate), Some(up)], &params),
            None => self.push(Op::Glu, &[Some(gate)], &params),
        }
    }

    /// As [`Graph::glu`] of one tensor, with up in the first half and the gate in the second.
    pub fn glu_swapped(&mut self, activation: Activation, up_gate: Tensor) -> Tensor {
        let params = GluParams { activation: activation as u32, swapped: 1, ..GluParams::default() };
        self.push(Op::Glu, &[Some(up_gate)], &params.to_bytes())
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

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(GluParams::from_bytes(params))?;
    if Activation::from_id(p.activation).is_none() || p.swapped > 1 {
        return Err(format!("activation {} with swapped {} is unknown", p.activation, p.swapped));
    }
    let gate = check::floats(src, 0, "gate")?;
    match check::optional_floats(src, 1, "up")? {
        Some(up) if up.ne == gate.ne => Ok((DType::F32, gate.ne)),
        Some(up) => Err(format!("gate {:?} and up {:?} differ", gate.ne, up.ne)),
        None if gate.ne[0] % 2 == 0 => Ok((DType::F32, [gate.ne[0] / 2, gate.ne[1], gate.ne[2], gate.ne[3]])),
        None => Err(format!("rows of {} have no halves", gate.ne[0])),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = GluParams::from_bytes(params).unwrap_or_default();
    let f = Activation::from_id(p.activation).unwrap_or(Activation::Silu);
    let gate = check::arg(src, 0);
    let gated = |(g, u): (&f32, &f32)| f.apply(*g) * u;
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

/// The halves as views, the activation of the gate, a product.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = GluParams::from_bytes(&node.params)?;
    let activation = Activation::from_id(p.activation)?;
    let both = node.src[0]?;
    let (gate, up) = match node.src.get(1).copied().flatten() {
        Some(up) => (both, up),
        None => {
            let n = g.ne(both)[0] / 2;
            let (first, second) = (g.slice(both, 0, 0, n), g.slice(both, 0, n, n));
            if p.swapped == 1 { (second, first) } else { (first, second) }
        }
    };
    let gate = g.activation(activation, gate);
    Some(g.mul(gate, up))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for f in Activation::ALL {
        cases.push(Case::new(format!("{f:?}, gate and up apart"), |g, _| {
            let gate = g.input("gate", DType::F32, &[65, 3, 2]);
            let up = g.input("up", DType::F32, &[65, 3, 2]);
            g.glu(f, gate, Some(up));
        }));
        cases.push(Case::new(format!("{f:?}, gate then up in one row"), |g, _| {
            let both = g.input("gate_up", DType::F32, &[130, 3, 2]);
            g.glu(f, both, None);
        }));
        cases.push(Case::new(format!("{f:?}, up then gate in one row"), |g, _| {
            let both = g.input("up_gate", DType::F32, &[128, 3]);
            g.glu_swapped(f, both);
        }));
    }
    cases.push(Case::new("strided gate and up", |g, _| {
        let both = g.input("both", DType::F32, &[50, 4]);
        let (gate, up) = (g.slice(both, 0, 3, 20), g.slice(both, 0, 29, 20));
        g.glu(Activation::Silu, gate, Some(up));
    }));
    cases
}
