//! How the work of a step is cut into pieces that members of the team take.

use super::walk::SPLIT;
use crate::ops::paging::Paging;
use std::ops::Range;

/// Queries times heads of a tile, about: keys are dequantised and packed for each tile, so that many rows share that. Half as
/// many where threads would have few tiles each.
const TILE_ROWS: usize = 128;
/// Tiles of a thread from which on they are large.
const MANY_TILES: usize = 4;

/// How queries are cut into tiles, and tiles into pieces.
pub struct Tiles {
    n_kv_heads: usize,
    /// Heads of a KV head.
    n_group: usize,
    /// Heads of a tile.
    heads: usize,
    /// Tokens of a tile.
    tokens: usize,
    /// Whether each KV split of a tile is a piece of its own.
    pub by_depth: bool,
}

/// What a member does at a time.
pub struct Piece {
    pub seq: usize,
    pub kv_head: usize,
    pub heads: Range<usize>,
    pub tokens: Range<usize>,
    /// Which KV split, from the first one that a query of the sequence sees.
    pub split: usize,
    /// The keys' positions.
    pub positions: Range<usize>,
}

/// The KV splits that queries of a sequence see; at least one.
pub fn splits(paging: &Paging<'_>, seq: usize) -> Range<usize> {
    let keys = paging.keys(seq, &paging.queries(seq));
    let first = keys.start / SPLIT;
    first..keys.end.div_ceil(SPLIT).max(first + 1)
}

impl Tiles {
    /// Tiles of about [`TILE_ROWS`]. Where they would leave threads idle they are cut by depth, if they may be, and then, if
    /// there are still fewer than threads, by heads.
    pub fn new(
        n_threads: usize,
        paging: &Paging<'_>,
        n_heads: usize,
        n_kv_heads: usize,
        may_cut_by_depth: bool,
    ) -> Tiles {
        let n_group = n_heads / n_kv_heads;
        let tokens = |rows: usize| (rows / n_group).max(1);
        let mut tiles =
            Tiles { n_kv_heads, n_group, heads: n_group, tokens: tokens(TILE_ROWS), by_depth: false };
        if tiles.count(paging) < MANY_TILES * n_threads {
            tiles.tokens = tokens(TILE_ROWS / 2);
        }
        tiles.by_depth = may_cut_by_depth && tiles.leave_idle(n_threads, paging);
        let mut n_pieces = tiles.count(paging);
        while n_pieces > 0 && n_pieces < n_threads && tiles.heads > 1 {
            tiles.heads = tiles.heads.div_ceil(2);
            n_pieces = tiles.count(paging);
        }
        tiles
    }

    /// Whether the busiest thread has an eighth more than its share: the longest tile, or one more than others have.
    fn leave_idle(&self, n_threads: usize, paging: &Paging<'_>) -> bool {
        let (mut count, mut longest, mut total) = (0, 0, 0);
        for seq in 0..paging.lens.len() {
            let (n, n_splits) = (self.tiles_of(paging, seq), splits(paging, seq).len());
            count += n;
            total += n * n_splits;
            longest = longest.max(if n > 0 { n_splits } else { 0 });
        }
        let in_rounds = count.div_ceil(n_threads) * total / count.max(1);
        longest > 1 && 8 * longest.max(in_rounds) * n_threads > 9 * total
    }

    fn tiles_of(&self, paging: &Paging<'_>, seq: usize) -> usize {
        let n_chunks = paging.queries(seq).len().div_ceil(self.tokens);
        n_chunks * self.n_kv_heads * self.n_group.div_ceil(self.heads)
    }

    fn per_tile(&self, paging: &Paging<'_>, seq: usize) -> usize {
        if self.by_depth { splits(paging, seq).len() } else { 1 }
    }

    fn count(&self, paging: &Paging<'_>) -> usize {
        let of_seq = |seq| self.tiles_of(paging, seq) * self.per_tile(paging, seq);
        (0..paging.lens.len()).map(of_seq).sum()
    }

    /// Piece `i`; later tokens, which see more keys, come first.
    pub fn piece(&self, paging: &Paging<'_>, mut i: usize) -> Option<Piece> {
        for seq in 0..paging.lens.len() {
            let per_tile = self.per_tile(paging, seq);
            let n = self.tiles_of(paging, seq) * per_tile;
            if i >= n {
                i -= n;
                continue;
            }
            let (split, i) = (i % per_tile, i / per_tile);
            let n_parts = self.n_group.div_ceil(self.heads);
            let (part, kv_head, chunk) =
                (i % n_parts, i / n_parts % self.n_kv_heads, i / n_parts / self.n_kv_heads);
            let head = kv_head * self.n_group + part * self.heads;
            let heads = head..(head + self.heads).min((kv_head + 1) * self.n_group);
            let queries = paging.queries(seq);
            let start = queries.start + (queries.len().div_ceil(self.tokens) - 1 - chunk) * self.tokens;
            let tokens = start..(start + self.tokens).min(queries.end);
            let at = (splits(paging, seq).start + split) * SPLIT;
            let positions = if self.by_depth { at..at + SPLIT } else { 0..usize::MAX };
            return Some(Piece { seq, kv_head, heads, tokens, split, positions });
        }
        None
    }
}
