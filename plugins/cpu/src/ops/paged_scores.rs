//! y[i, t] = Σₕ w[h, t] · max(qₕ · kᵢ, 0) for the keys of a paged cache. Members of the team take tiles of keys by tokens;
//! keys are decoded and packed once for all tokens of the tile, and multiplied as `attention` does for many queries.

use super::attention::kv_rows::KEYS;
use super::attention::scores::{self, Rows};
use super::check::{self, Answer, ensure};
use super::paging::{self, Paging, Reach, Sizes};
use super::{Args, Output, Worker, rows};
use crate::scratch::Scratch;
use crate::simd::{LANES, Simd, dispatch};
use llmrt_plugin::abi::op::PagedScoresParams;
use llmrt_plugin::{DType, NodeView, Reason};

/// Tiles of keys that are packed at a time, and tokens they are multiplied with.
const TILES: usize = 4;
const TOKENS: usize = 16;

/// Least queries of a product.
const MIN_ROWS: usize = 4;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(PagedScoresParams::from_bytes(node.params_bytes()))?;
    let [dim, n_heads, n_tokens, ne3] = check::floats(node, 0)?.ne();
    let cache = check::decodable(node, 1)?.ne();
    ensure(p.block_size > 0, Reason::Param)?;
    ensure(ne3 == 1 && cache == [dim, cache[1], 1, 1], Reason::Shape)?;
    paging::supports(node, 2)?;
    if let Some(weights) = check::optional_floats(node, 5)? {
        ensure(p.by_head == 0 && weights.ne() == [n_heads, n_tokens, 1, 1], Reason::Shape)?;
    }
    let n_positions = check::product(&[check::ints(node, 2)?.ne()[0], p.block_size as usize])?;
    let n_keys = n_positions / p.stride.max(1) as usize;
    let ne = if p.by_head == 0 { [n_keys, n_tokens, 1, 1] } else { [n_keys, n_heads, n_tokens, 1] };
    check::result(node, DType::F32, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(PagedScoresParams::from_bytes);
    let (isa, q, cache) = (w.isa, a.arg(0), a.arg(1));
    let [n, n_heads, n_tokens, _] = q.ne;
    let stride = p.stride.max(1) as usize;
    let n_rows = if p.by_head == 0 { 1 } else { n_heads };
    let (dim, n_queries) = (n.next_multiple_of(LANES), n_heads.max(MIN_ROWS));
    let Scratch { floats: [queries, keys, packed, dots, ..], panel: visible, rows: room, starts, .. } =
        &mut *w.scratch;
    let sizes = Sizes { block_size: p.block_size, n_slots: cache.ne[1], n_tokens };
    let paging = Paging::new(a, 2, sizes, Reach::CAUSAL, starts);
    let (queries, keys) = (queries.zeroed(n_queries * dim), keys.zeroed(TILES * KEYS * dim));
    let packed = packed.take::<[f32; LANES]>(TILES * KEYS / LANES * dim);
    let (dots, visible) = (dots.take::<[f32; KEYS]>(n_queries), visible.take::<[u32; 2]>(n_queries));
    dots.fill([0.0; KEYS]);

    // A dim for tokens of its own, in both forms of the result.
    let out = out.reshaped([a.dst.ne[0], n_rows, n_tokens, 1]);
    for mut tile in out.tiles([TILES * KEYS, n_rows, TOKENS, 1]) {
        let [places, _, tokens, _] = tile.dims();
        for token in tokens.clone() {
            (0..n_rows).for_each(|row| tile.row([row, token, 0]).fill(f32::NEG_INFINITY));
        }
        for seq in 0..paging.lens.len() {
            let of_seq = paging.queries(seq);
            let of_seq = of_seq.start.max(tokens.start)..of_seq.end.min(tokens.end);
            let Some(last) = of_seq.clone().last() else { continue };
            let at = |key: usize| (key + 1) * stride - 1;
            let sees = |token: usize, key: usize| at(key) as i64 <= paging.position(seq, token);

            let (mut found, mut n_found) = ([0; TILES * KEYS], 0);
            for key in places.clone().take_while(|&key| sees(last, key)) {
                let Some(slot) = paging.slot(seq, at(key)) else { continue };
                let row = rows::read(isa, cache, [slot, 0, 0], 0..n, room.take(n));
                keys[n_found * dim..][..n].copy_from_slice(row);
                (found[n_found], n_found) = (key, n_found + 1);
            }
            let tiles = n_found.div_ceil(KEYS);
            pack(isa, &keys[..tiles * KEYS * dim], dim, packed);

            for token in of_seq {
                for (head, to) in queries.chunks_exact_mut(dim.max(1)).take(n_heads).enumerate() {
                    to[..n].copy_from_slice(q.row([head, token, 0]));
                }
                let n_seen = found[..n_found].partition_point(|&key| sees(token, key));
                for (i, found) in found[..n_seen].chunks(KEYS).enumerate() {
                    visible.fill([0, found.len() as u32]);
                    let packed = &packed[i * KEYS / LANES * dim..][..KEYS / LANES * dim];
                    multiply(isa, &mut Rows { q: queries, dim, dots }, packed, visible);
                    if p.by_head == 0 {
                        let weights = a.src[5].as_ref().map(|t| t.row([token, 0, 0]));
                        weigh(isa, weights, &mut dots[..n_heads]);
                    }
                    for (row, scores) in dots[..n_rows].iter().enumerate() {
                        let to = tile.row([row, token, 0]);
                        found.iter().zip(scores).for_each(|(key, score)| to[key - places.start] = *score);
                    }
                }
            }
        }
    }
}

dispatch! {
    fn pack(keys: &[f32], dim: usize, packed: &mut [[f32; LANES]]) = pack_with;
    fn multiply(rows: &mut Rows<'_>, packed: &[[f32; LANES]], visible: &[[u32; 2]]) = multiply_with;
    fn weigh(weights: Option<&[f32]>, dots: &mut [[f32; KEYS]]) = weigh_with;
}

#[inline(always)]
fn pack_with<S: Simd>(s: S, keys: &[f32], dim: usize, packed: &mut [[f32; LANES]]) {
    scores::pack(s, keys, dim, packed, 0..keys.len() / (LANES * dim).max(1));
}

#[inline(always)]
fn multiply_with<S: Simd>(s: S, rows: &mut Rows<'_>, packed: &[[f32; LANES]], visible: &[[u32; 2]]) {
    scores::packed(s, rows, packed, visible);
}

/// Σₕ w[h] · max(dots[h], 0), which becomes the first row.
#[inline(always)]
fn weigh_with<S: Simd>(s: S, weights: Option<&[f32]>, dots: &mut [[f32; KEYS]]) {
    for group in 0..KEYS / LANES {
        let mut sum = s.zero();
        for (head, dots) in dots.iter().enumerate() {
            let score = s.max(s.load(&dots.as_chunks().0[group]), s.zero());
            sum = s.fma(s.splat(weights.map_or(1.0, |weights| weights[head])), score, sum);
        }
        if let Some(first) = dots.first_mut() {
            s.store(sum, &mut first.as_chunks_mut().0[group]);
        }
    }
}
