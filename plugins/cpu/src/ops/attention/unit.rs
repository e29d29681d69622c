//! One unit of attention: some queries walk the keys that they see, tile by tile.

use super::numbers::{Ahead, KEYS, Numbers};
use super::softmax::{self, Running, Scores, alibi_slope};
use super::{scores, values};
use crate::ops::paging::Paging;
use crate::ops::rows;
use crate::scratch::Scratch;
use crate::simd::{Isa, LANES, Simd, array, dispatch};
use crate::tensor::Tensor;
use llmrt_plugin::DType;
use llmrt_plugin::abi::op::AttentionParams;
use std::ops::Range;

/// Positions of a part, whole tiles.
const PART: usize = 512;
/// Rows up to which keys and values are read from the cache each time, and not decoded first.
const FEW: usize = 8;

/// Queries of one sequence, with heads that share a KV head.
pub struct Unit<'a> {
    pub isa: Isa,
    pub p: &'a AttentionParams,
    pub paging: Paging<'a>,
    pub q: &'a Tensor,
    pub k: &'a Tensor,
    pub v: &'a Tensor,
    pub y: &'a Tensor,
    pub sinks: Option<&'a [f32]>,
    pub seq: usize,
    pub kv_head: usize,
    pub heads: Range<usize>,
    pub tokens: Range<usize>,
}

dispatch! {
    /// Makes the unit's rows of the result.
    pub fn attend(u: &Unit<'_>, scratch: &mut Scratch) = attend_with;
}

/// Memory of a unit. Row r is head r mod n of token r / n.
struct State<'a> {
    /// Queries and their dots with the tile's keys, which become weights.
    rows: scores::Rows<'a>,
    /// First key of the tile that is seen and the one past the last, per row.
    seen: &'a mut [[u32; 2]],
    running: &'a mut [Running],
    /// Weighted sums of values of this part, [rows, dim_v], dim_v a multiple of 16.
    sums: &'a mut [f32],
    /// The same of the parts before.
    total: &'a mut [f32],
    dim_v: usize,
}

/// Keys of a tile.
struct Tile {
    /// Position of the first one.
    start: usize,
    /// Those that some row sees.
    keys: Range<usize>,
    /// Their slots, `usize::MAX` where there is none.
    slots: [usize; KEYS],
}

