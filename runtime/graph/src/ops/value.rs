//! Values of the reference interpreter: contiguous elements of a tensor, decoded to f32 or i32.
//!
//! F64 numbers are rounded to f32. Integers of all widths are i32 here; I64 ones outside i32 saturate.

use crate::quant;
use crate::tensor::{Shape, TensorDef};
use llmrt_abi::{DType, dtype::DTypeKind};

/// A tensor's elements, innermost dim first, without gaps.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// Elements per dim.
    pub ne: Shape,
    /// The elements.
    pub data: Data,
}

/// Elements as numbers. Floating types are F32 here; all integers are I32.
#[derive(Clone, PartialEq, Debug)]
#[allow(missing_docs)]
pub enum Data {
    F32(Vec<f32>),
    I32(Vec<i32>),
    /// A quantised type: the numbers, and the blocks that they came from. Ops that move elements keep the blocks.
    Blocks {
        dtype: DType,
        bytes: Vec<u8>,
        floats: Vec<f32>,
    },
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
            Data::F32(v) | Data::Blocks { floats: v, .. } => v,
            Data::I32(_) => &[],
        }
    }

    /// The elements; empty if they are floats.
    pub fn ints(&self) -> &[i32] {
        match &self.data {
            Data::I32(v) => v,
            Data::F32(_) | Data::Blocks { .. } => &[],
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
        let mut bytes = Vec::new();
        for_each_block(def, |at| bytes.extend_from_slice(&owner_bytes[at..at + def.dtype.block_bytes()]));
        let data = match def.dtype.info().kind {
            DTypeKind::Int => {
                Data::I32(bytes.chunks_exact(def.dtype.block_bytes()).map(decode_int).collect())
            }
            DTypeKind::Float => Data::F32(quant::dequantise(def.dtype, &bytes)),
            DTypeKind::Quant => {
                let floats = quant::dequantise(def.dtype, &bytes);
                Data::Blocks { dtype: def.dtype, bytes, floats }
            }
        };
        Value { ne: def.ne, data }
    }

    /// Encodes the elements into the places of `def` within the bytes of the tensor that owns them.
    ///
    /// Floats become integers by dropping the fraction, and numbers too large for an integer type become its largest
    /// or smallest; NaN becomes 0. Blocks stay what they are in their own dtype.
    pub fn encode(&self, def: &TensorDef, owner_bytes: &mut [u8]) {
        let (elems, size) = (def.dtype.block_elems(), def.dtype.block_bytes());
        let mut block = 0;
        for_each_block(def, |at| {
            let to = &mut owner_bytes[at..at + size];
            match &self.data {
                Data::Blocks { dtype, bytes, .. } if *dtype == def.dtype => {
                    to.copy_from_slice(&bytes[block * size..][..size]);
                }
                Data::F32(v) | Data::Blocks { floats: v, .. } => {
                    encode_floats(def.dtype, &v[block * elems..][..elems], to);
                }
                Data::I32(v) => encode_ints(def.dtype, &v[block * elems..][..elems], to),
            }
            block += 1;
        });
    }
}

/// One integer of 1, 2, 4 or 8 bytes.
fn decode_int(bytes: &[u8]) -> i32 {
    match *bytes {
        [a] => i8::from_ne_bytes([a]) as i32,
        [a, b] => i16::from_ne_bytes([a, b]) as i32,
        [a, b, c, d] => i32::from_ne_bytes([a, b, c, d]),
        [a, b, c, d, e, f, g, h] => {
            i64::from_ne_bytes([a, b, c, d, e, f, g, h]).clamp(i32::MIN as i64, i32::MAX as i64) as i32
        }
        _ => 0,
    }
}

fn encode_floats(dtype: DType, x: &[f32], to: &mut [u8]) {
    match dtype {
        DType::I8 => to.copy_from_slice(&(x[0] as i8).to_ne_bytes()),
        DType::I16 => to.copy_from_slice(&(x[0] as i16).to_ne_bytes()),
        DType::I32 => to.copy_from_slice(&(x[0] as i32).to_ne_bytes()),
        DType::I64 => to.copy_from_slice(&(x[0] as i64).to_ne_bytes()),
        _ => quant::encode_block(dtype, x, to),
    }
}

fn encode_ints(dtype: DType, x: &[i32], to: &mut [u8]) {
    match dtype {
        DType::I8 => to.copy_from_slice(&(x[0].clamp(-0x80, 0x7f) as i8).to_ne_bytes()),
        DType::I16 => to.copy_from_slice(&(x[0].clamp(-0x8000, 0x7fff) as i16).to_ne_bytes()),
        DType::I32 => to.copy_from_slice(&x[0].to_ne_bytes()),
        DType::I64 => to.copy_from_slice(&(x[0] as i64).to_ne_bytes()),
        _ => quant::encode_block(dtype, &x.iter().map(|&v| v as f32).collect::<Vec<_>>(), to),
    }
}

/// Calls `visit` with the byte offset of each block (element, of plain types) in order.
fn for_each_block(def: &TensorDef, mut visit: impl FnMut(usize)) {
    let start = def.view.map_or(0, |(_, offset)| offset);
    for i3 in 0..def.ne[3] {
        for i2 in 0..def.ne[2] {
            for i1 in 0..def.ne[1] {
                let row = start + i1 * def.nb[1] + i2 * def.nb[2] + i3 * def.nb[3];
                for block in 0..def.ne[0] / def.dtype.block_elems() as u64 {
                    visit((row + block * def.nb[0]) as usize);
                }
            }
        }
    }
}
