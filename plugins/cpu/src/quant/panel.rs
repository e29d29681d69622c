//! A panel: 16 rows of weights, unpacked, and its products with columns of activations.
//!
//! Lane r of every vector belongs to row r, so each result is a sum in one lane: groups in order; of each, its halves in
//! order, times their scales, times the activations' scale; then its minima. Integers are exact in any order. Nothing
//! depends on how many panels and columns are at hand.

use super::XGroup;
use crate::simd::{Prefetcher, Simd, array};
use bytemuck::{Pod, Zeroable};

/// Rows of a panel.
pub const ROWS: usize = 16;

/// 1.5 · 2²³. Sums of integers that begin with its bits, and are below 2²², have the bits of the float 1.5 · 2²³ + sum:
/// no instruction need convert them.
pub(super) const SHIFT: f32 = (3 << 22) as f32;

/// 32 elements of each of 16 rows. `H` scales per row (1, or 2: one per half), `M` minima (0 or `H`).
/// Integers are below 2^`BITS`; with 8 bits, what is taken off them is 128. `SHIFTED`: scales are below 2¹⁰⁴ and have 18
/// bits at most, so integer sums are shifted.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Group<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool = true> {
    /// Quad j: elements 4j..4j+4 of row 0, of row 1, …
    pub q: [[u8; 64]; 8],
    /// Scales of the rows, per half.
    pub d: [[f32; 16]; H],
    /// Minima of the rows, per half.
    pub m: [[f32; 16]; M],
}

// SAFETY: arrays of numbers, for which all zeros are a value.
unsafe impl<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool> Zeroable
    for Group<H, M, BITS, SHIFTED>
{
}
// SAFETY: `repr(C)` arrays of 512, 64 · H and 64 · M bytes, aligned to 64: no padding, and every bit pattern is a value.
unsafe impl<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool> Pod
    for Group<H, M, BITS, SHIFTED>
{
}

impl<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool> Group<H, M, BITS, SHIFTED> {
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
pub(super) fn rolled<S: Simd, const C: usize>(n: usize) -> usize {
    if S::WIDE || C < 3 || n == 1 { n } else { std::hint::black_box(n) }
}

/// What kernels take of a [`Group`].
pub trait Panel: Multiply<X = XGroup> + Send + Sync + 'static {
    /// All zeros.
    const ZERO: Self;
    /// Whether integers have 8 bits, there is one scale and no minimum, and integer sums are shifted.
    const IS_BYTES: bool;
    /// Scales per row.
    const HALVES: usize;
    /// Whether there are minima.
    const MINIMA: bool;
    /// Where integer sums begin.
    const START: i32;

    /// The quads.
    fn quads(&self) -> &[[u8; 64]; 8];
    /// Scales of the rows in the first half.
    fn scales_of_rows(&self) -> &[f32; 16];
    /// Scale of row `r` in half `h` (0 if there is one scale).
    fn scale(&self, h: usize, r: usize) -> f32;
    /// Minimum of row `r` in half `h`, 0 if there are none.
    fn minimum(&self, h: usize, r: usize) -> f32;
    /// The scales of half `h` (or all, if there is one scale) of a group of each panel, and what [`Panel::START`] makes of them.
    fn scales<S: Simd, const P: usize>(s: S, w: [&Self; P], h: usize) -> [[S::F; 2]; P];
    /// What integer sums of half `h` begin with, as the activations are.
    fn start<S: Simd>(s: S, x: &XGroup, h: usize) -> S::I;
    /// acc + the products of a quad of each row with four activations.
    fn add_quad<S: Simd>(s: S, acc: S::I, q: S::I, x: S::I) -> S::I;
    /// sums[p][c][r] + the products with these scales: `dots` are those of integers, plus [`Panel::START`].
    fn add_scaled<S: Simd, const P: usize, const C: usize>(
        s: S,
        scales: [[S::F; 2]; P],
        x: [&XGroup; C],
        dots: [[S::I; C]; P],
        sums: [[S::F; C]; P],
    ) -> [[S::F; C]; P];
    /// sums[p][c][r] + the minima of a group of each panel times the sums of each column.
    fn add_minima<S: Simd, const P: usize, const C: usize>(
        s: S,
        w: [&Self; P],
        x: [&XGroup; C],
        sums: [[S::F; C]; P],
    ) -> [[S::F; C]; P];
}

