//! A panel: 16 rows of weights, unpacked, and its products with columns of activations.
//!
//! Lane r of every vector belongs to row r, so each result is a sum in one lane: groups in order, halves in order,
//! one fused multiply-add each. Integers are exact in any order. Nothing depends on how many columns are at hand.

use super::XGroup;
use crate::scratch::Plain;
use crate::simd::{Simd, array};

/// Rows of a panel.
pub const ROWS: usize = 16;

/// 32 elements of each of 16 rows. `H` scales per row (1, or 2: one per half), `M` minima (0 or `H`).
/// Integers are below 2^`BITS`; with 8 bits, what is taken off them is 128.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Group<const H: usize, const M: usize, const BITS: u32> {
    /// Quad j: elements 4j..4j+4 of row 0, of row 1, …
    pub q: [[u8; 64]; 8],
    /// Scales of the rows, per half.
    pub d: [[f32; 16]; H],
    /// Minima of the rows, per half.
    pub m: [[f32; 16]; M],
}

impl<const H: usize, const M: usize, const BITS: u32> Group<H, M, BITS> {
    /// Quads whose products with activations (at most 127) add up in 16 bits: 2 · 2^BITS · 127 · RUN ≤ 2¹⁵.
    const RUN: usize = match BITS {
        0..5 => 8 / H,
        5 => 4,
        6 => 2,
        _ => 1,
    };
    /// Quads in a turn of the innermost loop.
    const STEP: usize = if Self::RUN < 2 { Self::RUN } else { 2 };
}

/// `n`, unknown to the compiler where columns are many and registers few: it would unroll the loop, sort what is in it by
/// columns, and run out of registers.
#[inline(always)]
fn rolled<S: Simd, const C: usize>(n: usize) -> usize {
    if S::WIDE || C < 3 || n == 1 { n } else { std::hint::black_box(n) }
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

impl<const H: usize, const M: usize, const BITS: u32> Panel for Group<H, M, BITS> {
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
        let x: [&[XGroup]; C] = array(|c| &x[c][..panel.len()]);
        let (n_runs, n_steps) = (rolled::<S, C>(8 / H / Self::RUN), rolled::<S, C>(Self::RUN / Self::STEP));
        for (g, w) in panel.iter().enumerate() {
            for h in 0..H {
                let is_centred = M > 0 || BITS == 8 && S::CENTRE == 128;
                let mut dots: [S::I; C] = array(|c| match is_centred {
                    true => s.splat_i(0),
                    false => s.splat_i(x[c][g].sums[h]),
                });
                for r in 0..n_runs {
                    let mut runs: [S::Run; C] = array(|c| s.begin(dots[c]));
                    for step in 0..n_steps {
                        for i in 0..Self::STEP {
                            let j = (8 / H * h + Self::RUN * r + Self::STEP * step + i) % 8;
                            let q = s.load_b(&w.q[j]);
                            for c in 0..C {
                                let xq = s.splat_i(x[c][g].q[j]);
                                match BITS {
                                    8 => dots[c] = s.dot4_full(dots[c], q, xq),
                                    _ => runs[c] = s.dot4(runs[c], q, xq),
                                }
                            }
                        }
                    }
                    if BITS < 8 {
                        dots = array(|c| s.end(runs[c], dots[c]));
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
