//! Situations and their plans, as text.
//!
//! A situation is the queue, oldest first: `name=computed/known`. A sequence that has computed tokens holds the
//! blocks for them. `pool=NxS` is a pool of N blocks of S tokens (64x16 if not named), `seqs=N` the limit of
//! sequences. An outcome lists the tokens of each sequence, then the preempted sequences, then those that are too long.

use super::*;
use crate::sequence::{Sequence, TokenId};
use crate::stop::Finish;
use proptest::prelude::*;

#[test]
fn a_prompt_runs_at_once() {
    check("a=0/7", 512, "a:7");
}

#[test]
fn a_generating_sequence_gets_one_token() {
    check("a=7/8", 512, "a:1");
}

#[test]
fn a_long_prompt_shares_the_step_with_decodes() {
    check("a=40/41 b=0/900", 512, "a:1 b:511");
}

#[test]
fn a_long_prompt_goes_on_where_its_last_chunk_ended() {
    check("a=41/42 b=511/900", 512, "a:1 b:389");
}

#[test]
fn younger_sequences_wait_when_the_budget_is_spent() {
    check("a=0/10 b=0/10 c=0/10", 15, "a:10 b:5");
}

#[test]
fn a_step_has_no_more_sequences_than_allowed() {
    check("seqs=2 a=1/2 b=1/2 c=1/2", 512, "a:1 b:1");
}

#[test]
fn who_lacks_nothing_is_passed_over() {
    check("a=5/5 b=3/4", 512, "b:1");
}

#[test]
fn an_empty_queue_gives_an_empty_plan() {
    check("", 512, "");
}

#[test]
fn a_prompt_waits_until_all_of_it_has_room() {
    check("pool=4x16 a=32/33 b=0/17", 512, "a:1");
    check("pool=5x16 a=32/33 b=0/17", 512, "a:1 b:17");
}

#[test]
fn no_sequence_overtakes_one_that_waits_for_room() {
    check("pool=4x16 a=32/33 b=0/17 c=0/1", 512, "a:1");
}

#[test]
fn the_youngest_makes_room_for_the_oldest() {
    check("pool=4x16 a=16/17 b=16/17 c=20/21", 512, "a:1 b:1 preempt c");
}

#[test]
fn only_as_many_make_room_as_must() {
    check("pool=6x16 a=32/33 b=20/21 c=20/21", 512, "a:1 b:1 preempt c");
    check("pool=4x16 a=16/40 b=16/17 c=16/17", 512, "a:24 preempt c");
    check("pool=6x16 a=16/40 b=16/17 c=16/17", 512, "a:24 b:1");
}

#[test]
fn a_preempted_sequence_starts_over_when_there_is_room() {
    check("pool=8x16 a=16/17 b=16/17 c=0/21", 512, "a:1 b:1 c:21");
}

#[test]
fn the_only_sequence_ends_when_it_fills_the_pool() {
    check("pool=2x16 a=32/33", 512, "never a");
}

#[test]
fn a_prompt_longer_than_the_pool_does_not_hold_up_the_others() {
    check("pool=2x16 a=0/33 b=0/32", 512, "b:32 never a");
}

#[test]
fn a_finished_sequence_does_not_run() {
    let mut pool = BlockPool::new(4, 16).unwrap();
    let mut queue = [Sequence::new(SequenceId(0), vec![1]).unwrap()];
    queue[0].finish = Some(Finish::Cancelled);
    assert!(schedule(&mut queue, &mut pool, Budget::tokens(8)).unwrap().is_empty());
}

#[test]
fn a_sequence_takes_over_what_another_computed_but_its_last_token() {
    let mut pool = BlockPool::new(8, 4).unwrap();
    let budget = Budget { prefix_cache: true, ..Budget::tokens(64) };
    let mut run = |id, tokens: &[TokenId]| {
        let mut queue = [Sequence::new(SequenceId(id), tokens.to_vec()).unwrap()];
        let plan = schedule(&mut queue, &mut pool, budget).unwrap();
        queue[0].advance(plan.n_tokens());
        queue[0].name_blocks(&mut pool).unwrap();
        queue[0].release(&mut pool).unwrap();
        (plan.n_tokens(), queue[0].n_cached())
    };
    assert_eq!(run(0, &[1, 2, 3, 4, 5, 6, 7, 8]), (8, 0));
    assert_eq!(run(1, &[1, 2, 3, 4, 5, 6, 7, 8]), (4, 4), "logits of the last token are required");
    assert_eq!(run(2, &[1, 2, 3, 4, 5, 6, 7, 8, 9]), (1, 8));
    assert_eq!(run(3, &[1, 2, 3, 4, 9, 9, 9, 9, 9]), (5, 4));
    assert_eq!(run(4, &[9, 2, 3, 4, 5]), (5, 0));
}

