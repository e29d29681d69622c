//! Which keys of a paged cache each token sees, computed on the card from block table, sequence lengths and query
//! starts: nothing is read back, and shapes do not depend on what is in them. Once per graph, for all layers.
//!
//! All is F32 without fractions. Query i of n of a sequence of length l has position l - n + i; a query start counts as
//! no less than those before it and as no more than the number of tokens.

use super::ids;
use super::steps::{EXACT, has};
use crate::call::{Call, Key, run};
use crate::library::Cann;
use crate::operand::Operand;
use crate::ops::check::{self, Answer, ensure};
use crate::ops::missing;
use crate::sys::*;
use llmrt_plugin::{NodeView, Reason, Result};

/// Where the sequences of a step are in the cache.
pub struct Paging {
    /// I32 [max_blocks, n_seqs], I32 [n_seqs], I32 [n_seqs + 1].
    table: Operand,
    lens: Operand,
    starts: Operand,
    /// Rows of the tensors above, for keys.
    rows: Vec<u32>,
    /// Tokens of the step.
    pub n_tokens: i64,
    /// Slots of a block.
    pub block_size: i64,
    /// Blocks of the cache.
    pub n_blocks: i64,
    /// Keys a query sees at most; 0: all.
    pub window: i64,
}

/// Checks the three sources from `first` on, and sizes.
pub fn supports(cann: &Cann, node: &NodeView<'_>, first: usize, n_slots: usize, block_size: usize) -> Answer {
    has!(cann, math.aclnnCast, math.aclnnArange, math.aclnnTril, math.aclnnTopk, math.aclnnClamp)?;
    has!(cann, math.aclnnSub, math.aclnnAdd, math.aclnnMul, math.aclnnMuls, math.aclnnAdds)?;
    has!(cann, math.aclnnReduceSum, math.aclnnGtScalar, math.aclnnInplaceCopy, nn.aclnnGatherV2)?;
    let [table, lens, starts] = [0, 1, 2].map(|i| check::ints(node, first + i));
    let (table, lens, starts) = (table?.ne(), lens?.ne(), starts?.ne());
    let n_seqs = table[1];
    ensure(table[2..] == [1, 1] && table[0] > 0 && n_seqs > 0, Reason::Shape)?;
    ensure(lens == [n_seqs, 1, 1, 1] && starts == [n_seqs + 1, 1, 1, 1], Reason::Shape)?;
    let room = table[0].saturating_mul(block_size).saturating_mul(n_seqs);
    ensure(block_size > 0 && room <= EXACT && n_slots <= EXACT, Reason::Shape)
}

impl Paging {
    /// The three sources from `first` on, with sizes as in the fields.
    pub fn of(
        node: &NodeView<'_>,
        first: usize,
        n_tokens: i64,
        block_size: i64,
        n_blocks: i64,
        window: u32,
    ) -> Result<Paging> {
        let t = |i| node.src(first + i).ok_or_else(missing);
        let (table, lens, starts) = (t(0)?, t(1)?, t(2)?);
        Ok(Paging {
            table: Operand::of(&table)?.flat(2),
            lens: Operand::of(&lens)?.flat(1),
            starts: Operand::of(&starts)?.flat(1),
            rows: vec![table.id(), lens.id(), starts.id()],
            n_tokens,
            block_size,
            n_blocks,
            window: window.into(),
        })
    }

    /// Sequences.
    pub fn n_seqs(&self) -> i64 {
        self.table.ne[1]
    }

    /// Blocks of a sequence at most.
    pub fn max_blocks(&self) -> i64 {
        self.table.ne[0]
    }

    /// Tokens of a sequence at most.
    pub fn capacity(&self) -> i64 {
        self.max_blocks() * self.block_size
    }

    fn key(&self, what: &'static str) -> Key {
        let numbers = [self.n_tokens, self.block_size, self.n_blocks, self.window];
        Key(what, self.rows.clone(), numbers.map(i64::to_ne_bytes).concat())
    }

    /// [n_seqs, n_tokens]: 1 where a token is one of a sequence's queries.
    pub fn members(&self, call: &mut Call<'_>) -> Result<Operand> {
        let ne = [self.n_seqs(), self.n_tokens];
        call.shared(self.key("members"), ACL_FLOAT, &ne, |call, members| {
            let (starts, tokens) = (self.starts_in_order(call)?, self.tokens(call)?);
            let n = self.n_seqs();
            let past_end = call.temporary(ACL_FLOAT, &ne)?;
            for (at, y) in [(0, members), (1, &past_end)] {
                // 1 where token - start + 1 is above 0
                call.sub(&tokens, &starts.slice(0, at, n), y)?;
                call.shift(y, 1.0, y)?;
                call.clamp(y, 0.0, 1.0, y)?;
            }
            call.sub(members, &past_end, members)
        })
    }

