//! Values of the reference interpreter: contiguous elements of a tensor, decoded to f32 or i32.

use crate::tensor::{Shape, TensorDef};
use llmrt_abi::DType;

/// A tensor's elements, innermost dim first, without gaps.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// Elements per dim.
    pub ne: Shape,
    /// The elements.
    pub data: Data,
}

/// Elements as numbers. Floating and quantised types are F32 here; all integers are I32, I64 being cut to its range.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Data {
    F32(Vec<f32>),
    I32(Vec<i32>),
}

impl Value {
    /// An F32 value.
    pub fn f32(ne: Shape, data: Vec<f32>) -> Value {
        Value { ne, data: Data::F32(data) }
    }

    /// An I32 value.
    pub fn i32(ne: Shape, data: Vec<i32>) -> Value {
        Value { ne, data: Data::I32(data) }
    }

    /// The elements; empty if they are integers.
    pub fn floats(&self) -> &[f32] {
        match &self.data {
            Data::F32(v) => v,
            Data::I32(_) => &[],
        }
    }

    /// The elements; empty if they are floats.
    pub fn ints(&self) -> &[i32] {
        match &self.data {
            Data::I32(v) => v,
            Data::F32(_) => &[],
        }
    }

    /// Row `i` of the rows over all outer dims.
    pub fn row(&self, i: usize) -> &[f32] {
        let n = self.ne[0] as usize;
        &self.floats()[i * n..(i + 1) * n]
    }

    /// Rows over all outer dims.
    pub fn n_rows(&self) -> usize {
        (self.ne[1] * self.ne[2] * self.ne[3]) as usize
    }

    /// Decodes the elements of `def` from the bytes of the tensor that owns them.
    pub fn decode(def: &TensorDef, owner_bytes: &[u8]) -> Value {
        let start = def.view.map_or(0, |(_, offset)| offset);
        let block = def.dtype.block_elems() as u64;
        let mut floats = Vec::new();
        let mut ints = Vec::new();
        for_each_row(def, |row_offset| {
            for b in 0..def.ne[0] / block {
                let at = (start + row_offset + b * def.nb[0]) as usize;
                let bytes = &owner_bytes[at..at + def.dtype.block_bytes()];
                match def.dtype {
                    DType::I32 => ints.push(i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])),
                    DType::I64 => ints.push(cut(bytes)),
                    dtype => crate::quant::decode_block(dtype, bytes, &mut floats),
                }
            }
        });
        match def.dtype {
            DType::I32 | DType::I64 => Value::i32(def.ne, ints),
            _ => Value::f32(def.ne, floats),
        }
    }

    /// Encodes the elements into the places of `def` within the bytes of the tensor that owns them.
    pub fn encode(&self, def: &TensorDef, owner_bytes: &mut [u8]) {
        let start = def.view.map_or(0, |(_, offset)| offset);
        let block = def.dtype.block_elems();
        let mut at_elem = 0;
        for_each_row(def, |row_offset| {
            for b in 0..def.ne[0] / block as u64 {
                let at = (start + row_offset + b * def.nb[0]) as usize;
                let bytes = &mut owner_bytes[at..at + def.dtype.block_bytes()];
                match &self.data {
                    Data::I32(v) if def.dtype == DType::I64 => {
                        bytes.copy_from_slice(&(v[at_elem] as i64).to_ne_bytes())
                    }
                    Data::I32(v) => bytes.copy_from_slice(&v[at_elem].to_ne_bytes()),
                    Data::F32(v) => {
                        crate::quant::encode_block(def.dtype, &v[at_elem..at_elem + block], bytes)
                    }
                }
                at_elem += block;
            }
        });
    }
}

/// The nearest i32 of an i64 in 8 bytes.
fn cut(bytes: &[u8]) -> i32 {
    let wide = bytes.first_chunk().map_or(0, |b| i64::from_ne_bytes(*b));
    wide.clamp(i32::MIN as i64, i32::MAX as i64) as i32
}

fn for_each_row(def: &TensorDef, mut visit: impl FnMut(u64)) {
    for i3 in 0..def.ne[3] {
        for i2 in 0..def.ne[2] {
            for i1 in 0..def.ne[1] {
                visit(i1 * def.nb[1] + i2 * def.nb[2] + i3 * def.nb[3]);
            }
        }
    }
}
