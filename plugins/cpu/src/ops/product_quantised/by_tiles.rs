//! Products by tiles: eight columns at a time with two panels.
//!
//! Tiles make the products of integers, vectors add them to the sums: the same integers, scaled in the same order, so the
//! bits are those of [`Panel::add_products`]. Integers go through memory, from which they can be read some time after a
//! tile is stored; so each product begins [`DEPTH`] steps before it is added.

use super::ahead::{NextColumns, NextPanels};
use crate::ops::product::Product;
use crate::quant::{Format, Panel, XGroup};
use crate::simd::tiles::{COLUMNS, Dots, Tiles};
use crate::simd::{LANES, Prefetcher, Simd, array};
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// Steps from the beginning of a product to its use; a step is a half of a group, or a group if it has one scale.
const DEPTH: usize = 3;
/// Products of which there is room.
const RING: usize = DEPTH + 1;

/// Tiles of a thread and what they work with.
pub struct ByTiles<T> {
    tiles: T,
    ring: [Dots; RING],
    /// Integers of columns that are not one after the other: column by column, those of the groups at hand.
    gathered: Vec<[u8; 32]>,
    columns: Columns,
}

/// Where the integers of columns are: bytes to the first, from a column to the next, from a group to the next.
#[derive(Clone, Copy)]
struct Columns {
    is_gathered: bool,
    first: usize,
    column: usize,
    group: usize,
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

impl<T: Tiles> ByTiles<T> {
    /// Tiles shaped for a format, and room to gather columns in.
    #[inline(always)]
    pub fn new<F: Format>(machine: T::Machine, gathered: Vec<[u8; 32]>) -> ByTiles<T> {
        let columns = Columns { is_gathered: false, first: 0, column: 0, group: 0 };
        let tiles = T::shaped(machine, 8 / F::Group::HALVES);
        ByTiles { tiles, ring: [Dots::ZERO; RING], gathered, columns }
    }

    /// The room, for other products.
    pub fn room(self) -> Vec<[u8; 32]> {
        self.gathered
    }

    /// Finds groups of all columns, or gathers them, since rows of a tile are equally far apart.
    #[inline(always)]
    pub fn gather(&mut self, p: &Product<'_>, n_groups: usize, groups: &Range<usize>) {
        let start = p.columns.first().map_or(0, |column| column.x);
        let (is_gathered, first, column, group) = match p.columns.iter().zip(start..).all(|(c, x)| c.x == x) {
            true => (false, start * n_groups + groups.start, n_groups, size_of::<XGroup>()),
            false => (true, 0, groups.len(), 32),
        };
        self.columns = Columns { is_gathered, first: first * group, column: column * group, group };
        if is_gathered {
            self.gathered.clear();
            for column in p.columns {
                let x = &p.quantised[column.x * n_groups..][groups.clone()];
                self.gathered.extend(x.iter().map(|x| bytemuck::cast::<_, [u8; 32]>(x.q)));
            }
        }
    }

    /// Adds the products of two panels with as many columns as are whole tiles; the first column that is left.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    pub fn multiply<S: Simd, F: Format, const P: usize>(
        &mut self,
        s: S,
        p: &Product<'_>,
        n_groups: usize,
        groups: &Range<usize>,
        panels: [&[F::Group]; P],
        next: NextPanels<P>,
        sums: &mut [[f32; LANES]],
    ) -> usize {
        let ([panels], []) = panels.as_chunks::<2>() else { return 0 };
        let (n, distance) = (p.columns.len(), COLUMNS * n_groups * size_of::<XGroup>());
        let end = n / COLUMNS * COLUMNS;
        let mut begun = Step::default();
        for _ in 0..DEPTH {
            begun = self.begin::<F>(p, panels, begun, end);
        }
        let mut i = 0;
        for first in (0..end).step_by(COLUMNS) {
            let x: [&[XGroup]; COLUMNS] =
                array(|c| &p.quantised[p.columns[first + c].x * n_groups..][groups.clone()]);
            let share = next.share(first..first + COLUMNS, n, groups.len());
            let ahead = (NextColumns { x, distance }, share);
            let mut all: [[S::F; COLUMNS]; 2] = array(|k| array(|c| s.load(&sums[k * n + first + c])));
            for g in 0..groups.len() {
                ahead.prefetch_step(g);
                let (w, x) = (array(|k: usize| &panels[k][g]), array(|c: usize| &x[c][g]));
                for h in 0..F::Group::HALVES {
                    begun = self.begin::<F>(p, panels, begun, end);
                    let (dots, scales) = (&self.ring[i % RING], F::Group::scales(s, w, h));
                    i += 1;
                    for c in 0..COLUMNS {
                        let start = if F::Group::MINIMA { F::Group::START } else { x[c].sums[h] };
                        let start = s.splat_i(start);
                        let dot = array(|k| [s.add_i(start, s.load_b(&dots.0[k][c]))]);
                        let sums = F::Group::add_scaled(s, scales, [x[c]], dot, [[all[0][c]], [all[1][c]]]);
                        (all[0][c], all[1][c]) = (sums[0][0], sums[1][0]);
                        // The compiler would load the integers of all columns first, and run out of registers.
                        compiler_fence(Ordering::AcqRel);
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

    /// Begins the products of a step, unless it is past the last one; the next step.
    #[inline(always)]
    fn begin<F: Format>(
        &mut self,
        p: &Product<'_>,
        panels: &[&[F::Group]; 2],
        step: Step,
        end: usize,
    ) -> Step {
        let Step { i, column, group, half } = step;
        if column >= end {
            return step;
        }
        let quads = 8 / F::Group::HALVES;
        let bytes: &[u8] = match self.columns.is_gathered {
            true => self.gathered.as_flattened(),
            false => bytemuck::cast_slice(p.quantised),
        };
        let at = &self.columns;
        let x = &bytes[at.first + column * at.column + group * at.group + half * 4 * quads..];
        let w = array(|k: usize| &panels[k][group].quads()[half * quads..][..quads]);
        self.tiles.multiply(x, at.column, w, &mut self.ring[i % RING]);
        match (half + 1 < F::Group::HALVES, group + 1 < panels[0].len()) {
            (true, _) => Step { i: i + 1, half: half + 1, ..step },
            (false, true) => Step { i: i + 1, group: group + 1, half: 0, ..step },
            (false, false) => Step { i: i + 1, column: column + COLUMNS, group: 0, half: 0 },
        }
    }
}