#[inline(always)]
fn attend_with<S: Simd>(s: S, u: &Unit<'_>, scratch: &mut Scratch) {
    let n_rows = u.tokens.len() * u.heads.len();
    let head_dim = u.q.ne[0];
    let head_dim_v = u.y.ne[0] / u.q.ne[1];
    let (dim, dim_v) = (head_dim.next_multiple_of(LANES), head_dim_v.next_multiple_of(LANES));
    let Scratch { floats: [q, k, stage, v, sums, dots], sums: running, panel: seen, rows: room, .. } =
        scratch;
    let q = q.zeroed(n_rows * dim);
    for r in 0..n_rows {
        let [token, head] = u.row(r);
        q[r * dim..][..head_dim].copy_from_slice(u.q.row([head, token, 0]));
    }
    let (sums, total) = sums.zeroed(2 * n_rows * dim_v).split_at_mut(n_rows * dim_v);
    let running = running.take::<Running>(n_rows);
    running.fill(Running::EMPTY);
    let rows = scores::Rows { q, dim, dots: dots.take(n_rows) };
    let mut state = State { rows, seen: seen.take(n_rows), running, sums, total, dim_v };

    let few = n_rows <= FEW;
    let k_cache = Numbers::of_cache(u.k, u.kv_head, head_dim).filter(|_| few);
    let v_cache = Numbers::of_cache(u.v, u.kv_head, head_dim_v).filter(|_| few);
    let (k_ahead, v_ahead) = (Ahead::new(u.k, u.kv_head, head_dim), Ahead::new(u.v, u.kv_head, head_dim_v));
    let (turned, stage, v) = (
        k.take::<[f32; LANES]>(if few { 0 } else { KEYS / LANES * dim }),
        stage.zeroed(if k_cache.is_some() { 0 } else { KEYS * dim }),
        v.zeroed(if v_cache.is_some() { 0 } else { KEYS * dim_v }),
    );
    let all = u.keys();
    let mut next = u.tile(all.start / KEYS * KEYS, &all);
    while !next.keys.is_empty() {
        let following = u.tile(next.start + KEYS, &all);
        let tile = std::mem::replace(&mut next, following);
        if tile.start.is_multiple_of(PART) {
            state.join(s);
        }
        let Some(&any) = tile.slots.iter().find(|slot| **slot != usize::MAX) else { continue };
        state.see(u, &tile);

        // While keys are at work their values come, and with values the next keys.
        let ask_v = |key: usize| v_ahead.ask(s, tile.slots[key]);
        let ask_k = |key: usize| k_ahead.ask(s, next.slots[key]);
        match k_cache {
            Some(k) => {
                let slots = tile.slots.map(|slot| if slot == usize::MAX { any } else { slot });
                scores::few(s, &mut state.rows, k, &slots, tile.keys.clone(), ask_v);
            }
            None => {
                decode(s, u, u.k, &tile, stage, [head_dim, dim], room.take(u.k.ne[0]), ask_v);
                if few {
                    let k = Numbers::of_floats(stage, dim);
                    scores::few(s, &mut state.rows, k, &array(|i| i), tile.keys.clone(), |_| ());
                } else {
                    let groups = tile.keys.start / LANES..tile.keys.end.div_ceil(LANES);
                    scores::turn_over(s, stage, dim, turned, groups);
                    scores::many(s, &mut state.rows, turned, state.seen);
                }
            }
        }
        state.weigh(s, u, &tile);
        let mut rows =
            values::Rows { weights: state.rows.dots, sums: state.sums, dim: dim_v, seen: state.seen };
        match v_cache {
            Some(v) => values::add(s, &mut rows, v, &tile.slots, ask_k),
            None => {
                decode(s, u, u.v, &tile, v, [head_dim_v, dim_v], room.take(u.v.ne[0]), ask_k);
                let mut slots = array(|i| i);
                slots
                    .iter_mut()
                    .zip(tile.slots)
                    .for_each(|(to, slot)| *to = if slot == usize::MAX { slot } else { *to });
                values::add(s, &mut rows, Numbers::of_floats(v, dim_v), &slots, |_| ());
            }
        }
    }
    state.join(s);
    state.finish(s, u, head_dim_v);
}

impl Unit<'_> {
    /// Token and head of a row.
    fn row(&self, r: usize) -> [usize; 2] {
        [self.tokens.start + r / self.heads.len(), self.heads.start + r % self.heads.len()]
    }

    /// Positions that a query of the unit sees and that lie in the table.
    fn keys(&self) -> Range<usize> {
        let visible = |token: usize| self.paging.visible(self.paging.position(self.seq, token));
        let in_table = self.paging.table.ne[0].saturating_mul(self.paging.block_size);
        let (start, end) = (visible(self.tokens.start).start, visible(self.tokens.end - 1).end);
        start..end.min(in_table).max(start)
    }

    /// The tile at a position, of which `all` are wanted.
    fn tile(&self, start: usize, all: &Range<usize>) -> Tile {
        let at = |position: usize| position.clamp(start, start + KEYS) - start;
        let keys = at(all.start)..at(all.end);
        let mut slots = [usize::MAX; KEYS];
        self.paging.slots(self.seq, start + keys.start, &mut slots[keys.clone()]);
        Tile { start, keys, slots }
    }
}

