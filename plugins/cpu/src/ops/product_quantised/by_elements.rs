//! Products of matrices by columns with a few columns of activations that are mostly zeros: elements for zeros are not read.
//! Integer sums are exact in any order, and a group of zeros alone adds nothing where scales are finite, so bits are those of
//! the whole product.

use super::active::{self, Active, Blocks, Quad};
use crate::ops::output::Tile;
use crate::ops::product::{FEW_BY_ELEMENTS as FEW, Product};
use crate::quant::{ByColumns, Format, GROUP, PANELS, Panel, ROWS, RowsOf, XGroup};
use crate::scratch::Scratch;
use crate::simd::{LANES, STRIP, Simd, array};
use std::ops::Range;

/// Sums of a panel.
type Sums = [f32; LANES];

/// Whether the columns are few, and have enough zeros: each is multiplied alone, where many share what is unpacked.
pub fn is_worth(p: &Product<'_>) -> bool {
    let n_columns = p.columns.len();
    // One in so many activations may count.
    let rare = match n_columns {
        0..=4 => return true,
        5..=8 => 2,
        9..=FEW => 4,
        _ => return false,
    };
    n_active(p) * rare <= n_columns * p.w.ne[0]
}

/// Elements of all columns that are not zero.
fn n_active(p: &Product<'_>) -> usize {
    let n_groups = p.w.ne[0] / GROUP;
    let groups = p.columns.iter().flat_map(|column| &p.quantised[column.x * n_groups..][..n_groups]);
    groups.map(|x| active::non_zeros(x).count_ones() as usize).sum()
}

/// Rows of a matrix by columns times at most [`FEW`] columns.
#[inline(always)]
pub fn few_columns<S: Simd, F: Format>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    scratch: &mut Scratch,
) {
    match F::STRIPS {
        1 => in_turns::<S, F, 1>(s, p, y, rows, scratch),
        2 => in_turns::<S, F, 2>(s, p, y, rows, scratch),
        4 => in_turns::<S, F, 4>(s, p, y, rows, scratch),
        _ => in_turns::<S, F, 8>(s, p, y, rows, scratch),
    }
}

/// Bytes of blocks that are prefetched while those before them are multiplied: half of a small first cache.
const BYTES_AT_ONCE: usize = 16 << 10;

/// How many blocks of some rows are multiplied together: of one column, as many as stay in the first cache; of several, which
/// are bound by instructions, the most.
#[inline(always)]
fn blocks_at_once<F: Format>(p: &Product<'_>, n_rows: usize) -> usize {
    let most = active::at_once::<F>();
    if p.columns.len() > 1 || most == 1 {
        return most;
    }
    let n_bytes = n_rows * F::BLOCK_BYTES * n_active(p) / p.w.ne[0];
    (BYTES_AT_ONCE / n_bytes.max(1)).clamp(1, most)
}

