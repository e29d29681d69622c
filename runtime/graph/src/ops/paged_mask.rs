//! y[slot, token] = 0 where the token's query may see the key in that slot of the paged cache, -inf elsewhere.
//!
//! Result: F32 [n_slots, n_tokens].

use super::{Inferred, Rules, case::Case, check, ragged, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::op::{AttentionParams, PagedMaskParams};
use llmrt_abi::{DType, Op};
use std::ops::Range;

impl Graph {
    /// The mask [n_slots, n_tokens] that [`Graph::attention`] with these attributes would apply.
    pub fn paged_mask(
        &mut self,
        block_table: Tensor,
        seq_lens: Tensor,
        query_starts: Tensor,
        n_slots: u64,
        n_tokens: u64,
        p: &AttentionParams,
    ) -> Tensor {
        // More than u32 holds is more than any mask can have; the shape rule refuses the largest.
        let fit = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let params = PagedMaskParams {
            block_size: p.block_size,
            window: p.window,
            n_slots: fit(n_slots),
            n_tokens: fit(n_tokens),
            bidirectional: p.bidirectional,
            chunk: p.chunk,
        };
        let src = [Some(block_table), Some(seq_lens), Some(query_starts)];
        self.push(Op::PagedMask, &src, &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(PagedMaskParams::from_bytes(params))?;
    let PagedMaskParams { block_size, n_slots, n_tokens, .. } = p;
    if block_size == 0 || n_slots == u32::MAX || n_tokens == u32::MAX {
        return Err(format!(
            "blocks of {block_size}, {n_slots} slots, {n_tokens} tokens: blocks of at least 1, less than 2³²-1 of the others"
        ));
    }
    check_paging(src, 0)?;
    Ok((DType::F32, [p.n_slots as u64, p.n_tokens as u64, 1, 1]))
}

/// Checks block table, sequence lengths and query starts, from source `first` on.
pub(super) fn check_paging(src: &[Option<&TensorDef>], first: usize) -> Result<(), String> {
    let table = check::ints(src, first, "block table")?;
    if table.ne[2..] != [1, 1] {
        return Err(format!("block table is {:?}, expected [max_blocks, n_seqs]", table.ne));
    }
    let n_seqs = table.ne[1];
    check::vector(check::ints(src, first + 1, "sequence lengths")?, n_seqs, "sequence lengths")?;
    check::vector(check::ints(src, first + 2, "query starts")?, n_seqs.saturating_add(1), "query starts")
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = PagedMaskParams::from_bytes(params).unwrap_or_default();
    let n_slots = p.n_slots as usize;
    let reach = Reach { window: p.window, chunk: p.chunk, bidirectional: p.bidirectional != 0 };
    let mut y = vec![f32::NEG_INFINITY; n_slots * p.n_tokens as usize];
    for (token, query) in queries(src, 0, p.n_tokens as usize) {
        for key in visible_keys(src, 0, query, reach, p.block_size) {
            if let Some(slot) = slot_of(src, 0, query.seq, key, p.block_size, n_slots) {
                y[token * n_slots + slot] = 0.0;
            }
        }
    }
    Value::f32([p.n_slots as u64, p.n_tokens as u64, 1, 1], y)
}

/// Which keys of its sequence a query sees, by their positions.
#[derive(Clone, Copy)]
pub(super) struct Reach {
    pub(super) window: u32,
    pub(super) chunk: u32,
    pub(super) bidirectional: bool,
}

impl Reach {
    /// Positions that a query at `pos` of a sequence of `len` tokens sees; none where `pos` is before the sequence.
    fn positions(self, pos: i64, len: i64) -> Range<i64> {
        if pos < 0 {
            return 0..0;
        }
        let window = i64::from(self.window);
        let (mut start, mut end) = match (self.bidirectional, window) {
            (false, 0) => (0, pos + 1),
            (false, _) => (pos - window + 1, pos + 1),
            (true, 0) => (0, len),
            (true, _) => (pos - window / 2, pos + window / 2 + 1),
        };
        if self.chunk > 0 {
            let chunk = i64::from(self.chunk);
            start = start.max(pos / chunk * chunk);
            end = end.min(pos / chunk * chunk + chunk);
        }
        start.max(0)..end.min(len)
    }
}

/// One query: its sequence, that one's tokens, and its position there.
#[derive(Clone, Copy)]
pub(super) struct Query {
    pub(super) seq: usize,
    pub(super) len: i64,
    pub(super) pos: i64,
}

/// Tokens that are queries of a sequence: query i of a sequence of length l with n queries has position l - n + i.
pub(super) fn queries(
    src: &[Option<&Value>],
    first: usize,
    n_tokens: usize,
) -> impl Iterator<Item = (usize, Query)> {
    let (lens, starts) = (check::arg(src, first + 1).ints(), check::arg(src, first + 2).ints());
    lens.iter().zip(ragged::ranges(starts, n_tokens)).enumerate().flat_map(|(seq, (&len, tokens))| {
        let (len, end) = (i64::from(len), tokens.end as i64);
        tokens.map(move |t| (t, Query { seq, len, pos: len - end + t as i64 }))
    })
}

/// Positions of the keys that a query sees and that are in the block table.
pub(super) fn visible_keys(
    src: &[Option<&Value>],
    first: usize,
    query: Query,
    reach: Reach,
    block_size: u32,
) -> Range<i64> {
    let room = (check::arg(src, first).ne[0] as i64).saturating_mul(block_size as i64);
    let seen = reach.positions(query.pos, query.len);
    seen.start..seen.end.min(room)
}

/// The slot of position `key` of a sequence, if its block is in the table and in the cache.
pub(super) fn slot_of(
    src: &[Option<&Value>],
    first: usize,
    seq: usize,
    key: i64,
    block_size: u32,
    n_slots: usize,
) -> Option<usize> {
    let table = check::arg(src, first);
    let (block_size, max_blocks) = (block_size as usize, table.ne[0] as usize);
    let (row, offset) = (key as usize / block_size, key as usize % block_size);
    let block = if row < max_blocks { table.ints()[seq * max_blocks + row] } else { return None };
    let slot = usize::try_from(block).ok()?.checked_mul(block_size)?.checked_add(offset)?;
    (slot < n_slots).then_some(slot)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let reaches = [0, 1, 3, 100].map(|window| (window, 0, 0)).into_iter();
    let both_ways = [(0, 0, 1), (1, 0, 1), (4, 0, 1), (5, 0, 1), (0, 3, 1), (4, 3, 1)];
    for (window, chunk, bidirectional) in reaches.chain([(0, 1, 0), (0, 4, 0), (2, 4, 0)]).chain(both_ways) {
        let name = format!("window {window}, chunk {chunk}, bidirectional {bidirectional}");
        cases.push(Case::new(format!("three sequences, one empty, {name}"), |g, ints| {
            let table = g.input("block_table", DType::I32, &[3, 3]);
            let lens = g.input("seq_lens", DType::I32, &[3]);
            let starts = g.input("query_starts", DType::I32, &[4]);
            ints.push((table, vec![5, 0, 2, 1, 4, 0, 0, 0, 0]));
            ints.push((lens, vec![9, 5, 0]));
            ints.push((starts, vec![0, 1, 6, 6]));
            let p = AttentionParams { block_size: 4, window, chunk, bidirectional, ..Default::default() };
            g.paged_mask(table, lens, starts, 24, 8, &p);
        }));
    }
    for wild in [[0, 4, 0, 4], [-3, 2, 100, 5], [7, 0, 8, i32::MAX], [i32::MIN, -1, 0, -1]] {
        cases.push(Case::new(format!("query starts {wild:?}"), |g, ints| {
            let table = g.input("block_table", DType::I32, &[3, 3]);
            let lens = g.input("seq_lens", DType::I32, &[3]);
            let starts = g.input("query_starts", DType::I32, &[4]);
            ints.push((table, vec![5, 0, 2, 1, 4, 0, 3, 2, 1]));
            ints.push((lens, vec![9, 5, 12]));
            ints.push((starts, wild.to_vec()));
            let p = AttentionParams { block_size: 4, ..Default::default() };
            g.paged_mask(table, lens, starts, 24, 8, &p);
        }));
    }
    cases.push(Case::new("bidirectional, more queries than tokens", |g, ints| {
        let table = g.input("block_table", DType::I32, &[3, 2]);
        let lens = g.input("seq_lens", DType::I32, &[2]);
        let starts = g.input("query_starts", DType::I32, &[3]);
        ints.push((table, vec![5, 0, 2, 1, 4, 0]));
        ints.push((lens, vec![2, i32::MIN]));
        ints.push((starts, vec![0, 5, 8]));
        let p = AttentionParams { block_size: 4, bidirectional: 1, ..Default::default() };
        g.paged_mask(table, lens, starts, 24, 8, &p);
    }));
    cases
}