impl State<'_> {
    /// Finds the keys of the tile that each row sees.
    fn see(&mut self, u: &Unit<'_>, tile: &Tile) {
        for (token, rows) in u.tokens.clone().zip(self.seen.chunks_exact_mut(u.heads.len())) {
            let visible = u.paging.visible(u.paging.position(u.seq, token));
            let clamp = |at: usize| (at.clamp(tile.start, tile.start + KEYS) - tile.start) as u32;
            rows.fill([clamp(visible.start), clamp(visible.end)]);
        }
    }

    #[inline(always)]
    fn weigh<S: Simd>(&mut self, s: S, u: &Unit<'_>, tile: &Tile) {
        let there = array(|key| if tile.slots[key] == usize::MAX { 0.0 } else { 1.0 });
        let all_there = tile.slots.iter().all(|slot| *slot != usize::MAX);
        for (r, (dots, running)) in self.rows.dots.iter_mut().zip(self.running.iter_mut()).enumerate() {
            let seen = self.seen[r];
            if seen[0] >= seen[1] {
                continue;
            }
            let [token, head] = u.row(r);
            let slope = if u.p.max_bias > 0.0 { alibi_slope(head, u.q.ne[1], u.p.max_bias) } else { 0.0 };
            let distance = u.paging.position(u.seq, token) - tile.start as i64;
            let there = (!all_there).then_some(&there);
            let of = Scores { p: u.p, slope, distance, seen, there };
            softmax::weigh(s, &of, dots, running, &mut self.sums[r * self.dim_v..][..self.dim_v]);
        }
    }

    /// Ends a part.
    #[inline(always)]
    fn join<S: Simd>(&mut self, s: S) {
        let sums = self.sums.chunks_exact_mut(self.dim_v).zip(self.total.chunks_exact_mut(self.dim_v));
        for (running, (sums, total)) in self.running.iter_mut().zip(sums) {
            softmax::join(s, running, sums, total);
        }
    }

    /// Divides by the sums of weights.
    #[inline(always)]
    fn finish<S: Simd>(&mut self, s: S, u: &Unit<'_>, head_dim_v: usize) {
        for (r, running) in self.running.iter().enumerate() {
            let [token, head] = u.row(r);
            let factor = softmax::share(s, running.before, u.sinks.map(|sinks| sinks[head]));
            // SAFETY: the unit's heads of the unit's tokens are this thread's alone.
            let y = unsafe { u.y.part_mut([token, 0, 0], head * head_dim_v..(head + 1) * head_dim_v) };
            y.iter_mut().zip(&self.total[r * self.dim_v..]).for_each(|(y, sum)| *y = sum * factor);
        }
    }
}

/// Decodes the head's part, `n` of `dim` elements, of the rows that have a slot; `room` has place for a whole row.
#[allow(clippy::too_many_arguments)]
#[inline(always)]
fn decode<S: Simd>(
    s: S,
    u: &Unit<'_>,
    cache: &Tensor,
    tile: &Tile,
    out: &mut [f32],
    [n, dim]: [usize; 2],
    room: &mut [f32],
    passing: impl Fn(usize),
) {
    let (elems, size) = (cache.dtype.block_elems(), cache.dtype.block_bytes());
    for (key, &slot) in tile.slots.iter().enumerate() {
        passing(key);
        if slot == usize::MAX || n == 0 {
            continue;
        }
        let (bytes, out) = (cache.row_bytes([slot, 0, 0]), &mut out[key * dim..][..n]);
        if !n.is_multiple_of(elems) {
            rows::decode(u.isa, cache.dtype, bytes, room);
            out.copy_from_slice(&room[u.kv_head * n..][..n]);
            continue;
        }
        let bytes = &bytes[u.kv_head * n / elems * size..][..n / elems * size];
        match cache.dtype {
            DType::F16 if n.is_multiple_of(LANES) => {
                for (v, to) in bytes.as_chunks::<32>().0.iter().zip(out.as_chunks_mut::<LANES>().0) {
                    s.store(s.load_f16(v), to);
                }
            }
            DType::Q8_0 => rows::from_q8_0_with(s, bytes, out),
            dtype => rows::decode(u.isa, dtype, bytes, out),
        }
    }
}