/// Some blocks after others, and of each the strips that share bytes in turn, while a share of the next blocks is prefetched.
#[inline(always)]
fn in_turns<S: Simd, F: Format, const STRIPS: usize>(
    s: S,
    p: &Product<'_>,
    y: &mut Tile<'_>,
    rows: &Range<usize>,
    scratch: &mut Scratch,
) {
    let (n_groups, m, n_panels) = (p.w.ne[0] / GROUP, p.w.ne[1], rows.len() / ROWS);
    let (n_turns, n_columns) = (n_panels / (STRIPS * PANELS), p.columns.len());
    let sums = scratch.sums.take::<Sums>(n_panels * n_columns);
    sums.fill([0.0; LANES]);
    // Blocks that are multiplied together, and their groups.
    let n_blocks = blocks_at_once::<F>(p, rows.len());
    let n = n_blocks * F::GROUPS;
    let scales = scratch.rows.take::<F::Group>(STRIPS * PANELS * n);
    let (mut now, mut next) = scratch.panel.take::<Active>(2 * FEW).split_at_mut(FEW);
    let x: [&[XGroup]; FEW] = array(|c| {
        let column = p.columns.get(c).map_or(&[][..], |column| &p.quantised[column.x * n_groups..]);
        &column[..n_groups.min(column.len())]
    });

    let mut blocks = None;
    let bytes =
        p.w.bytes()[..m * n_groups / F::GROUPS * F::BLOCK_BYTES].chunks(n_blocks * m * F::BLOCK_BYTES);
    for (i, bytes) in bytes.map(Some).chain([None]).enumerate() {
        let next_blocks = bytes.map(|bytes| Blocks { bytes, m, rows });
        if let Some(blocks) = &next_blocks {
            for (active, x) in next[..n_columns].iter_mut().zip(&x) {
                active.find::<F>(&x[i * n..n_groups.min((i + 1) * n)], blocks);
            }
        }
        let blocks = std::mem::replace(&mut blocks, next_blocks)
            .filter(|_| now[..n_columns].iter().any(|active| active.n > 0));
        for turn in 0..n_turns {
            if let Some(blocks) = &next_blocks {
                blocks.prefetch_share::<F>(&next[..n_columns], turn, n_turns);
            }
            let Some(blocks) = &blocks else { continue };
            let first = rows.start + turn * STRIPS * STRIP;
            for (panel, scales) in scales.chunks_exact_mut(n).enumerate() {
                for (columns, scales) in blocks.each::<F>().zip(scales.chunks_exact_mut(F::GROUPS)) {
                    F::scales(s, RowsOf { columns, first: first + panel * ROWS }, scales);
                }
            }
            let columns = ByColumns { block: blocks.bytes, m };
            for ((c, active), sums) in
                now[..n_columns].iter().enumerate().zip(sums.chunks_exact_mut(n_panels))
            {
                let sums = &mut sums[turn * STRIPS * PANELS..][..STRIPS * PANELS];
                add_turn::<S, F, STRIPS>(
                    s,
                    columns,
                    active.quads(),
                    &x[c][(i - 1) * n..],
                    turn,
                    scales,
                    sums,
                );
            }
        }
        std::mem::swap(&mut now, &mut next);
    }
    for (column, sums) in p.columns.iter().zip(sums.chunks_exact(n_panels)) {
        let y = y.part(y.unravel(column.y), rows.clone());
        y.as_chunks_mut::<LANES>().0.copy_from_slice(sums);
    }
}

/// Adds the products of some strips of blocks with a column's groups, of which `x` begins with theirs, to their sums.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn add_turn<S: Simd, F: Format, const STRIPS: usize>(
    s: S,
    columns: ByColumns<'_>,
    quads: &[Quad],
    x: &[XGroup],
    turn: usize,
    scales: &[F::Group],
    sums: &mut [Sums],
) {
    let n = scales.len() / (STRIPS * PANELS);
    let mut all = [[[[s.zero()]]; PANELS]; STRIPS];
    for (strip, sums) in sums.chunks_exact(PANELS).enumerate() {
        for panel in 0..PANELS {
            all[strip][panel] = [[s.load(&sums[panel])]];
        }
    }
    for quads in quads.chunk_by(|a, b| a.group == b.group) {
        let g = quads[0].group as usize;
        let x = &x[g];
        let mut dots = [[[F::Group::start(s, x, 0); PANELS]; STRIPS]; 2];
        if F::Group::HALVES == 2 {
            dots[1] = [[F::Group::start(s, x, 1); PANELS]; STRIPS];
        }
        for quad in quads {
            add_quad::<S, F, STRIPS>(s, columns, quad, turn, &mut dots);
        }
        for strip in 0..STRIPS {
            for panel in 0..PANELS {
                let group = &scales[(strip * PANELS + panel) * n + g];
                let mut sums = all[strip][panel];
                for h in 0..F::Group::HALVES {
                    let scales = F::Group::scales(s, [group], h);
                    sums = F::Group::add_scaled(s, scales, [x], [[dots[h][strip][panel]]], sums);
                }
                all[strip][panel] = F::Group::add_minima(s, [group], [x], sums);
            }
        }
    }
    for (strip, sums) in sums.chunks_exact_mut(PANELS).enumerate() {
        for panel in 0..PANELS {
            s.store(all[strip][panel][0][0], &mut sums[panel]);
        }
    }
}

