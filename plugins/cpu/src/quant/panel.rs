//! A panel: 16 rows of weights, unpacked, and its products with columns of activations.
//!
//! Lane r of every vector belongs to row r, so each result is a sum in one lane: groups in order, halves in order,
//! one fused multiply-add each. Integers are exact in any order. Nothing depends on how many columns are at hand.

use super::XGroup;
use crate::scratch::Plain;
use crate::simd::Simd;

/// Rows of a panel.
pub const ROWS: usize = 16;

/// 32 elements of each of 16 rows. `H` scales per row (1, or 2: one per half), `M` minima (0 or `H`).
/// `FULL`: integers use all 8 bits, otherwise 7.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Group<const H: usize, const M: usize, const FULL: bool> {
    /// Quad j: elements 4j..4j+4 of row 0, of row 1, …
    pub q: [[u8; 64]; 8],
    /// Scales of the rows, per half.
    pub d: [[f32; 16]; H],
    /// Minima of the rows, per half.
    pub m: [[f32; 16]; M],
}

/// What kernels need to know of a [`Group`].
pub trait Panel: Plain + Send + Sync + 'static {
    /// All zeros.
    const ZERO: Self;
    /// Scales per row.
    const HALVES: usize;
    /// Whether there are minima.
    const MINIMA: bool;

    /// The quads.
    fn quads(&self) -> &[[u8; 64]; 8];
    /// Scale of row `r` in half `h` (0 if there is one scale).
    fn scale(&self, h: usize, r: usize) -> f32;
    /// Minimum of row `r` in half `h`, 0 if there are none.
    fn minimum(&self, h: usize, r: usize) -> f32;
    /// sums[c][r] + Σ over the groups of row r · column c.
    fn add_products<S: Simd, const C: usize>(
        s: S,
        panel: &[Self],
        x: [&[XGroup]; C],
        sums: [S::F; C],
    ) -> [S::F; C];
}

impl<const H: usize, const M: usize, const FULL: bool> Panel for Group<H, M, FULL> {
    const ZERO: Self = Group { q: [[0; 64]; 8], d: [[0.0; 16]; H], m: [[0.0; 16]; M] };
    const HALVES: usize = H;
    const MINIMA: bool = M > 0;

    #[inline(always)]
    fn quads(&self) -> &[[u8; 64]; 8] {
        &self.q
    }

    #[inline(always)]
    fn scale(&self, h: usize, r: usize) -> f32 {
        self.d[h.min(H - 1)][r]
    }

    #[inline(always)]
    fn minimum(&self, h: usize, r: usize) -> f32 {
        if M == 0 { 0.0 } else { self.m[h.min(H - 1)][r] }
    }

    #[inline(always)]
    fn add_products<S: Simd, const C: usize>(
        s: S,
        panel: &[Self],
        x: [&[XGroup]; C],
        mut sums: [S::F; C],
    ) -> [S::F; C] {
        let x: [&[XGroup]; C] = crate::simd::array(|c| &x[c][..panel.len()]);
        for (g, w) in panel.iter().enumerate() {
            for h in 0..H {
                let mut dots: [S::I; C] = crate::simd::array(|c| match M {
                    0 => s.splat_i(x[c][g].sums[h]),
                    _ => s.splat_i(0),
                });
                for j in 8 / H * h..8 / H * (h + 1) {
                    let q = s.load_b(&w.q[j]);
                    for c in 0..C {
                        let xq = s.splat_i(x[c][g].q[j]);
                        dots[c] = if FULL { s.dot4_full(dots[c], q, xq) } else { s.dot4(dots[c], q, xq) };
                    }
                }
                let d = s.load(&w.d[h]);
                for c in 0..C {
                    let scale = s.mul(d, s.splat(x[c][g].d));
                    sums[c] = s.fma(s.float(dots[c]), scale, sums[c]);
                }
                if M > 0 {
                    let m = s.load(&w.m[h]);
                    for c in 0..C {
                        let sum = s.from_bits(s.splat_i(x[c][g].sums[h]));
                        sums[c] = s.fma(m, sum, sums[c]);
                    }
                }
            }
        }
        sums
    }
}