/// Groups of 16 rows that are multiplied with groups of columns.
pub trait Multiply: Pod {
    /// A group of a column.
    type X: Pod;

    /// sums[p][c][r] + Σ over the groups of row r of panel p · column c; panels and columns have as many groups, which are
    /// the steps of `ahead`.
    fn add_products<S: Simd, const P: usize, const C: usize>(
        s: S,
        panels: [&[Self]; P],
        x: [&[Self::X]; C],
        ahead: impl Prefetcher,
        sums: [[S::F; C]; P],
    ) -> [[S::F; C]; P];
}

impl<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool> Panel
    for Group<H, M, BITS, SHIFTED>
{
    const ZERO: Self = Group { q: [[0; 64]; 8], d: [[0.0; 16]; H], m: [[0.0; 16]; M] };
    const IS_BYTES: bool = BITS == 8 && H == 1 && M == 0 && SHIFTED;
    const HALVES: usize = H;
    const MINIMA: bool = M > 0;
    const START: i32 = if SHIFTED { SHIFT.to_bits() as i32 } else { 0 };

    #[inline(always)]
    fn quads(&self) -> &[[u8; 64]; 8] {
        &self.q
    }

    #[inline(always)]
    fn scales_of_rows(&self) -> &[f32; 16] {
        &self.d[0]
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
    fn scales<S: Simd, const P: usize>(s: S, w: [&Self; P], h: usize) -> [[S::F; 2]; P] {
        let mut scales = [[s.zero(); 2]; P];
        for p in 0..P {
            let d = s.load(&w[p].d[h]);
            // Exact, so what is left of the shifted sum has been rounded once, as a product is.
            scales[p] = [d, s.mul(d, s.splat(-SHIFT))];
        }
        scales
    }

    #[inline(always)]
    fn start<S: Simd>(s: S, x: &XGroup, h: usize) -> S::I {
        let is_centred = M > 0 || BITS == 8 && S::CENTRE == 128;
        s.splat_i(if is_centred { Self::START } else { x.sums[h] })
    }

    #[inline(always)]
    fn add_quad<S: Simd>(s: S, acc: S::I, q: S::I, x: S::I) -> S::I {
        match BITS {
            8 => s.dot4_full(acc, q, x),
            _ => s.end(s.dot4(s.begin(acc), q, x), acc),
        }
    }

    #[inline(always)]
    fn add_scaled<S: Simd, const P: usize, const C: usize>(
        s: S,
        scales: [[S::F; 2]; P],
        x: [&XGroup; C],
        dots: [[S::I; C]; P],
        mut sums: [[S::F; C]; P],
    ) -> [[S::F; C]; P] {
        for p in 0..P {
            let [d, minus_shift] = scales[p];
            for c in 0..C {
                let dot = match Self::START {
                    0 => s.mul(s.float(dots[p][c]), d),
                    _ => s.fma(s.from_bits(dots[p][c]), d, minus_shift),
                };
                sums[p][c] = s.fma(dot, s.splat(x[c].d), sums[p][c]);
            }
        }
        sums
    }

    #[inline(always)]
    fn add_minima<S: Simd, const P: usize, const C: usize>(
        s: S,
        w: [&Self; P],
        x: [&XGroup; C],
        mut sums: [[S::F; C]; P],
    ) -> [[S::F; C]; P] {
        for h in 0..M {
            for c in 0..C {
                let sum = s.from_bits(s.splat_i(x[c].sums[h]));
                for p in 0..P {
                    sums[p][c] = s.fma(s.load(&w[p].m[h]), sum, sums[p][c]);
                }
            }
        }
        sums
    }
}

impl<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool> Multiply
    for Group<H, M, BITS, SHIFTED>
{
    type X = XGroup;

    #[inline(always)]
    fn add_products<S: Simd, const P: usize, const C: usize>(
        s: S,
        panels: [&[Self]; P],
        x: [&[XGroup]; C],
        ahead: impl Prefetcher,
        mut sums: [[S::F; C]; P],
    ) -> [[S::F; C]; P] {
        let n_groups = panels[0].len();
        let panels: [&[Self]; P] = array(|p| &panels[p][..n_groups]);
        let x: [&[XGroup]; C] = array(|c| &x[c][..n_groups]);
        for g in 0..n_groups {
            let w: [&Self; P] = array(|p| &panels[p][g]);
            let x: [&XGroup; C] = array(|c| &x[c][g]);
            ahead.prefetch_step(g);
            for h in 0..H {
                let dots = Self::dots(s, w, x, h);
                sums = Self::add_scaled(s, Self::scales(s, w, h), x, dots, sums);
            }
            sums = Self::add_minima(s, w, x, sums);
        }
        sums
    }
}

impl<const H: usize, const M: usize, const BITS: u32, const SHIFTED: bool> Group<H, M, BITS, SHIFTED> {
    /// [`Panel::START`] and the integer products of half `h` (or all, if there is one scale) of a group of each panel with
    /// each column.
    #[inline(always)]
    fn dots<S: Simd, const P: usize, const C: usize>(
        s: S,
        w: [&Self; P],
        x: [&XGroup; C],
        h: usize,
    ) -> [[S::I; C]; P] {
        let (n_runs, n_steps) = (rolled::<S, C>(8 / H / Self::RUN), rolled::<S, C>(Self::RUN / Self::STEP));
        let mut dots = [[s.splat_i(Self::START); C]; P];
        for c in 0..C {
            let start = Self::start(s, x[c], h);
            for p in 0..P {
                dots[p][c] = start;
            }
        }
        for r in 0..n_runs {
            if Self::RUN == 2 {
                Self::short_run(s, w, x, (8 / H * h + 2 * r) % 8, &mut dots);
                continue;
            }
            let mut runs = [[s.begin(dots[0][0]); C]; P];
            for p in 0..P {
                for c in 0..C {
                    runs[p][c] = s.begin(dots[p][c]);
                }
            }
            for step in 0..n_steps {
                for i in 0..Self::STEP {
                    let j = (8 / H * h + Self::RUN * r + Self::STEP * step + i) % 8;
                    let mut q = [s.load_b(&w[0].q[j]); P];
                    for p in 1..P {
                        q[p] = s.load_b(&w[p].q[j]);
                    }
                    for c in 0..C {
                        let xq = s.splat_i(i32::from_le_bytes(x[c].q[j]));
                        for p in 0..P {
                            match BITS {
                                8 => dots[p][c] = s.dot4_full(dots[p][c], q[p], xq),
                                _ => runs[p][c] = s.dot4(runs[p][c], q[p], xq),
                            }
                        }
                    }
                }
            }
            if BITS == 8 {
                continue;
            }
            for p in 0..P {
                for c in 0..C {
                    dots[p][c] = s.end(runs[p][c], dots[p][c]);
                }
            }
        }
        dots
    }

    /// Adds the products of quads j and j + 1: column by column, as there are as many runs as dots, and few registers.
    #[inline(always)]
    fn short_run<S: Simd, const P: usize, const C: usize>(
        s: S,
        w: [&Self; P],
        x: [&XGroup; C],
        j: usize,
        dots: &mut [[S::I; C]; P],
    ) {
        let mut q = [[s.load_b(&w[0].q[j]), s.load_b(&w[0].q[j + 1])]; P];
        for p in 1..P {
            q[p] = [s.load_b(&w[p].q[j]), s.load_b(&w[p].q[j + 1])];
        }
        for c in 0..C {
            let xq = [s.splat_i(i32::from_le_bytes(x[c].q[j])), s.splat_i(i32::from_le_bytes(x[c].q[j + 1]))];
            for p in 0..P {
                let run = s.dot4(s.begin(dots[p][c]), q[p][0], xq[0]);
                dots[p][c] = s.end(s.dot4(run, q[p][1], xq[1]), dots[p][c]);
            }
        }
    }
}
