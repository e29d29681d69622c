//! A tile of queries, the work of one thread, and the tiles of keys that it walks.

use super::kv_rows::KEYS;
use crate::ops::paging::Paging;
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::abi::op::AttentionParams;
use std::ops::Range;

/// Queries of one sequence, with heads that share a KV head. Row r is head r mod n of token r / n.
pub struct QueryTile<'a> {
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
    /// Where the keys are that the tile walks: all positions, or those of a KV split.
    pub positions: Range<usize>,
    /// Slots of the keys that all rows see, and no others; then the tile walks this list. `usize::MAX` where there is none.
    pub chosen: Option<&'a [usize]>,
}

/// [`KEYS`] positions.
pub struct KvTile {
    /// The first one.
    pub start: usize,
    /// Those that some row sees.
    pub keys: Range<usize>,
    /// Their slots, `usize::MAX` where there is none.
    pub slots: [usize; KEYS],
}

impl QueryTile<'_> {
    /// Queries times heads.
    pub fn n_rows(&self) -> usize {
        self.tokens.len() * self.heads.len()
    }

    /// Token and head of a row.
    pub fn row(&self, r: usize) -> [usize; 2] {
        [self.tokens.start + r / self.heads.len(), self.heads.start + r % self.heads.len()]
    }

    /// Positions among those of the tile that one of the queries sees and that are in the block table.
    pub fn keys(&self) -> Range<usize> {
        if let Some(chosen) = self.chosen {
            return 0..chosen.len();
        }
        let seen = self.paging.keys(self.seq, &self.tokens);
        let start = seen.start.max(self.positions.start);
        start..seen.end.min(self.positions.end).max(start)
    }

    /// The tile of keys at a position, of which `all` are used.
    pub fn kv_tile(&self, start: usize, all: &Range<usize>) -> KvTile {
        let at = |position: usize| position.clamp(start, start + KEYS) - start;
        let keys = at(all.start)..at(all.end);
        let mut slots = [usize::MAX; KEYS];
        match self.chosen {
            None => self.paging.slots(self.seq, start + keys.start, &mut slots[keys.clone()]),
            Some(_) if keys.is_empty() => {}
            Some(chosen) => slots[keys.clone()].copy_from_slice(&chosen[start..][keys.clone()]),
        }
        KvTile { start, keys, slots }
    }

    /// The mask: for each row the first key of the tile that it sees and the one past the last.
    pub fn mask(&self, kv: &KvTile, visible: &mut [[u32; 2]]) {
        let clamp = |at: usize| (at.clamp(kv.start, kv.start + KEYS) - kv.start) as u32;
        if let Some(chosen) = self.chosen {
            return visible.fill([0, clamp(chosen.len())]);
        }
        for (token, rows) in self.tokens.clone().zip(visible.chunks_exact_mut(self.heads.len())) {
            let positions = self.paging.visible(self.seq, token);
            rows.fill([clamp(positions.start), clamp(positions.end)]);
        }
    }
}
