//! Types of cache rows whose vectors can be read one by one.

use crate::ops::float::Float;
use crate::simd::Simd;

/// A dtype whose vectors are read one by one.
pub trait KvElement {
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
pub fn vector<S: Simd, E: KvElement>(s: S, row: &[E::Block], c: usize) -> S::F {
    E::load(s, &row[c / E::VECTORS], c % E::VECTORS)
}

/// A vector is a block.
impl<F: Float> KvElement for F {
    type Block = F::Chunk16;
    const VECTORS: usize = 1;

    #[inline(always)]
    fn blocks(row: &[u8]) -> &[F::Chunk16] {
        F::chunks16(row)
    }

    #[inline(always)]
    fn load<S: Simd>(s: S, block: &F::Chunk16, _i: usize) -> S::F {
        F::load(s, block)
    }
}

/// Blocks of d (F16) and 32 signed bytes.
pub enum Q8 {}

impl KvElement for Q8 {
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
                type $e = $crate::ops::float::F16;
                $call
            }
            llmrt_plugin::DType::BF16 => {
                type $e = $crate::ops::float::Bf16;
                $call
            }
            llmrt_plugin::DType::Q8_0 => {
                type $e = $crate::ops::attention::element::Q8;
                $call
            }
            _ => {
                type $e = $crate::ops::float::F32;
                $call
            }
        }
    };
}
pub(super) use with_element;
