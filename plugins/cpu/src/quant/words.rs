//! Groups of bytes as words of 16 bits: where bytes have no instruction of their own for products, those of words take fewer.
//!
//! Both factors fit 16 bits, and a multiply-add of two pairs fits 32, so sums need no widening. Word pairs are elements i and
//! i + 16 of a group, since these are simple to put together.

use super::panel::{Multiply, Panel, SHIFT, rolled};
use super::{GROUP, XGroup};
use crate::simd::{LANES, Prefetcher, Simd, array};
use bytemuck::{Pod, Zeroable};

/// Pairs in a turn of the innermost loop.
const TURN: usize = 2;
/// Turns for a group.
const TURNS: usize = GROUP / 2 / TURN;

/// [`super::Group`] with one scale, no minima, and integers of 8 bits.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct WordGroup {
    /// Pair i: elements i and i + 16 of row 0, of row 1, …
    q: [[[u8; 64]; TURN]; TURNS],
    /// Scales of the rows.
    d: [f32; LANES],
}

/// [`XGroup`] in words.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(16))]
pub struct XWords {
    /// Pair i: elements i and i + 16.
    q: [[[u8; 4]; TURN]; TURNS],
    d: f32,
    start: i32,
    _padding: [u32; 2],
}

impl WordGroup {
    /// Becomes the words of a group's bytes.
    #[inline(always)]
    pub fn set<S: Simd>(&mut self, s: S, group: &impl Panel) {
        let quads = group.quads();
        self.d = *group.scales_of_rows();
        for j in 0..4 {
            let (low, high) = (s.load_b(&quads[j]), s.load_b(&quads[j + 4]));
            for b in 0..4 {
                let pair = s.or(super::byte(s, low, b), s.shl(super::byte(s, high, b), 16));
                s.store_b(pair, &mut self.q.as_flattened_mut()[4 * j + b]);
            }
        }
    }
}

impl XWords {
    /// Becomes the words of a group's bytes.
    #[inline(always)]
    pub fn set<S: Simd>(&mut self, s: S, x: &XGroup) {
        let (halves, _) = x.q.as_flattened().as_chunks::<16>();
        let low = s.and(s.load_i8(&halves[0]), s.splat_i(0xffff));
        let pairs = s.or(low, s.shl(s.load_i8(&halves[1]), 16));
        s.store_b(pairs, &mut self.q.as_flattened_mut().as_flattened_mut().as_chunks_mut().0[0]);
        (self.d, self.start) = (x.d, x.sums[0]);
    }
}

impl Multiply for WordGroup {
    type X = XWords;

    #[inline(always)]
    fn add_products<S: Simd, const P: usize, const C: usize>(
        s: S,
        panels: [&[Self]; P],
        x: [&[XWords]; C],
        ahead: impl Prefetcher,
        mut sums: [[S::F; C]; P],
    ) -> [[S::F; C]; P] {
        let n_groups = panels[0].len();
        let panels: [&[Self]; P] = array(|p| &panels[p][..n_groups]);
        let x: [&[XWords]; C] = array(|c| &x[c][..n_groups]);
        for g in 0..n_groups {
            ahead.prefetch_step(g);
            let (w, x): ([&Self; P], [&XWords; C]) = (array(|p| &panels[p][g]), array(|c| &x[c][g]));
            let mut dots = [[s.splat_i(0); C]; P];
            for c in 0..C {
                let start = s.splat_i(x[c].start);
                for p in 0..P {
                    dots[p][c] = start;
                }
            }
            for turn in 0..rolled::<S, C>(TURNS) {
                let (w, x): ([_; P], [_; C]) =
                    (array(|p| &w[p].q[turn % TURNS]), array(|c| &x[c].q[turn % TURNS]));
                for i in 0..TURN {
                    let mut pairs = [s.load_b(&w[0][i]); P];
                    for p in 1..P {
                        pairs[p] = s.load_b(&w[p][i]);
                    }
                    for c in 0..C {
                        let x = s.splat_i(i32::from_le_bytes(x[c][i]));
                        for p in 0..P {
                            dots[p][c] = s.dot2_words(dots[p][c], pairs[p], x);
                        }
                    }
                }
            }
            for p in 0..P {
                let d = s.load(&w[p].d);
                let minus_shift = s.mul(d, s.splat(-SHIFT));
                for c in 0..C {
                    let dot = s.fma(s.from_bits(dots[p][c]), d, minus_shift);
                    sums[p][c] = s.fma(dot, s.splat(x[c].d), sums[p][c]);
                }
            }
        }
        sums
    }
}
