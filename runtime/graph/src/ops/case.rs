//! A case: a small graph of one op with its operands, from which every plugin is tested.

use super::value::Value;
use crate::error::Result;
use crate::graph::Graph;
use crate::quant;
use crate::reference::Memory;
use crate::tensor::{Kind, Tensor};
use llmrt_abi::{DType, dtype::DTypeKind};

/// One op on chosen operands. The op under test is the last node; nodes before it prepare its operands.
pub struct Case {
    /// A sentence: what is special about the operands.
    pub name: String,
    /// The op under test is the last node.
    pub graph: Graph,
    /// Integer operands that must make sense (ids, positions, block tables): tensor and its values, which fit its dtype.
    pub ints: Vec<(Tensor, Vec<i32>)>,
    /// Largest normalised mean squared error that is right.
    pub nmse: f64,
}

impl Case {
    /// A case from a function that builds the graph and gives its integer operands.
    pub fn new(
        name: impl Into<String>,
        build: impl FnOnce(&mut Graph, &mut Vec<(Tensor, Vec<i32>)>),
    ) -> Case {
        let mut graph = Graph::new();
        let mut ints = Vec::new();
        build(&mut graph, &mut ints);
        Case { name: name.into(), graph, ints, nmse: 1e-7 }
    }

    /// With another limit of the normalised mean squared error.
    pub fn nmse(self, nmse: f64) -> Case {
        Case { nmse, ..self }
    }

    /// Values of all weights, inputs and states: `ints` as given, the others even in -1..1, encoded in their dtype;
    /// random blocks of about that size for a dtype that cannot be encoded. The same for the same seed, everywhere.
    pub fn values(&self, seed: u64) -> Result<Memory> {
        let mut memory = Memory::new();
        let mut uniform = uniform(seed);
        for (i, def) in self.graph.tensors.iter().enumerate().filter(|(_, def)| def.kind != Kind::Computed) {
            let t = Tensor(i as u32);
            let n = def.n_elems() as usize;
            let value = match self.ints.iter().find(|(of, _)| *of == t) {
                Some((_, ints)) => Value::i32(def.ne, ints.clone()),
                None if def.dtype.info().kind == DTypeKind::Int => Value::i32(def.ne, vec![0; n]),
                None if quant::can_encode(def.dtype) => Value::f32(def.ne, (&mut uniform).take(n).collect()),
                None => {
                    let blocks = (0..n / def.dtype.block_elems()).map(|_| block(def.dtype, &mut uniform));
                    memory.set_bytes(t, blocks.collect::<Vec<_>>().concat());
                    continue;
                }
            };
            memory.set(&self.graph, t, &value)?;
        }
        Ok(memory)
    }
}

/// Dtypes that weights of a file have: all that can be decoded, but those that only occur within computations.
pub(super) fn weight_dtypes() -> impl Iterator<Item = DType> {
    let within = [DType::F64, DType::Q8_1, DType::Q8_K];
    DType::ALL.iter().copied().filter(move |t| quant::is_supported(*t) && !within.contains(t))
}

/// Random bytes whose largest element is between 0.1 and 10.
fn block(dtype: DType, uniform: &mut impl Iterator<Item = f32>) -> Vec<u8> {
    loop {
        let bytes = uniform.take(dtype.block_bytes()).map(|v| (v * 128.0 + 128.0) as u8).collect::<Vec<_>>();
        let max = quant::dequantise(dtype, &bytes).iter().fold(0f32, |max, v| max.max(v.abs()));
        if (0.1..10.0).contains(&max) && quant::find_invalid(dtype, &bytes).is_none() {
            return bytes;
        }
    }
}

/// Numbers even in -1..1: the top 24 bits of SplitMix64.
fn uniform(seed: u64) -> impl Iterator<Item = f32> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    })
}
