//! Steps of few shapes: a batch is padded with sequences of one token each, to one of few numbers of sequences, so that the
//! programs of all decode steps can be made before the first.

use super::{Batch, index};
use crate::sequence::SequenceId;
use llmrt_models::config::MAX_NGRAM;

/// Tokens of the narrowest block table.
const MIN_TABLE_TOKENS: usize = 256;

/// Columns of the block table of a step whose longest sequence has `needed` blocks: a power of two, at most `max_blocks`. What
/// devices compute by the table's width so grows with the sequences and not with the context size.
pub(crate) fn table_width(needed: usize, block_size: usize, max_blocks: usize) -> usize {
    needed.next_power_of_two().max(MIN_TABLE_TOKENS / block_size).min(max_blocks)
}

/// Sequences that are added to a step. Their tokens go to blocks after those of the pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Padding {
    /// Most sequences of a step.
    pub max_seqs: usize,
    /// The first state slot of padding.
    pub first_state: usize,
    /// Tokens in a block.
    pub block_size: usize,
}

impl Padding {
    /// The number of sequences that `n` are padded to: powers of two, and one and a half times these.
    pub fn bucket(self, n: usize) -> usize {
        let power = n.next_power_of_two();
        let between = power / 4 * 3;
        (if n <= between { between } else { power }).min(self.max_seqs).max(n)
    }

    /// All numbers that sequences are padded to.
    pub fn buckets(self) -> Vec<usize> {
        let mut buckets: Vec<usize> = (1..=self.max_seqs).map(|n| self.bucket(n)).collect();
        buckets.dedup();
        buckets
    }

    /// Most sequences that are added to a step.
    pub fn max_added(self) -> usize {
        (1..=self.max_seqs).map(|n| self.bucket(n) - n).max().unwrap_or(0)
    }

    /// Blocks that these take.
    pub fn n_blocks(self) -> usize {
        self.max_added().div_ceil(self.block_size)
    }
}

impl Batch {
    /// The batch with as many sequences as its bucket has; `None` where it has these. A sequence of padding is a token at
    /// position 0 that reads the first slot of padding and writes one of its own, so no result of others depends on it. Where
    /// rows of logits are requested, at most one of each sequence, there are as many as sequences.
    pub(crate) fn padded(&self, padding: Padding) -> Option<Batch> {
        let n_seqs = self.n_seqs();
        let n_added = padding.bucket(n_seqs) - n_seqs;
        if n_seqs > padding.max_seqs {
            return None;
        }
        let n_rows = self.n_outputs();
        let is_rowwise = (1..=n_seqs).contains(&n_rows);
        let n_padded_rows = if is_rowwise { n_seqs + n_added - n_rows } else { 0 };
        if n_added == 0 && n_padded_rows == 0 {
            return None;
        }
        let mut batch = self.clone();
        batch.state_slots.truncate(n_seqs);
        let mut written = self.state_slots.get(n_seqs..).unwrap_or_default().to_vec();
        for i in 0..n_added {
            batch.tokens.push(0);
            batch.before.extend([-1; MAX_NGRAM - 1]);
            batch.positions.push(0);
            for paged in &mut batch.paged {
                paged.slots.push(index(paged.n_blocks * padding.block_size + i));
                paged.block_table.push(index(paged.n_blocks));
                paged.block_table.extend(std::iter::repeat_n(0, self.max_blocks - 1));
            }
            batch.seq_lens.push(1);
            batch.query_starts.push(index(batch.tokens.len()));
            batch.ids.push(SequenceId(u64::MAX));
            batch.encoder.push_padding();
            batch.state_slots.push(-1);
            written.push(index(padding.first_state + i));
        }
        batch.hidden.resize(self.hidden.len() / self.n_tokens().max(1) * batch.n_tokens(), 0);
        batch.state_slots.extend(written);
        // Any row will do: it is not read.
        let last = index(batch.tokens.len() - 1);
        batch.output_ids.extend(std::iter::repeat_n(last, n_padded_rows));
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{EncoderArrays, PagedArrays};

    const PADDING: Padding = Padding { max_seqs: 20, first_state: 40, block_size: 16 };

    #[test]
    fn numbers_of_sequences_fall_into_few_buckets() {
        assert_eq!(PADDING.buckets(), [1, 2, 3, 4, 6, 8, 12, 16, 20]);
        assert_eq!((PADDING.max_added(), PADDING.n_blocks()), (3, 1));
        let large = Padding { max_seqs: 256, ..PADDING };
        assert_eq!((large.buckets().len(), large.max_added(), large.n_blocks()), (16, 63, 4));
        assert!((1..=256).all(|n| large.bucket(n) >= n && large.bucket(n) * 2 <= n * 3));
        let one = Padding { max_seqs: 1, ..PADDING };
        assert_eq!((one.buckets(), one.n_blocks()), (vec![1], 0));
    }

    #[test]
    fn tables_are_as_wide_as_their_longest_sequence_requires() {
        let widths = [1, 16, 17, 33, 1000].map(|needed| table_width(needed, 16, 1500));
        assert_eq!(widths, [16, 16, 32, 64, 1024]);
        assert_eq!((table_width(1025, 16, 1500), table_width(3, 16, 8)), (1500, 8));
        assert_eq!([1, 2, 3].map(|needed| table_width(needed, 128, 12)), [2, 2, 4], "256 tokens at least");
    }

    #[test]
    fn padding_is_a_token_of_its_own_in_slots_of_its_own() {
        let batch = Batch {
            tokens: vec![5; 6],
            before: vec![-1; 6 * (MAX_NGRAM - 1)],
            positions: vec![3, 0, 1, 9, 9, 9],
            paged: vec![
                PagedArrays {
                    window: 0,
                    n_blocks: 7,
                    slots: vec![3, 16, 17, 41, 57, 73],
                    block_table: vec![0, 0, 1, 0, 2, 0, 3, 0, 4, 0],
                },
                PagedArrays { window: 8, n_blocks: 5, slots: vec![3; 6], block_table: vec![0; 10] },
            ],
            seq_lens: vec![4, 2, 10, 10, 10],
            query_starts: vec![0, 1, 3, 4, 5, 6],
            ids: (0..5).map(SequenceId).collect(),
            state_slots: vec![0, 2, 4, 6, 8, 1, 3, 5, 7, 9],
            output_ids: vec![0, 3, 4, 5],
            rows: Vec::new(),
            encoder: EncoderArrays::default(),
            hidden: Vec::new(),
            max_blocks: 2,
        };
        let padded = batch.padded(PADDING).unwrap();
        assert_eq!((padded.n_seqs(), padded.n_tokens(), padded.n_outputs()), (6, 7, 6));
        assert_eq!((padded.tokens[6], padded.positions[6], padded.seq_lens[5]), (0, 0, 1));
        for (paged, block) in padded.paged.iter().zip([7, 5]) {
            assert_eq!((paged.slots[6], &paged.block_table[10..]), (block * 16, &[block, 0][..]));
        }
        assert_eq!(padded.query_starts, [0, 1, 3, 4, 5, 6, 7]);
        assert_eq!(padded.state_slots, [0, 2, 4, 6, 8, -1, 1, 3, 5, 7, 9, 40]);
        assert_eq!(padded.output_ids, [0, 3, 4, 5, 6, 6]);
        assert_eq!(padded.padded(PADDING), None, "it has its bucket's number of sequences");
        // Rows of logits of a whole prompt are as many as there are.
        let prompt = Batch { output_ids: (0..6).collect(), ..batch };
        assert_eq!(prompt.padded(PADDING).unwrap().n_outputs(), 6);
    }
}
