//! A request as the scheduler sees it: its sequences, and what they share.

use crate::kv::pool::BlockId;
use crate::kv::pools::CachePools;
use crate::kv::prefix::BlockHash;
use crate::request::{Request, RequestId};
use crate::sequence::{Sequence, TokenId};
use std::cmp::Reverse;
use std::sync::Arc;

/// A request to schedule.
#[derive(Clone, PartialEq, Debug)]
pub struct NewGroup {
    /// Its name.
    pub id: RequestId,
    /// Its tokens, at least one.
    pub prompt: Vec<TokenId>,
    /// What an encoder reads before; empty without one.
    pub encoder_tokens: Arc<[TokenId]>,
    /// Most sequences that it has at once: `best_of`, or the beam width.
    pub width: usize,
    /// Whether its sequences are computed in the same steps, as beam search compares them.
    pub lockstep: bool,
    /// Larger goes first.
    pub priority: i32,
    /// Before the first block's hash: model, adapter, salt.
    pub root: BlockHash,
    /// Whether computed blocks of other requests are used; not where logits of all prompt tokens are required.
    pub reuses_prefix: bool,
    /// The position from which the logits of prompt tokens are required, if they are.
    pub logits_from: Option<usize>,
}

impl NewGroup {
    /// What the scheduler takes of a request.
    pub(crate) fn new(id: RequestId, request: &Request) -> NewGroup {
        NewGroup {
            id,
            prompt: request.known_tokens(),
            encoder_tokens: request.encoder_tokens.clone(),
            width: request.width(),
            lockstep: request.is_beam_search(),
            priority: request.priority,
            root: request.root(),
            reuses_prefix: true,
            logits_from: request.logits_from(),
        }
    }
}

/// A request and its live sequences.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// Its name.
    pub id: RequestId,
    /// Its live sequences: one with the prompt first, forks later.
    pub sequences: Vec<Sequence>,
    pub(super) width: usize,
    pub(super) lockstep: bool,
    pub(super) reuses_prefix: bool,
    pub(super) logits_from: Option<usize>,
    pub(super) has_run: bool,
    pub(super) is_aborted: bool,
    priority: i32,
    arrival: u64,
}

impl Group {
    pub(super) fn new(new: &NewGroup, sequence: Sequence, arrival: u64) -> Group {
        Group {
            id: new.id,
            sequences: vec![sequence],
            width: new.width.max(1),
            lockstep: new.lockstep,
            reuses_prefix: new.reuses_prefix,
            logits_from: new.logits_from.filter(|from| *from < new.prompt.len()),
            has_run: false,
            is_aborted: false,
            priority: new.priority,
            arrival,
        }
    }

    /// Its place in a queue: priority first, then arrival.
    pub(super) fn rank(&self) -> (Reverse<i32>, u64) {
        (Reverse(self.priority), self.arrival)
    }

    /// Whether sequence `i` may take blocks: those before it have computed what it may share with them.
    pub(super) fn is_ready(&self, i: usize) -> bool {
        let is_computed = |seq: &Sequence| seq.n_missing() <= 1;
        !self.sequences[i].blocks().ids().is_empty() || self.sequences[..i].iter().all(is_computed)
    }

    /// Whether all its sequences lack one token or none, as steps in lockstep require.
    pub(super) fn is_level(&self) -> bool {
        self.sequences.iter().all(|seq| seq.n_missing() <= 1 && !seq.blocks().ids().is_empty())
    }

    /// Rows of logits of prompt tokens, among the next `n_new` tokens of a sequence.
    pub(super) fn n_prompt_logits(&self, seq: &Sequence, n_new: usize) -> usize {
        let Some(from) = self.logits_from else { return 0 };
        let end = (seq.n_computed() + n_new).min(seq.n_prompt());
        end.saturating_sub(from.max(seq.n_computed()))
    }

    /// Tokens of a sequence that take at most `n_rows` rows of logits of prompt tokens.
    pub(super) fn n_within(&self, seq: &Sequence, n_rows: usize) -> usize {
        match self.logits_from {
            Some(from) if seq.n_computed() < seq.n_prompt() => from.saturating_sub(seq.n_computed()) + n_rows,
            _ => usize::MAX,
        }
    }

    /// Blocks that its ready sequences lack for all their known tokens; a block that is written and that others read counts,
    /// since it is copied.
    pub(super) fn n_lacking(&self, pools: &CachePools) -> usize {
        let pool = &pools.blocks;
        let mut users: Vec<(BlockId, u32)> = Vec::new();
        let mut n_lacking = 0;
        for (i, seq) in self.sequences.iter().enumerate() {
            if seq.n_missing() == 0 || !self.is_ready(i) {
                continue;
            }
            let held = match seq.blocks().ids().len() {
                0 => self.n_shareable_blocks(i, pools),
                n => n,
            };
            n_lacking += pool.blocks_for(seq.n_slots()).saturating_sub(held);
            if let Some(block) = seq.written_block(pool.block_size()) {
                let at = users.iter().position(|(b, _)| *b == block).unwrap_or_else(|| {
                    users.push((block, pool.n_users(block).unwrap_or(0)));
                    users.len() - 1
                });
                if users[at].1 > 1 {
                    n_lacking += 1;
                    users[at].1 -= 1;
                }
            }
        }
        n_lacking
    }

    /// Full blocks that sequence `i`, which has none, can share with those before it.
    fn n_shareable_blocks(&self, i: usize, pools: &CachePools) -> usize {
        let n_blocks = |other: &Sequence| self.sequences[i].n_shareable_blocks(other, pools);
        self.sequences[..i].iter().map(n_blocks).max().unwrap_or(0)
    }

    /// Blocks that all its sequences take from nothing, those with the same first tokens sharing full blocks, unless they
    /// have states or windows, whose first blocks the first sequence may have given back.
    pub(super) fn n_blocks_from_nothing(&self, pools: &CachePools) -> usize {
        let (pool, shares) = (&pools.blocks, self.shares_beginnings(pools));
        let blocks = |i: usize| {
            let seq = &self.sequences[i];
            let others = self.sequences[..i].iter().filter(|_| shares);
            let shared = others.map(|other| seq.n_common(other.tokens())).max().unwrap_or(0);
            pool.blocks_for(seq.n_slots()) - shared.min(seq.tokens().len() - 1) / pool.block_size()
        };
        (0..self.sequences.len()).map(blocks).sum()
    }

    fn shares_beginnings(&self, pools: &CachePools) -> bool {
        let has_encoder = self.sequences.iter().any(|seq| !seq.encoder_tokens().is_empty());
        !has_encoder && !pools.is_recurrent() && pools.windows.is_empty()
    }

    /// Distinct blocks of its tables, in order of first use.
    pub(super) fn distinct(&self) -> Vec<BlockId> {
        let mut distinct = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for block in self.sequences.iter().flat_map(|seq| seq.blocks().ids()) {
            if seen.insert(*block) {
                distinct.push(*block);
            }
        }
        distinct
    }

    /// Distinct states of its sequences.
    pub(super) fn n_states(&self) -> usize {
        let states = self.sequences.iter().filter_map(|seq| seq.state_slots().0);
        states.collect::<std::collections::HashSet<_>>().len()
    }
}
