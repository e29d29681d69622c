//! Quantised weights: 16 rows at a time become 8-bit integers with scales. One file per format, and only this differs
//! between formats; [`panel`] multiplies them, [`decode`] makes f32 rows of them.

pub mod activations;
mod by_columns;
pub mod decode;
pub mod panel;
pub mod plain;
mod planes;

mod code_book;
mod iq4;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4;
mod q4_k;
mod q5;
mod q5_k;
mod q6_k;
mod q8_0;
pub mod rows;
#[cfg(test)]
mod tests;
mod words;

pub mod encode;

pub use activations::XGroup;
pub use by_columns::{ByColumns, PANELS, RowsOf, turn};
pub use iq4::{Iq4Nl, Iq4Xs};
pub use mxfp4::Mxfp4;
pub use panel::{Group, Multiply, Panel, ROWS};
pub use planes::{Plane, plane_of};
pub use q2_k::Q2K;
pub use q3_k::Q3K;
pub use q4::{Q4_0, Q4_1};
pub use q4_k::Q4K;
pub use q5::{Q5_0, Q5_1};
pub use q5_k::Q5K;
pub use q6_k::Q6K;
pub use q8_0::Q8_0;
pub use rows::{Anywhere, RowByRow, Rows, SideBySide};
pub use words::{WordGroup, XWords};

use crate::simd::Simd;
use llmrt_plugin::DType;

/// Elements of a group: the finest run that shares activations' scales.
pub const GROUP: usize = 32;
/// Groups of the largest block.
pub const MAX_GROUPS: usize = 8;

/// A format of weights. Element i of a group is (u - OFFSET) · d + m, u unsigned, d and m of its group or half.
pub trait Format: 'static {
    /// Its dtype.
    const DTYPE: DType;
    /// What is taken off the unsigned integers; 0 where there are minima.
    const OFFSET: i32;
    /// Groups in a block.
    const GROUPS: usize;
    /// What a block is made of, in order: (bytes of a unit, units). Units stay whole when rows are interleaved.
    const UNITS: &[(usize, usize)];
    /// Bytes of a block.
    const BLOCK_BYTES: usize = sum(Self::UNITS);
    /// How its groups look: scales per group or half, with minima or not.
    type Group: Panel;

    /// Where a block has its elements: one plane or two.
    const PLANES: &[Plane];
    /// The most elements that share a byte in a block, which are as many strips of rows in a matrix by columns.
    const STRIPS: usize = planes::most_in_byte(Self::PLANES);

    /// Unpacks one block of each of 16 rows into `GROUPS` groups.
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]);

    /// The scales and minima alone.
    fn scales<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]);

    /// Four elements of each row as they are stored, in bytes of their own, as the integers of a group.
    #[inline(always)]
    fn integers<S: Simd>(_: S, stored: S::I) -> S::I {
        stored
    }
}

/// Bytes of units: (bytes of one, how many).
const fn sum(mut units: &[(usize, usize)]) -> usize {
    let mut bytes = 0;
    while let [(size, n), rest @ ..] = units {
        bytes += *size * *n;
        units = rest;
    }
    bytes
}

/// Calls `$body` with `$format` standing for the [`Format`] of a dtype; `$other` for all other dtypes.
macro_rules! with_format {
    ($dtype:expr, $format:ident => $body:expr, else $other:expr) => {{
        use llmrt_plugin::DType;
        macro_rules! call {
            ($t:ty) => {{
                type $format = $t;
                $body
            }};
        }
        match $dtype {
            DType::Q4_0 => call!($crate::quant::Q4_0),
            DType::Q4_1 => call!($crate::quant::Q4_1),
            DType::Q5_0 => call!($crate::quant::Q5_0),
            DType::Q5_1 => call!($crate::quant::Q5_1),
            DType::Q8_0 => call!($crate::quant::Q8_0),
            DType::Q2_K => call!($crate::quant::Q2K),
            DType::Q3_K => call!($crate::quant::Q3K),
            DType::Q4_K => call!($crate::quant::Q4K),
            DType::Q5_K => call!($crate::quant::Q5K),
            DType::Q6_K => call!($crate::quant::Q6K),
            DType::IQ4_NL => call!($crate::quant::Iq4Nl),
            DType::IQ4_XS => call!($crate::quant::Iq4Xs),
            DType::MXFP4 => call!($crate::quant::Mxfp4),
            _ => $other,
        }
    }};
}
pub(crate) use with_format;

/// Whether weights of this dtype can be multiplied and decoded.
pub fn is_supported(dtype: DType) -> bool {
    with_format!(dtype, F => F::DTYPE == dtype, else false)
}

/// Byte j of the 16 bytes of each row holds elements j (low four bits) and j + 16 (high): quads 0..4 and 4..8.
#[inline(always)]
pub(crate) fn nibbles<S: Simd>(s: S, bytes: [S::I; 4]) -> [S::I; 8] {
    // Without a closure: where one is not inlined, it lacks the instruction set.
    let (mask, [a, b, c, d]) = (s.splat_i(0x0f0f_0f0f), bytes);
    let low = [s.and(a, mask), s.and(b, mask), s.and(c, mask), s.and(d, mask)];
    let [a, b, c, d] = [s.shr(a, 4), s.shr(b, 4), s.shr(c, 4), s.shr(d, 4)];
    let high = [s.and(a, mask), s.and(b, mask), s.and(c, mask), s.and(d, mask)];
    [low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]]
}

/// The quads of a group, made of elements as they are stored, in bytes of their own.
#[inline(always)]
pub(crate) fn store_integers<S: Simd, F: Format>(s: S, stored: [S::I; 8], quads: &mut [[u8; 64]; 8]) {
    for (stored, to) in stored.into_iter().zip(quads) {
        s.store_b(F::integers(s, stored), to);
    }
}

/// 32 bytes of each row, from byte `at` on.
#[inline(always)]
pub(crate) fn words_32<S: Simd>(s: S, rows: impl Rows, at: usize) -> [S::I; 8] {
    let (a, b) = (rows.words(s, at), rows.words(s, at + 16));
    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]]
}

/// Byte `i` of each lane as a number.
#[inline(always)]
pub(crate) fn byte<S: Simd>(s: S, v: S::I, i: usize) -> S::I {
    s.and(s.shr(v, 8 * i as u32), s.splat_i(0xff))
}
