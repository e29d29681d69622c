//! The tiles of keys that a tile of queries sees, in order.

use super::kv_rows::{KEYS, Prefetch};
use super::query_tile::{KvTile, QueryTile};
use std::ops::Range;

/// Positions of a KV split, whole tiles.
pub const SPLIT: usize = 512;

/// Goes from tile to tile, one ahead for prefetching.
pub struct Walk<'a> {
    queries: &'a QueryTile<'a>,
    all: Range<usize>,
    next: KvTile,
    /// Of keys and of values.
    prefetch: [Prefetch<'a>; 2],
}

/// A tile of keys with slots.
pub struct Step {
    pub tile: KvTile,
    /// Whether a KV split ended before it.
    pub starts_split: bool,
    pub first_slot: usize,
}

impl<'a> Walk<'a> {
    /// Prefetches the first tile's rows, before any computation.
    pub fn new(queries: &'a QueryTile<'a>, prefetch: [Prefetch<'a>; 2]) -> Walk<'a> {
        let all = queries.keys();
        let next = queries.kv_tile(all.start / KEYS * KEYS, &all);
        for key in next.keys.clone() {
            prefetch.iter().for_each(|rows| rows.of(&next.slots).key(key));
        }
        Walk { queries, all, next, prefetch }
    }

    /// The next tile in which a key has a slot.
    pub fn next(&mut self) -> Option<Step> {
        let mut starts_split = false;
        while !self.next.keys.is_empty() {
            let following = self.queries.kv_tile(self.next.start + KEYS, &self.all);
            let tile = std::mem::replace(&mut self.next, following);
            starts_split |= tile.start.is_multiple_of(SPLIT);
            if let Some(&first_slot) = tile.slots.iter().find(|slot| **slot != usize::MAX) {
                return Some(Step { tile, starts_split, first_slot });
            }
        }
        None
    }

    /// What to prefetch beside a tile: the keys of the one after it, its values.
    pub fn prefetch<'b>(&'b self, tile: &'b KvTile) -> [Prefetch<'b>; 2] {
        [self.prefetch[0].of(&self.next.slots), self.prefetch[1].of(&tile.slots)]
    }
}