#[test]
fn without_the_prefix_cache_all_tokens_are_computed() {
    let mut pool = BlockPool::new(8, 4).unwrap();
    for id in 0..2 {
        let mut queue = [Sequence::new(SequenceId(id), vec![1; 9]).unwrap()];
        let plan = schedule(&mut queue, &mut pool, Budget::tokens(64)).unwrap();
        assert_eq!(plan.n_tokens(), 9);
        queue[0].advance(9);
        queue[0].name_blocks(&mut pool).unwrap();
        queue[0].release(&mut pool).unwrap();
    }
}

fn check(situation: &str, n_tokens: usize, outcome: &str) {
    let value = |key| situation.split_whitespace().find_map(|word| word.strip_prefix(key));
    let (n_blocks, block_size) = pair(value("pool=").unwrap_or("64x16"), 'x');
    let mut pool = BlockPool::new(n_blocks, block_size).unwrap();
    let n_seqs = value("seqs=").map_or(usize::MAX, |n| n.parse().unwrap());

    let sequences = situation.split_whitespace().filter(|word| !word.starts_with(['p', 's']));
    let mut queue: Vec<_> = sequences.map(|word| sequence(word, &mut pool)).collect();
    let plan = schedule(&mut queue, &mut pool, Budget { n_seqs, ..Budget::tokens(n_tokens) }).unwrap();
    assert_eq!(text(&plan), outcome, "{situation}, budget {n_tokens}");
}

/// `b=16/40`: sequence b has computed 16 of 40 known tokens.
fn sequence(word: &str, pool: &mut BlockPool) -> Sequence {
    let (n_computed, n_known) = pair(&word[2..], '/');
    let mut seq = Sequence::new(SequenceId(word.as_bytes()[0].into()), vec![0; n_known]).unwrap();
    assert!(seq.blocks.grow(n_computed, pool), "{word} does not fit the pool");
    seq.advance(n_computed);
    seq
}

fn pair(text: &str, separator: char) -> (usize, usize) {
    let (a, b) = text.split_once(separator).unwrap();
    (a.parse().unwrap(), b.parse().unwrap())
}

fn text(plan: &StepPlan) -> String {
    let name = |id: &SequenceId| char::from(id.0 as u8);
    let chunks = plan.chunks.iter().map(|chunk| format!("{}:{}", name(&chunk.id), chunk.n_new));
    let preempted = plan.preempted.iter().map(|id| format!("preempt {}", name(id)));
    let too_long = plan.too_long.iter().map(|id| format!("never {}", name(id)));
    chunks.chain(preempted).chain(too_long).collect::<Vec<_>>().join(" ")
}

