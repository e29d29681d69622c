//! Products of weights that are not quantised, or whose rows have gaps: in f32, tile by tile.

use super::product::{Column, Product};
use super::rows;
use crate::scratch::Scratch;
use crate::simd::{Isa, LANES, Simd, dispatch};
use llmrt_plugin::DType;
use std::ops::Range;

dispatch! {
    /// Makes elements `rows` of all columns, of weights with dense rows.
    pub fn floats(p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) = floats_with;
    /// As [`floats`], of any weights.
    pub fn strided(p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) = strided_with;
}

/// Rows of weights at hand at a time.
const FLOAT_ROWS: usize = 8;
/// Bytes of activations that stay in the second cache while weights pass.
const COLUMN_BYTES: usize = 256 * 1024;

#[inline(always)]
fn floats_with<S: Simd>(s: S, p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) {
    let k = p.w.ne[0];
    let block = (COLUMN_BYTES / (4 * k)).max(4).next_multiple_of(4);
    for columns in p.columns.chunks(block) {
        for first in rows.clone().step_by(FLOAT_ROWS) {
            let rows = first..(first + FLOAT_ROWS).min(rows.end);
            match p.w.dtype {
                DType::F32 => multiply_floats(s, p, columns, rows, |r| F32Row(p.w.row(r))),
                DType::F16 if columns.len() < 3 => {
                    multiply_floats(s, p, columns, rows, |r| F16Row(p.w.row_bytes(r)))
                }
                DType::BF16 if columns.len() < 3 => {
                    multiply_floats(s, p, columns, rows, |r| Bf16Row(p.w.row_bytes(r)))
                }
                _ => {
                    let floats = scratch.rows.take::<f32>(FLOAT_ROWS * k);
                    for (row, out) in rows.clone().zip(floats.chunks_exact_mut(k)) {
                        widen(s, p.w.dtype, p.w.row_bytes([row, p.at[0], p.at[1]]), out);
                    }
                    let floats = &*floats;
                    multiply_floats(s, p, columns, rows, |[r, ..]| F32Row(&floats[(r - first) * k..][..k]));
                }
            }
        }
    }
}

/// Weights whose rows have gaps, such as a transposed cache, are gathered first.
#[inline(always)]
fn strided_with<S: Simd>(s: S, p: &Product<'_>, rows: Range<usize>, scratch: &mut Scratch) {
    let k = p.w.ne[0];
    for first in rows.clone().step_by(FLOAT_ROWS) {
        let rows = first..(first + FLOAT_ROWS).min(rows.end);
        let floats = scratch.rows.take::<f32>(FLOAT_ROWS * k);
        for (row, out) in rows.clone().zip(floats.chunks_exact_mut(k)) {
            rows::read(Isa::SCALAR, p.w, [row, p.at[0], p.at[1]], 0..k, out);
        }
        let floats = &*floats;
        multiply_floats(s, p, p.columns, rows, |[r, ..]| F32Row(&floats[(r - first) * k..][..k]));
    }
}

/// A row of any dtype as f32.
#[inline(always)]
fn widen<S: Simd>(s: S, dtype: DType, bytes: &[u8], out: &mut [f32]) {
    let (vectors, _) = bytes.as_chunks::<32>();
    let full = out.len() / LANES * LANES;
    match dtype {
        DType::F16 => {
            let to = out.as_chunks_mut::<LANES>().0.iter_mut();
            for (v, to) in vectors.iter().zip(to) {
                s.store(s.load_f16(v), to);
            }
        }
        DType::BF16 => {
            let to = out.as_chunks_mut::<LANES>().0.iter_mut();
            for (v, to) in vectors.iter().zip(to) {
                s.store(s.load_bf16(v), to);
            }
        }
        _ => return rows::decode(Isa::SCALAR, dtype, bytes, out),
    }
    rows::decode(Isa::SCALAR, dtype, &bytes[2 * full..], &mut out[full..]);
}

