//! Attention of the sequences of a step, as a case; a check that a kernel computes it.
#![allow(dead_code)]

use crate::common::Machine;
use crate::placed::{run, workspace};
use llmrt_abi::{DType, op::AttentionParams};
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Paged, Role};

/// Heads, the cache, and the sequences of a step: tokens in the cache with the new ones, and new ones.
#[derive(Clone)]
pub struct Prompt {
    pub dims: (u64, u64),
    pub heads: (u64, u64),
    pub cache: (DType, DType),
    pub seqs: Vec<(i32, i32)>,
    /// Tokens after them that belong to no sequence.
    pub n_unused: u64,
    pub params: AttentionParams,
    pub sinks: bool,
    /// q is times this, scores are divided by it.
    pub size: f32,
    /// Slots of a block.
    pub block: u64,
    /// Numbers before those of K in a row of its cache, and after them.
    pub gap: u64,
    pub tail: u64,
    /// V are the first numbers of K's rows.
    pub v_of_k: bool,
    /// Starts of sequences that bring nothing are 0, below those before them.
    pub loose: bool,
}

/// Two prompts that end within a tile, a decode and a few tokens between, a row that is not in use.
pub fn prompt() -> Prompt {
    Prompt {
        dims: (64, 64),
        heads: (4, 2),
        cache: (DType::F16, DType::F16),
        seqs: vec![(75, 40), (30, 1), (9, 5), (0, 0), (37, 37)],
        n_unused: 3,
        params: AttentionParams::default(),
        sinks: false,
        size: 1.0,
        block: 16,
        gap: 0,
        tail: 0,
        v_of_k: false,
        loose: false,
    }
}

impl Prompt {
    pub fn case(&self, name: &str) -> Case {
        let ((dim, dim_v), (n_heads, n_kv_heads)) = (self.dims, self.heads);
        let n_tokens = self.seqs.iter().map(|s| s.1 as u64).sum::<u64>() + self.n_unused;
        let n_seqs = self.seqs.len() as u64;
        let max_blocks =
            self.seqs.iter().map(|s| (s.0 as u64).div_ceil(self.block)).max().unwrap_or(0).max(1);
        let n_blocks = max_blocks * n_seqs;
        let params = AttentionParams {
            n_kv_heads: n_kv_heads as u32,
            block_size: self.block as u32,
            scale: (dim as f32).sqrt().recip() / self.size,
            ..self.params
        };
        Case::new(name, |g, ints| {
            let q = g.input("q", DType::F32, &[dim, n_heads, n_tokens]);
            let n_slots = n_blocks * self.block;
            let k_row = dim * n_kv_heads;
            let k = g.state("k", self.cache.0, &[k_row + self.gap + self.tail, n_slots], Role::KCache);
            let k = if self.gap + self.tail > 0 { g.slice(k, 0, self.gap, k_row) } else { k };
            let v = match self.v_of_k {
                true => g.slice(k, 0, 0, dim_v * n_kv_heads),
                false => g.state("v", self.cache.1, &[dim_v * n_kv_heads, n_slots], Role::VCache),
            };
            let paged = Paged {
                block_table: g.input("block_table", DType::I32, &[max_blocks, n_seqs]),
                seq_lens: g.input("seq_lens", DType::I32, &[n_seqs]),
                query_starts: g.input("query_starts", DType::I32, &[n_seqs + 1]),
            };
            // Every block once, in no order.
            let odd = (7..).step_by(2).find(|step| !n_blocks.is_multiple_of(*step)).unwrap();
            ints.push((paged.block_table, (0..n_blocks).map(|i| (i * odd % n_blocks) as i32).collect()));
            ints.push((paged.seq_lens, self.seqs.iter().map(|s| s.0).collect()));
            let mut starts = vec![0];
            starts.extend(self.seqs.iter().scan(0, |at, s| {
                *at += s.1;
                Some(*at)
            }));
            for (start, _) in starts.iter_mut().zip(&self.seqs).filter(|(_, s)| self.loose && s.1 == 0) {
                *start = 0;
            }
            ints.push((paged.query_starts, starts));
            let sinks = self.sinks.then(|| g.input("sinks", DType::F32, &[n_heads]));
            let q = g.scale(q, self.size);
            match sinks {
                Some(sinks) => g.attention_with_sinks(q, k, v, sinks, &paged, &params),
                None => g.attention(q, k, v, &paged, &params),
            };
        })
    }

    /// The error is at most this on a chip, by way of this kernel.
    #[track_caller]
    pub fn check(&self, chip: u32, name: &str, kernel: &str, nmse: f64) {
        let (m, case) = (Machine::new(&format!("queue=late,memory=2g,sm={chip}")), self.case(name));
        let stream = m.card(0).stream(1).unwrap();
        let error = run(&m.card(0), &stream, &case).unwrap().unwrap_or_else(|| panic!("{name}: refused"));
        assert_eq!(m.reports(), [""; 0], "{name} on sm_{chip}");
        assert!(error <= nmse, "{name} on sm_{chip}: NMSE {error:e}");
        assert_eq!(m.count(kernel), 1, "{name} on sm_{chip} goes by {kernel}");
        let (taken, limit) = (stream.pool_stats().unwrap().peak, workspace(&m.card(0), &case).unwrap());
        assert!(
            taken <= limit,
            "{name} on sm_{chip} takes {taken} bytes of scratch memory, its verdicts name {limit}"
        );
    }
}
