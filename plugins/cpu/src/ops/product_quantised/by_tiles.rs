//! Products by tiles: eight columns at a time with two panels.
//!
//! Tiles make the products of integers, vectors add them to the sums: the same integers, scaled in the same order, so the
//! bits are those of [`Panel::add_products`]. Integers go through memory, from which they can be read some time after a
//! tile is stored; so each product begins [`DEPTH`] steps before it is added.

use super::ahead::NextColumns;
use super::form::{self, Form};
use crate::ops::product::{NextPanels, Product};
use crate::quant::{Format, Panel, Rows, XGroup};
use crate::scratch::Arena;
use crate::simd::tiles::{COLUMNS, Dots, Tiles};
use crate::simd::{LANES, Prefetcher, Simd, array};
use std::marker::PhantomData;
use std::ops::Range;

/// Steps from the beginning of a product to its use; a step is a half of a group, or a group if it has one scale.
const DEPTH: usize = 3;
/// Products of which there is room.
const RING: usize = DEPTH + 1;

/// Bytes, as they are unpacked and quantised, with the tiles of a thread and what they work with.
pub struct ByTiles<F, T> {
    format: PhantomData<F>,
    tiles: T,
    ring: [Dots; RING],
}

/// A step of all columns with two panels.
#[derive(Clone, Copy, Default)]
struct Step {
    /// How many were before.
    i: usize,
    /// The first of its columns.
    column: usize,
    group: usize,
    half: usize,
}

impl<F: Format, T: Tiles> ByTiles<F, T> {
    /// Tiles shaped for a format.
    #[inline(always)]
    pub fn new(machine: T::Machine) -> ByTiles<F, T> {
        let tiles = T::shaped(machine, 8 / F::Group::HALVES);
        ByTiles { format: PhantomData, tiles, ring: [Dots::ZERO; RING] }
    }

    /// Begins the products of a step, unless it is past the last one; the next step.
    #[inline(always)]
    fn begin(
        &mut self,
        x: &form::Columns<'_, XGroup>,
        panels: &[&[F::Group]; 2],
        step: Step,
        end: usize,
    ) -> Step {
        let Step { i, column, group, half } = step;
        if column >= end {
            return step;
        }
        let quads = 8 / F::Group::HALVES;
        let bytes: &[u8] = bytemuck::cast_slice(&x.tail(column)[group..]);
        let w = array(|k: usize| &panels[k][group].quads()[half * quads..][..quads]);
        self.tiles.multiply(&bytes[half * 4 * quads..], x.distance(1), w, &mut self.ring[i % RING]);
        match (half + 1 < F::Group::HALVES, group + 1 < panels[0].len()) {
            (true, _) => Step { i: i + 1, half: half + 1, ..step },
            (false, true) => Step { i: i + 1, group: group + 1, half: 0, ..step },
            (false, false) => Step { i: i + 1, column: column + COLUMNS, group: 0, half: 0 },
        }
    }
}

impl<F: Format, T: Tiles> Form for ByTiles<F, T> {
    type Format = F;
    type Group = F::Group;
    type X = XGroup;
    const UNPACKED: usize = form::Bytes::<F>::UNPACKED;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [F::Group]) {
        F::unpack(s, rows, out);
    }

    #[inline(always)]
    fn columns<'a, S: Simd>(
        &mut self,
        _: S,
        p: &Product<'a>,
        groups: &Range<usize>,
        room: &'a mut Arena,
    ) -> form::Columns<'a, XGroup> {
        // Rows of a tile are equally far apart.
        form::quantised(p, groups).in_order(room)
    }

    /// Adds the products of two panels with as many columns as are whole tiles; the first column that is left.
    #[inline(always)]
    fn multiply<S: Simd, const P: usize>(
        &mut self,
        s: S,
        columns: &form::Columns<'_, XGroup>,
        panels: [&[F::Group]; P],
        next: NextPanels<P>,
        sums: &mut [[f32; LANES]],
    ) -> usize {
        let ([panels], []) = panels.as_chunks::<2>() else { return 0 };
        let (n, distance, n_groups) = (columns.len(), columns.distance(COLUMNS), panels[0].len());
        let end = n / COLUMNS * COLUMNS;
        // As many as there are, which the compiler does not see: it would load the integers of all columns before it adds
        // any, and run out of registers.
        let n_columns = std::hint::black_box(COLUMNS);
        let mut begun = Step::default();
        for _ in 0..DEPTH {
            begun = self.begin(columns, panels, begun, end);
        }
        let mut i = 0;
        for first in (0..end).step_by(COLUMNS) {
            let x: [&[XGroup]; COLUMNS] = array(|c| columns.column(first + c));
            let share = next.share(first..first + COLUMNS, n, n_groups);
            let ahead = (NextColumns { x, distance }, share);
            let mut all = [[s.zero(); COLUMNS]; 2];
            for k in 0..2 {
                for c in 0..COLUMNS {
                    all[k][c] = s.load(&sums[k * n + first + c]);
                }
            }
            for g in 0..n_groups {
                ahead.prefetch_step(g);
                let (w, x) = (array(|k: usize| &panels[k][g]), array(|c: usize| &x[c][g]));
                for h in 0..F::Group::HALVES {
                    begun = self.begin(columns, panels, begun, end);
                    let (dots, scales) = (&self.ring[i % RING], F::Group::scales(s, w, h));
                    i += 1;
                    for c in 0..COLUMNS {
                        if c >= n_columns {
                            break;
                        }
                        let start = if F::Group::MINIMA { F::Group::START } else { x[c].sums[h] };
                        let start = s.splat_i(start);
                        let mut dot = [[start]; 2];
                        for k in 0..2 {
                            dot[k][0] = s.add_i(start, s.load_b(&dots.0[k][c]));
                        }
                        let sums = F::Group::add_scaled(s, scales, [x[c]], dot, [[all[0][c]], [all[1][c]]]);
                        (all[0][c], all[1][c]) = (sums[0][0], sums[1][0]);
                    }
                }
                all = F::Group::add_minima(s, w, x, all);
            }
            for k in 0..2 {
                for c in 0..COLUMNS {
                    s.store(all[k][c], &mut sums[k * n + first + c]);
                }
            }
        }
        end
    }
}
