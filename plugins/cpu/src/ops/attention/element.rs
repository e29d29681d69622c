//! Types of cache rows whose vectors can be read one by one.

use crate::simd::Simd;

/// A dtype whose vectors are read one by one.
pub trait Element {
    /// Bytes that belong together.
    type Block;
    /// Vectors of a block.
    const VECTORS: usize;
    /// A row as blocks.
    fn blocks(row: &[u8]) -> &[Self::Block];
    /// Vector `i` of a block.
    fn load<S: Simd>(s: S, block: &Self::Block, i: usize) -> S::F;
}

/// Vector `c` of a row.
#[inline(always)]
pub fn vector<S: Simd, E: Element>(s: S, row: &[E::Block], c: usize) -> S::F {
    E::load(s, &row[c / E::VECTORS], c % E::VECTORS)
}

pub enum F32 {}
pub enum F16 {}
pub enum Bf16 {}
pub enum Q8 {}

impl Element for F32 {
    type Block = [u8; 64];
    const VECTORS: usize = 1;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 64]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 64], _i: usize) -> S::F {
        s.from_bits(s.load_b(block))
    }
}

impl Element for F16 {
    type Block = [u8; 32];
    const VECTORS: usize = 1;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 32]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 32], _i: usize) -> S::F {
        s.load_f16(block)
    }
}

impl Element for Bf16 {
    type Block = [u8; 32];
    const VECTORS: usize = 1;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 32]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 32], _i: usize) -> S::F {
        s.load_bf16(block)
    }
}

/// Blocks of d (F16) and 32 signed bytes.
impl Element for Q8 {
    type Block = [u8; 34];
    const VECTORS: usize = 2;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[[u8; 34]] {
        row.as_chunks().0
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &[u8; 34], i: usize) -> S::F {
        let d = s.splat_f16(u16::from_le_bytes([block[0], block[1]]));
        let q = &block[2..].as_chunks::<16>().0[i];
        s.mul(s.float(s.load_i8(q)), d)
    }
}

/// Calls a function of an element type with that of a dtype.
macro_rules! with_element {
    ($dtype:expr, |$e:ident| $call:expr) => {
        match $dtype {
            llmrt_plugin::DType::F16 => {
                type $e = $crate::ops::attention::element::F16;
                $call
            }
            llmrt_plugin::DType::BF16 => {
                type $e = $crate::ops::attention::element::Bf16;
                $call
            }
            llmrt_plugin::DType::Q8_0 => {
                type $e = $crate::ops::attention::element::Q8;
                $call
            }
            _ => {
                type $e = $crate::ops::attention::element::F32;
                $call
            }
        }
    };
}
pub(super) use with_element;