    /// [n_tokens]: each token's position in its sequence; -1 for tokens of none.
    pub fn positions(&self, call: &mut Call<'_>) -> Result<Operand> {
        let members = self.members(call)?;
        call.shared(self.key("positions"), ACL_FLOAT, &[self.n_tokens], |call, positions| {
            let (starts, tokens, n) = (self.starts_in_order(call)?, self.tokens(call)?, self.n_seqs());
            let lens = call.cast(&self.lens, ACL_FLOAT)?;
            call.sub(&lens, &starts.slice(0, 1, n), &lens)?;
            call.shift(&lens, 1.0, &lens)?;
            let each = call.temporary(ACL_FLOAT, &members.ne)?;
            call.add(&tokens, &lens, &each)?;
            call.mul(&each, &members, &each)?;
            call.sum(&each, 0, &positions.with_dim(0))?;
            call.shift(positions, -1.0, positions)
        })
    }

    /// [n_seqs + 1]: the query starts, none below one before it.
    fn starts_in_order(&self, call: &mut Call<'_>) -> Result<Operand> {
        let n = self.n_seqs() + 1;
        let starts = call.cast(&self.starts, ACL_FLOAT)?;
        call.clamp(&starts, 0.0, self.n_tokens as f32, &starts)?;
        let (all, so_far) = (call.temporary(ACL_FLOAT, &[n, n])?, call.temporary(ACL_FLOAT, &[n, n])?);
        call.copy(&starts, &all)?;
        let (from, to) = (call.tensor(&all)?, call.tensor(&so_far)?);
        run!(call, math.aclnnTril(from, 0, to))?;
        Ok(super::largest::largest(call, &so_far)?.reshape(&[n]))
    }

    /// [1, n_tokens]: 0, 1, 2, …
    fn tokens(&self, call: &mut Call<'_>) -> Result<Operand> {
        let tokens = call.temporary(ACL_FLOAT, &[self.n_tokens])?;
        call.count(0.0, 1.0, &tokens)?;
        Ok(tokens.with_dim(0))
    }

    /// I32 [max_blocks, n_seqs]: the table, 0 for blocks that the cache does not have.
    pub fn blocks(&self, call: &mut Call<'_>) -> Result<Operand> {
        call.shared(self.key("blocks"), ACL_INT32, &self.table.ne, |call, blocks| {
            let (ids, valid) = self.table_and_valid(call)?;
            call.mul(&ids, &valid, &ids)?;
            call.convert(&ids, blocks)
        })
    }

    fn table_and_valid(&self, call: &mut Call<'_>) -> Result<(Operand, Operand)> {
        let (ids, valid) = (call.cast(&self.table, ACL_FLOAT)?, call.temporary(ACL_FLOAT, &self.table.ne)?);
        ids::in_range(call, &ids, self.n_blocks, &valid)?;
        Ok((ids, valid))
    }

    /// I32 [n_tokens]: each token's sequence; 0 for tokens of none.
    pub fn sequences(&self, call: &mut Call<'_>) -> Result<Operand> {
        let members = self.members(call)?;
        call.shared(self.key("sequences"), ACL_INT32, &[self.n_tokens], |call, sequences| {
            let numbers = call.temporary(ACL_FLOAT, &[self.n_seqs()])?;
            call.count(0.0, 1.0, &numbers)?;
            let each = call.temporary(ACL_FLOAT, &members.ne)?;
            call.mul(&members, &numbers, &each)?;
            let sum = call.temporary(ACL_FLOAT, &[1, self.n_tokens])?;
            call.sum(&each, 0, &sum)?;
            call.convert(&sum.reshape(&[self.n_tokens]), sequences)
        })
    }

    /// I32 [max_blocks, n_tokens]: the blocks of each token's sequence.
    pub fn blocks_of_tokens(&self, call: &mut Call<'_>) -> Result<Operand> {
        let (blocks, sequences) = (self.blocks(call)?, self.sequences(call)?);
        let ne = [self.max_blocks(), self.n_tokens];
        call.shared(self.key("token blocks"), ACL_INT32, &ne, |call, y| {
            call.gather(&blocks, 1, &sequences, y)
        })
    }