proptest! {
    /// Generates with every sequence until all have their tokens, whatever the pool, the budget and the order.
    #[test]
    fn every_sequence_that_fits_the_pool_gets_all_tokens(
        lengths in prop::collection::vec((1..40usize, 1..30usize), 1..8), // prompt, generated
        n_blocks in 1..24usize,
        n_tokens in 1..50usize,
        n_seqs in 1..6usize,
    ) {
        let mut pool = BlockPool::new(n_blocks, 4).unwrap();
        let mut queue: Vec<_> = lengths.iter().enumerate()
            .map(|(i, &(n_prompt, _))| Sequence::new(SequenceId(i as u64), vec![0; n_prompt]).unwrap())
            .collect();
        for _ in 0..20_000 {
            let plan = schedule(&mut queue, &mut pool, Budget { n_seqs, ..Budget::tokens(n_tokens) }).unwrap();
            prop_assert!(plan.n_tokens() <= n_tokens && plan.chunks.len() <= n_seqs);
            for id in &plan.too_long {
                let seq = &mut queue[id.0 as usize];
                prop_assert!(seq.tokens().len() > n_blocks * 4);
                seq.finish = Some(Finish::Length);
                seq.release(&mut pool).unwrap();
            }
            if plan.is_empty() && plan.too_long.is_empty() {
                prop_assert!(queue.iter().all(|seq| seq.finish.is_some()), "nothing runs, but not all are done");
                break;
            }
            for chunk in plan.chunks {
                let seq = &mut queue[chunk.id.0 as usize];
                prop_assert!(seq.blocks().ids().len() * 4 >= seq.n_computed() + chunk.n_new);
                if seq.advance(chunk.n_new) {
                    seq.push(0);
                    if seq.generated().len() == lengths[chunk.id.0 as usize].1 {
                        seq.finish = Some(Finish::Length);
                        seq.release(&mut pool).unwrap();
                    }
                }
            }
            let n_used: usize = queue.iter().map(|seq| seq.blocks().ids().len()).sum();
            prop_assert_eq!(n_used + pool.n_free(), n_blocks);
        }
        for (seq, (n_prompt, n_generated)) in queue.iter().zip(&lengths) {
            prop_assert!(seq.finish.is_some());
            if n_prompt + n_generated <= n_blocks * 4 {
                prop_assert_eq!(seq.generated().len(), *n_generated);
            }
        }
        prop_assert_eq!(pool.n_free(), n_blocks);
    }

    /// Every slot that a sequence reads holds what the sequence would have written there, also where another one wrote
    /// it. Few different beginnings, so that prefixes are found; preemption, truncation, and a cache that is lost.
    #[test]
    fn a_sequence_reads_keys_of_its_own_tokens_in_reused_blocks_too(
        prompts in prop::collection::vec((1..3u32, 1..24u32), 1..20),
        n_blocks in 6..16usize,
        n_tokens in 1..30usize,
        acts in prop::collection::vec((0..10u8, 0..24usize), 1..60),
    ) {
        let mut pool = BlockPool::new(n_blocks, 4).unwrap();
        let mut slots: Vec<Vec<TokenId>> = vec![vec![]; n_blocks * 4];
        let (mut queue, mut waiting): (Vec<Sequence>, _) = (vec![], prompts.into_iter());
        for (i, (act, n)) in acts.into_iter().enumerate() {
            let chosen = n % queue.len().max(1);
            match act {
                0..=4 => queue.extend(waiting.next().map(|(text, length)| {
                    Sequence::new(SequenceId(i as u64), (0..length).map(|i| i / 6 % text).collect()).unwrap()
                })),
                5 if !queue.is_empty() => queue.remove(chosen).release(&mut pool).unwrap(),
                6 if !queue.is_empty() => {
                    queue[chosen].truncate(n, &mut pool).unwrap();
                    queue[chosen].push(n as u32 % 2);
                }
                7 => {
                    slots.fill(vec![]);
                    pool.forget_all();
                    queue.iter_mut().for_each(|seq| seq.release(&mut pool).unwrap());
                }
                _ => {}
            }
            let budget = Budget { prefix_cache: true, ..Budget::tokens(n_tokens) };
            for chunk in schedule(&mut queue, &mut pool, budget).unwrap().chunks {
                let seq = queue.iter_mut().find(|seq| seq.id == chunk.id).unwrap();
                let slot = |position: usize| seq.blocks().slot(position, 4).unwrap() as usize;
                for position in 0..seq.n_computed() {
                    prop_assert_eq!(&slots[slot(position)], &seq.tokens()[..=position]);
                }
                for position in seq.n_computed()..seq.n_computed() + chunk.n_new {
                    slots[slot(position)] = seq.tokens()[..=position].to_vec();
                }
                let is_whole = seq.advance(chunk.n_new);
                seq.name_blocks(&mut pool).unwrap();
                if is_whole && seq.tokens().len() < n_blocks * 2 {
                    seq.push(n as u32 % 2);
                }
            }
        }
        queue.iter_mut().for_each(|seq| seq.release(&mut pool).unwrap());
        prop_assert_eq!(pool.n_free(), n_blocks);
    }
}
