//! Keys and values of a prompt as bytes, to be kept in a file and put back into another engine of the same model.

use crate::core::EngineCore;
use crate::error::{Error, Result};
use crate::kv::pool::BlockId;
use crate::kv::prefix::BlockHash;
use crate::runner::DeviceRunner;
use crate::sequence::TokenId;

/// The rows of a prompt's first tokens in every cache.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvState {
    /// The tokens whose rows these are.
    pub tokens: Vec<TokenId>,
    /// One entry per cache, ordered by name.
    pub caches: Vec<CacheRows>,
}

impl KvState {
    /// Keeps the first `n` tokens.
    pub fn truncate(&mut self, n: usize) {
        self.tokens.truncate(n);
        self.caches.iter_mut().for_each(|cache| cache.rows.truncate(n * cache.row_bytes));
    }
}

/// Rows of one cache, one per token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CacheRows {
    /// The state's name, such as `blk.0.k_cache`.
    pub name: String,
    /// Bytes of a row.
    pub row_bytes: usize,
    /// `[n_tokens, row_bytes]`.
    pub rows: Vec<u8>,
}

impl EngineCore<DeviceRunner> {
    /// The rows of the first tokens of a text that the prefix cache holds.
    pub fn export_prefix(&self, tokens: &[TokenId]) -> Result<KvState> {
        self.check_has_rows()?;
        let (blocks, n_tokens) = self.scheduler().cached_prefix(BlockHash::ROOT, tokens);
        let size = self.scheduler().pool().block_size();
        let mut caches = Vec::new();
        for (name, row_bytes) in self.cache_rows() {
            let n = size * row_bytes;
            let mut rows = vec![0; blocks.len() * n];
            for (block, part) in blocks.iter().zip(rows.chunks_exact_mut(n)) {
                self.runner().executor_ref().read_state(&name, u64::from(block.0) * n as u64, part)?;
            }
            rows.truncate(n_tokens * row_bytes);
            caches.push(CacheRows { name, row_bytes, rows });
        }
        Ok(KvState { tokens: tokens[..n_tokens].to_vec(), caches })
    }

    /// Puts rows into the prefix cache, where requests that begin with their tokens find them, and where their last block is
    /// not full, a request that begins with all of them. Returns how many tokens these are.
    pub fn import_prefix(&mut self, state: &KvState) -> Result<usize> {
        self.check_has_rows()?;
        self.check(state)?;
        let size = self.scheduler().pool().block_size();
        let (scheduler, runner) = self.parts();
        let write = &mut |i: usize, block: BlockId| {
            for CacheRows { name, row_bytes, rows } in &state.caches {
                let n = size * row_bytes;
                let part = &rows[i * n..rows.len().min((i + 1) * n)];
                runner.executor().write_state(name, u64::from(block.0) * n as u64, part)?;
            }
            Ok(())
        };
        scheduler.insert_prefix(BlockHash::ROOT, &state.tokens, write)
    }

    /// An error if caches are not rows by token.
    fn check_has_rows(&self) -> Result<()> {
        let pools = self.scheduler().device();
        let problem = match (pools.is_recurrent(), pools.windows.is_empty()) {
            (true, _) => "the model has recurrent states, which have none",
            (_, false) => {
                "the model's layers with a window have those of its end only: keep whole contexts (--swa-full)"
            }
            _ => return Ok(()),
        };
        Err(Error::BadState { problem: problem.into() })
    }

    /// An error if rows cannot be those of the engine's caches.
    fn check(&self, state: &KvState) -> Result<()> {
        let found = state.caches.iter().map(|cache| (cache.name.clone(), cache.row_bytes));
        if !found.eq(self.cache_rows()) {
            let problem = "its caches have other names or rows of other sizes than the model's".into();
            return Err(Error::BadState { problem });
        }
        let n_tokens = state.tokens.len();
        match state
            .caches
            .iter()
            .find(|cache| Some(cache.rows.len()) != n_tokens.checked_mul(cache.row_bytes))
        {
            None => Ok(()),
            Some(cache) => Err(Error::BadState {
                problem: format!(
                    "`{}` has {} bytes: expected {n_tokens} rows of {}",
                    cache.name,
                    cache.rows.len(),
                    cache.row_bytes
                ),
            }),
        }
    }

    /// The caches by name, with the bytes of a row.
    fn cache_rows(&self) -> Vec<(String, usize)> {
        let size = self.scheduler().pool().block_size();
        let caches = self.runner().caches().into_iter();
        caches.map(|cache| (cache.name, cache.n_bytes as usize / size)).collect()
    }
}
