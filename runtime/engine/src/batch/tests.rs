//! The exact arrays of a step.

use super::*;
use proptest::prelude::*;

/// Blocks of 4 tokens. Sequence 1 has computed 5 of its 6 tokens, sequence 2 is a prompt of 7, sequence 3 one of 9.
fn queue(pool: &mut CachePools) -> Vec<Sequence> {
    let mut a = Sequence::new(SequenceId(1), vec![10, 11, 12, 13, 14, 15]).unwrap();
    assert!(a.grow(5, pool));
    a.advance(5);
    let b = Sequence::new(SequenceId(2), (20..27).collect()).unwrap();
    let c = Sequence::new(SequenceId(3), (30..39).collect()).unwrap();
    vec![a, b, c]
}

fn pool() -> CachePools {
    CachePools::new(16, 0, 4).unwrap()
}

/// Chunks of sequences, which get blocks for all their tokens.
fn chunks(queue: &mut [Sequence], pool: &mut CachePools, chunks: &[(u64, usize)]) -> Vec<ScheduledChunk> {
    let chunk = |&(id, n_new): &(u64, usize)| {
        let seq = queue.iter_mut().find(|seq| seq.id.0 == id);
        seq.into_iter().for_each(|seq| assert!(seq.grow(usize::MAX, pool)));
        ScheduledChunk { id: SequenceId(id), n_new }
    };
    chunks.iter().map(chunk).collect()
}

/// The arrays of these chunks, with the logits of the last tokens or of all.
fn batch(
    queue: &[Sequence],
    pool: &CachePools,
    chunks: &[ScheduledChunk],
    max_blocks: usize,
    all: bool,
) -> Result<Batch> {
    let logits_from = all.then_some(0);
    let find = |id| queue.iter().find(|seq| seq.id == id).map(|seq| (seq, logits_from));
    Batch::new(chunks, find, pool, max_blocks)
}

#[test]
fn a_decode_a_prompt_and_a_chunk_give_these_arrays() {
    let mut pool = pool();
    let mut queue = queue(&mut pool);
    let chunks = chunks(&mut queue, &mut pool, &[(1, 1), (2, 7), (3, 4)]);
    let batch = batch(&queue, &pool, &chunks, 3, false).unwrap();

    assert_eq!(batch.tokens, [15, 20, 21, 22, 23, 24, 25, 26, 30, 31, 32, 33]);
    assert_eq!(batch.positions, [5, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3]);
    let before = |i: usize| &batch.before[i * (MAX_NGRAM - 1)..][..3];
    assert_eq!([before(0), before(1), before(3)], [&[14, 13, 12], &[-1, -1, -1], &[21, 20, -1]]);
    // Blocks 0 and 1 hold sequence 1, 2 and 3 sequence 2, 4 to 6 sequence 3, of which one is used so far.
    assert_eq!(batch.paged[0].slots, [5, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19]);
    assert_eq!(batch.paged[0].block_table, [0, 1, 0, 2, 3, 0, 4, 0, 0]);
    assert_eq!(batch.seq_lens, [6, 7, 4]);
    assert_eq!(batch.query_starts, [0, 1, 8, 12]);
    assert_eq!(batch.output_ids, [0, 7]);
    assert_eq!(
        batch.rows,
        [OutputRow { id: SequenceId(1), position: 5 }, OutputRow { id: SequenceId(2), position: 6 }]
    );
    let shape = (batch.n_tokens(), batch.n_seqs(), batch.n_outputs(), batch.max_blocks);
    assert_eq!(shape, (12, 3, 2, 3));
}

#[test]
fn all_logits_are_those_of_every_token() {
    let mut pool = pool();
    let mut queue = queue(&mut pool);
    let chunks = chunks(&mut queue, &mut pool, &[(1, 1), (2, 3)]);
    let batch = batch(&queue, &pool, &chunks, 2, true).unwrap();
    assert_eq!(batch.output_ids, [0, 1, 2, 3]);
    assert_eq!(batch.rows.iter().map(|row| row.position).collect::<Vec<_>>(), [5, 0, 1, 2]);
}

#[test]
fn an_empty_plan_gives_an_empty_batch() {
    let batch = batch(&[], &pool(), &[], 4, true).unwrap();
    assert_eq!((batch.n_tokens(), batch.n_seqs(), batch.query_starts), (0, 0, vec![0]));
}

#[test]
fn plans_that_do_not_match_the_queue_are_refused() {
    refused(&[(9, 1)], 4, "the plan names sequence 9, which is not in the queue");
    refused(
        &[(1, 2)],
        4,
        "the plan gives sequence 1 2 tokens: expected 1 to 1, what the sequence still lacks",
    );
    refused(
        &[(2, 7)],
        4,
        "sequence 2 needs 2 blocks in this step and has 0: schedule it before making a batch",
    );
    refused(
        &[(1, 1)],
        1,
        "sequence 1 needs 2 blocks and a row of the block table has 1: raise the context size (-c)",
    );
}

fn refused(of: &[(u64, usize)], max_blocks: usize, message: &str) {
    let mut pool = pool();
    let queue = queue(&mut pool);
    let chunks: Vec<_> = of.iter().map(|&(id, n_new)| ScheduledChunk { id: SequenceId(id), n_new }).collect();
    let error = batch(&queue, &pool, &chunks, max_blocks, false).unwrap_err();
    assert_eq!(error.to_string(), message);
}

proptest! {
    /// Reading the cache by the block table finds every token in the slot where it was written.
    #[test]
    fn the_block_table_leads_to_the_slots(
        lengths in prop::collection::vec(1..30u32, 1..6),
        block_size in 1..9usize,
        n_tokens in 1..40usize,
    ) {
        let mut pool = CachePools::new(200, 0, block_size).unwrap();
        let mut queue: Vec<_> = lengths.iter().enumerate()
            .map(|(i, &n)| Sequence::new(SequenceId(i as u64), (0..n).map(|t| t + 100 * i as u32).collect()).unwrap())
            .collect();
        let mut cache = vec![-1; 200 * block_size];
        loop {
            // Oldest first, until the tokens of a step are spent.
            let mut n_left = n_tokens;
            let of: Vec<_> = queue.iter().filter_map(|seq| {
                let n_new = seq.n_missing().min(n_left);
                n_left -= n_new;
                (n_new > 0).then_some((seq.id.0, n_new))
            }).collect();
            if of.is_empty() {
                break;
            }
            let chunks = chunks(&mut queue, &mut pool, &of);
            let batch = batch(&queue, &pool, &chunks, 30, false).unwrap();
            for (&slot, &token) in batch.paged[0].slots.iter().zip(&batch.tokens) {
                cache[slot as usize] = token;
            }
            for (s, chunk) in chunks.iter().enumerate() {
                let row = &batch.paged[0].block_table[s * batch.max_blocks..][..batch.max_blocks];
                let seq = &mut queue[chunk.id.0 as usize];
                for position in 0..batch.seq_lens[s] as usize {
                    let slot = row[position / block_size] as usize * block_size + position % block_size;
                    prop_assert_eq!(cache[slot], seq.tokens()[position] as i32);
                }
                let n_queries = batch.query_starts[s + 1] - batch.query_starts[s];
                prop_assert_eq!(n_queries as usize, chunk.n_new);
                seq.advance(chunk.n_new);
            }
        }
        prop_assert!(queue.iter().all(|seq| seq.n_missing() == 0));
    }
}