/// Adds the products of four elements to the dots of each half, of the strips of a turn.
#[inline(always)]
fn add_quad<S: Simd, F: Format, const STRIPS: usize>(
    s: S,
    columns: ByColumns<'_>,
    quad: &Quad,
    turn: usize,
    dots: &mut [[[S::I; PANELS]; STRIPS]; 2],
) {
    let planes =
        [strips_of::<F, STRIPS, 0>(columns, quad, turn), strips_of::<F, STRIPS, 1>(columns, quad, turn)];
    add_panel::<S, F, STRIPS, 0>(s, &planes, quad, dots);
    add_panel::<S, F, STRIPS, 1>(s, &planes, quad, dots);
    add_panel::<S, F, STRIPS, 2>(s, &planes, quad, dots);
    add_panel::<S, F, STRIPS, 3>(s, &planes, quad, dots);
}

/// Strips of bytes of a plane, as many as strips of rows share them.
type Strips<'a, const STRIPS: usize> = [[&'a [u8; STRIP]; 4]; STRIPS];

/// Those of four elements, if the format has the plane.
#[inline(always)]
fn strips_of<'a, F: Format, const STRIPS: usize, const PLANE: usize>(
    columns: ByColumns<'a>,
    quad: &Quad,
    turn: usize,
) -> Strips<'a, STRIPS> {
    let mut strips = [[&[0; STRIP]; 4]; STRIPS];
    if let Some(plane) = F::PLANES.get(PLANE) {
        let n = STRIPS / plane.in_byte();
        for j in 0..n {
            for i in 0..4 {
                strips[j][i] = columns.strip(quad.at[PLANE][i] as usize + turn * n + j);
            }
        }
    }
    strips
}

/// The same of panel `PANEL` of each strip alone.
#[inline(always)]
fn add_panel<S: Simd, F: Format, const STRIPS: usize, const PANEL: usize>(
    s: S,
    planes: &[Strips<'_, STRIPS>; 2],
    quad: &Quad,
    dots: &mut [[[S::I; PANELS]; STRIPS]; 2],
) {
    let mut stored = [s.splat_i(0); STRIPS];
    add_bits::<S, F, STRIPS, PANEL, 0>(s, &planes[0], &mut stored);
    add_bits::<S, F, STRIPS, PANEL, 1>(s, &planes[1], &mut stored);
    for h in 0..F::Group::HALVES {
        if F::Group::HALVES == 1 || quad.x[h] != [0; 4] {
            let x = s.splat_i(i32::from_le_bytes(quad.x[h]));
            for strip in 0..STRIPS {
                let of_rows = F::integers(s, stored[strip]);
                dots[h][strip][PANEL] = F::Group::add_quad(s, dots[h][strip][PANEL], of_rows, x);
            }
        }
    }
}

/// Adds the bits of a plane, if the format has it, to those of four elements of a panel of each strip.
#[inline(always)]
fn add_bits<S: Simd, F: Format, const STRIPS: usize, const PANEL: usize, const PLANE: usize>(
    s: S,
    strips: &Strips<'_, STRIPS>,
    stored: &mut [S::I; STRIPS],
) {
    if let Some(plane) = F::PLANES.get(PLANE) {
        let (n, mask) = (plane.in_byte(), s.splat_i(plane.mask()));
        for j in 0..STRIPS / n {
            let bytes = s.zip_strip(strips[j], PANEL);
            for k in 0..n {
                let bits = s.and(s.shr(bytes, k as u32 * plane.bits), mask);
                stored[j * n + k] = s.or(stored[j * n + k], s.shl(bits, plane.up));
            }
        }
    }
}
