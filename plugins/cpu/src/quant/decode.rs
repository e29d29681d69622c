//! Rows of quantised weights as f32: 16 blocks of one row stand in for the 16 rows of a panel.

use super::{Format, GROUP, MAX_GROUPS, Panel, ROWS, RowByRow, with_format};
use crate::simd::{Isa, Simd, dispatch};
use llmrt_plugin::DType;

/// Bytes of the largest block.
const MAX_BYTES: usize = 256;

/// Decodes `out.len()` elements, whole blocks, of a quantised dtype.
pub fn decode(isa: Isa, dtype: DType, blocks: &[u8], out: &mut [f32]) {
    with_format!(dtype, F => decode_row::<F>(isa, blocks, out), else ())
}

dispatch! {
    fn decode_row<F: Format>(blocks: &[u8], out: &mut [f32]) = decode_row_with;
}

#[inline(always)]
fn decode_row_with<S: Simd, F: Format>(s: S, blocks: &[u8], out: &mut [f32]) {
    let bytes = F::DTYPE.block_bytes();
    let elems = F::DTYPE.block_elems();
    let mut panel = [F::Group::ZERO; MAX_GROUPS];
    let mut padded = [0; MAX_BYTES * ROWS];
    for (blocks, out) in blocks.chunks(bytes * ROWS).zip(out.chunks_mut(elems * ROWS)) {
        let blocks = match blocks.len() < bytes * ROWS {
            true => {
                padded[..blocks.len()].copy_from_slice(blocks);
                &padded[..bytes * ROWS]
            }
            false => blocks,
        };
        F::unpack(s, RowByRow { bytes: blocks, stride: bytes }, &mut panel[..F::GROUPS]);
        for (r, out) in out.chunks_exact_mut(elems).enumerate() {
            for (group, out) in panel.iter().zip(out.chunks_exact_mut(GROUP)) {
                decode_group::<F>(group, r, out);
            }
        }
    }
}

#[inline(always)]
fn decode_group<F: Format>(group: &F::Group, r: usize, out: &mut [f32]) {
    for (j, (quad, out)) in group.quads().iter().zip(out.chunks_exact_mut(4)).enumerate() {
        let (d, m) = (group.scale(j / 4, r), group.minimum(j / 4, r));
        for (out, &u) in out.iter_mut().zip(&quad[4 * r..4 * r + 4]) {
            *out = (u as i32 - F::OFFSET) as f32 * d + m;
        }
    }
}