    /// [capacity, n_tokens]: 1 where a token sees a position of its own sequence, else 0.
    pub fn sees(&self, call: &mut Call<'_>) -> Result<Operand> {
        let (positions, sequences) = (self.positions(call)?, self.sequences(call)?);
        let ne = [self.capacity(), self.n_tokens];
        call.shared(self.key("sees"), ACL_FLOAT, &ne, |call, sees| {
            self.within_reach(call, &positions, sees)?;
            let (_, valid) = self.table_and_valid(call)?;
            let mine = call.temporary(ACL_FLOAT, &[self.max_blocks(), self.n_tokens])?;
            call.gather(&valid, 1, &sequences, &mine)?;
            let in_blocks = sees.reshape(&[self.block_size, self.max_blocks(), self.n_tokens]);
            call.mul(&in_blocks, &mine.with_dim(0), &in_blocks)
        })
    }

    /// [capacity, n_seqs, n_tokens]: 1 where a token sees a position of a sequence, else 0.
    pub fn sees_all(&self, call: &mut Call<'_>) -> Result<Operand> {
        let (members, sees) = (self.members(call)?, self.sees(call)?);
        let ne = [self.capacity(), self.n_seqs(), self.n_tokens];
        call.shared(self.key("sees all"), ACL_FLOAT, &ne, |call, all| {
            call.mul(&sees.with_dim(1), &members.with_dim(0), all)
        })
    }

    /// y [capacity, n_tokens] = 1 where a position is not past the token's and within its window.
    fn within_reach(&self, call: &mut Call<'_>, positions: &Operand, y: &Operand) -> Result<()> {
        let lag = self.lag(call, positions)?;
        call.shift(&lag, 1.0, y)?;
        call.clamp(y, 0.0, 1.0, y)?;
        if self.window > 0 {
            call.affine(&lag, -1.0, self.window as f32, &lag)?;
            call.clamp(&lag, 0.0, 1.0, &lag)?;
            call.mul(y, &lag, y)?;
        }
        Ok(())
    }

    /// [capacity, n_tokens]: how far a position is before the token's.
    fn lag(&self, call: &mut Call<'_>, positions: &Operand) -> Result<Operand> {
        let keys = call.temporary(ACL_FLOAT, &[self.capacity()])?;
        call.count(0.0, 1.0, &keys)?;
        let lag = call.temporary(ACL_FLOAT, &[self.capacity(), self.n_tokens])?;
        call.sub(&positions.with_dim(0), &keys, &lag)?;
        Ok(lag)
    }

    /// [capacity, n_tokens]: minus how far a position that the token sees is before its own, else 0.
    pub fn distances(&self, call: &mut Call<'_>) -> Result<Operand> {
        let (positions, sees) = (self.positions(call)?, self.sees(call)?);
        call.shared(self.key("distances"), ACL_FLOAT, &sees.ne, |call, y| {
            let lag = self.lag(call, &positions)?;
            call.mul(&lag, &sees, y)?;
            call.scale(y, -1.0, y)
        })
    }

    /// BOOL, in the dims of `sees`: where a token does not see.
    pub fn hidden(&self, call: &mut Call<'_>, what: &'static str, sees: &Operand) -> Result<Operand> {
        call.shared(self.key(what), ACL_BOOL, &sees.ne, |call, y| not(call, sees, y))
    }

    /// BOOL [n_tokens]: tokens that see nothing.
    pub fn blind(&self, call: &mut Call<'_>) -> Result<Operand> {
        let sees = self.sees(call)?;
        call.shared(self.key("blind"), ACL_BOOL, &[self.n_tokens], |call, y| {
            let sum = call.temporary(ACL_FLOAT, &[1, self.n_tokens])?;
            call.sum(&sees, 0, &sum)?;
            not(call, &sum.reshape(&[self.n_tokens]), y)
        })
    }
}

/// y = x is below ½, as BOOL.
fn not(call: &mut Call<'_>, x: &Operand, y: &Operand) -> Result<()> {
    let turned = call.temporary(ACL_FLOAT, &x.ne)?;
    call.affine(x, -1.0, 1.0, &turned)?;
    let (x, y, half) = (call.tensor(&turned)?, call.tensor(y)?, call.float(0.5)?);
    run!(call, math.aclnnGtScalar(x, half, y))
}

#[cfg(test)]
impl Paging {
    /// Sizes without memory.
    pub fn sized(n_tokens: i64, n_seqs: i64, block_size: i64) -> Paging {
        let ints = |ne: &[i64]| Operand::contiguous(ACL_INT32, ne, std::ptr::null_mut());
        let (table, lens, starts) = (ints(&[4, n_seqs]), ints(&[n_seqs]), ints(&[n_seqs + 1]));
        Paging { table, lens, starts, rows: vec![], n_tokens, block_size, n_blocks: 8, window: 0 }
    }
}