/// Products of some rows with some columns, in tiles that fit the registers.
#[inline(always)]
fn multiply_floats<S: Simd, W: Row>(
    s: S,
    p: &Product<'_>,
    columns: &[Column],
    rows: Range<usize>,
    row: impl Fn([usize; 3]) -> W,
) {
    let w = |r: usize| row([r, p.at[0], p.at[1]]);
    let (mut r, mut c);
    r = rows.start;
    if S::WIDE {
        c = 0;
        if rows.len() == 8 {
            while c + 4 <= columns.len() {
                float_tile::<S, W, 4, 4>(s, p, &columns[c..], r, &w);
                float_tile::<S, W, 4, 4>(s, p, &columns[c..], r + 4, &w);
                c += 4;
            }
            while c < columns.len() {
                float_tile::<S, W, 8, 1>(s, p, &columns[c..], r, &w);
                c += 1;
            }
            return;
        }
    }
    while r + 2 <= rows.end {
        c = 0;
        while c + 2 <= columns.len() {
            float_tile::<S, W, 2, 2>(s, p, &columns[c..], r, &w);
            c += 2;
        }
        while c < columns.len() {
            float_tile::<S, W, 2, 1>(s, p, &columns[c..], r, &w);
            c += 1;
        }
        r += 2;
    }
    while r < rows.end {
        for c in 0..columns.len() {
            float_tile::<S, W, 1, 1>(s, p, &columns[c..], r, &w);
        }
        r += 1;
    }
}

/// `R` rows from `first` on times the first `C` columns: 16 partial sums each, along k in order, then their sum.
#[inline(always)]
fn float_tile<S: Simd, W: Row, const R: usize, const C: usize>(
    s: S,
    p: &Product<'_>,
    columns: &[Column],
    first: usize,
    row: &impl Fn(usize) -> W,
) {
    let k = p.w.ne[0];
    let n = k / LANES;
    let w: [W; R] = crate::simd::array(|r| row(first + r).bounded(k));
    let x: [&[f32]; C] = crate::simd::array(|c| &p.x.row(p.x.unravel(columns[c].x))[..k]);
    let x_vectors = x.map(|x| &x.as_chunks::<LANES>().0[..n]);
    let mut sums = [[s.zero(); C]; R];
    for i in 0..n {
        let x: [S::F; C] = crate::simd::array(|c| s.load(&x_vectors[c][i]));
        for r in 0..R {
            let w = w[r].vector(s, i);
            for c in 0..C {
                sums[r][c] = s.fma(w, x[c], sums[r][c]);
            }
        }
    }
    if !k.is_multiple_of(LANES) {
        for r in 0..R {
            let w = w[r].rest(s, n);
            for c in 0..C {
                sums[r][c] = s.fma(w, s.load_part(&x[c][n * LANES..]), sums[r][c]);
            }
        }
    }
    for c in 0..C {
        // SAFETY: these rows of w are this thread's alone.
        let y = unsafe { p.y.part_mut(p.y.unravel(columns[c].y), first..first + R) };
        for r in 0..R {
            y[r] = s.sum(sums[r][c]);
        }
    }
}

/// A row of float weights.
trait Row: Copy {
    /// The same row, known to the compiler to have `k` elements.
    fn bounded(self, k: usize) -> Self;
    /// Elements 16i..16i+16.
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F;
    /// The last elements, fewer than 16, from 16i on.
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F;
}

#[derive(Clone, Copy)]
struct F32Row<'a>(&'a [f32]);
#[derive(Clone, Copy)]
struct F16Row<'a>(&'a [u8]);
#[derive(Clone, Copy)]
struct Bf16Row<'a>(&'a [u8]);

impl Row for F32Row<'_> {
    #[inline(always)]
    fn bounded(self, k: usize) -> Self {
        F32Row(&self.0[..k])
    }
    #[inline(always)]
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load(&self.0.as_chunks::<LANES>().0[i])
    }
    #[inline(always)]
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_part(&self.0[i * LANES..])
    }
}

impl Row for F16Row<'_> {
    #[inline(always)]
    fn bounded(self, k: usize) -> Self {
        F16Row(&self.0[..2 * k])
    }
    #[inline(always)]
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_f16(&self.0.as_chunks::<32>().0[i])
    }
    #[inline(always)]
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_f16(&padded(&self.0[i * 32..]))
    }
}

impl Row for Bf16Row<'_> {
    #[inline(always)]
    fn bounded(self, k: usize) -> Self {
        Bf16Row(&self.0[..2 * k])
    }
    #[inline(always)]
    fn vector<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_bf16(&self.0.as_chunks::<32>().0[i])
    }
    #[inline(always)]
    fn rest<S: Simd>(self, s: S, i: usize) -> S::F {
        s.load_bf16(&padded(&self.0[i * 32..]))
    }
}

#[inline(always)]
fn padded(bytes: &[u8]) -> [u8; 32] {
    let mut padded = [0; 32];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}
