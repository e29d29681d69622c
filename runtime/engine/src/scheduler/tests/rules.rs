//! vLLM's rules, each under its row in the list of requirements (VL-02 to VL-13; rows.rs has the others), with the exact numbers.

use super::super::*;
use super::explore::request;
use crate::sequence::TokenId;

pub const SIZE: usize = 4;

pub fn config() -> SchedulerConfig {
    SchedulerConfig { watermark: 0.0, prefix_cache: false, ..SchedulerConfig::default() }
}

fn prefill_first() -> SchedulerConfig {
    SchedulerConfig { policy: Policy::PrefillFirst, ..config() }
}

pub fn scheduler(config: SchedulerConfig, n_blocks: usize, n_host: usize) -> Scheduler {
    let pools = |n| CachePools::new(n, 0, SIZE).unwrap();
    Scheduler::new(config, pools(n_blocks), pools(n_host)).unwrap()
}

pub fn add(s: &mut Scheduler, id: u64, n_tokens: usize, width: usize) {
    let prompt: Vec<TokenId> = (0..n_tokens as TokenId).map(|i| i + 100 * id as TokenId).collect();
    s.add(&request(id, &prompt, width)).unwrap();
}

/// The chunks of a plan: request and tokens.
pub fn chunks(s: &Scheduler, plan: &StepPlan) -> Vec<(u64, usize)> {
    let owner = |id| s.groups().find(|g| g.sequences.iter().any(|seq| seq.id == id)).unwrap().id.0;
    plan.chunks.iter().map(|chunk| (owner(chunk.id), chunk.n_new)).collect()
}

/// A step in which every complete sequence goes on: its plan's chunks.
pub fn step(s: &mut Scheduler) -> Vec<(u64, usize)> {
    let plan = s.schedule().unwrap();
    let chunks = chunks(s, &plan);
    go_on(s, 1);
    chunks
}

/// Completes the step in flight; each complete sequence has `n` children.
pub fn go_on(s: &mut Scheduler, n: u32) {
    let is_due = |seq: &&Sequence| s.n_missing_after_step(seq) == 0;
    let outcome = |g: &Group| {
        let parents = g.sequences.iter().filter(is_due);
        let next: Vec<Child> =
            parents.flat_map(|seq| (0..n).map(|token| Child::new(seq.id, token))).collect();
        (!next.is_empty()).then_some(Outcome { request: g.id, next })
    };
    let outcomes: Vec<Outcome> = s.running.iter().filter_map(outcome).collect();
    s.complete(&outcomes).unwrap();
}

fn ids(queue: &std::collections::VecDeque<Group>) -> Vec<u64> {
    queue.iter().map(|g| g.id.0).collect()
}

pub fn blocks(s: &Scheduler, id: u64) -> Vec<Vec<u32>> {
    let group = s.group(RequestId(id)).unwrap();
    group.sequences.iter().map(|seq| seq.blocks().ids().iter().map(|b| b.0).collect()).collect()
}

#[test]
fn vl_02_a_group_has_the_sequences_of_its_request() {
    let mut s = scheduler(config(), 8, 0);
    add(&mut s, 0, 3, 3);
    assert_eq!(s.counts(), [1, 0, 0]);
    s.schedule().unwrap();
    go_on(&mut s, 3);
    assert_eq!((s.counts(), s.running[0].sequences.len()), ([0, 1, 0], 3));
    s.schedule().unwrap();
    s.complete(&[Outcome { request: RequestId(0), next: Vec::new() }]).unwrap();
    assert!(s.is_empty(), "a group without sequences has ended");
}

#[test]
fn vl_03_requests_are_served_in_order_of_arrival() {
    let mut s = scheduler(SchedulerConfig { max_num_seqs: 2, ..config() }, 32, 0);
    (0..4).for_each(|id| add(&mut s, id, 2, 1));
    assert_eq!(step(&mut s), [(0, 2), (1, 2)]);
    s.abort(RequestId(0)).unwrap();
    assert_eq!(step(&mut s), [(1, 1), (2, 2)]);
    assert_eq!(ids(&s.waiting), [3]);
}

#[test]
fn vl_04_a_prompt_that_leaves_no_watermark_never_runs() {
    let config = SchedulerConfig { watermark: 0.1, ..prefill_first() };
    let mut s = scheduler(config, 10, 0);
    add(&mut s, 0, 10 * SIZE, 1);
    add(&mut s, 1, 9 * SIZE, 1);
    let plan = s.schedule().unwrap();
    let refusal = Refusal { request: RequestId(0), limit: Limit::Blocks, needed: 10, available: 9 };
    assert_eq!((plan.refused.clone(), chunks(&s, &plan)), (vec![refusal], vec![(1, 36)]));

    let config = SchedulerConfig { max_num_batched_tokens: 8, max_num_seqs: 8, ..prefill_first() };
    let mut s = scheduler(config, 10, 0);
    add(&mut s, 0, 9, 1);
    let refusal = Refusal { request: RequestId(0), limit: Limit::BatchedTokens, needed: 9, available: 8 };
    assert_eq!(s.schedule().unwrap().refused, [refusal]);
}

#[test]
fn vl_05_nothing_is_admitted_past_the_watermark_nor_past_the_head() {
    let mut s = scheduler(SchedulerConfig { watermark: 0.2, ..prefill_first() }, 10, 0);
    add(&mut s, 0, 5 * SIZE, 1);
    add(&mut s, 1, 4 * SIZE, 1); // 5 blocks are free, and 2 stay free
    add(&mut s, 2, 1, 1); // has room, and waits
    assert_eq!(step(&mut s), [(0, 20)]);
    assert_eq!(ids(&s.waiting), [1, 2]);
}

#[test]
fn vl_06_steps_keep_to_their_budgets() {
    let config = SchedulerConfig { max_num_batched_tokens: 10, max_num_seqs: 3, ..prefill_first() };
    let mut s = scheduler(config, 32, 0);
    (0..4).for_each(|id| add(&mut s, id, 4, 1));
    assert_eq!(step(&mut s), [(0, 4), (1, 4)], "12 tokens are too many");
    assert_eq!(step(&mut s), [(2, 4)], "three sequences are all");
    assert_eq!(step(&mut s), [(0, 1), (1, 1), (2, 1)]);
    let defaults = SchedulerConfig::default();
    assert_eq!(
        (defaults.max_num_batched_tokens, defaults.max_num_seqs, defaults.watermark),
        (2048, 256, 0.01)
    );
}

#[test]
fn vl_07_a_step_has_prompts_only_and_swapped_groups_go_first() {
    let mut s = scheduler(prefill_first(), 6, 6);
    add(&mut s, 0, 4, 2);
    s.schedule().unwrap();
    go_on(&mut s, 2);
    add(&mut s, 1, 7, 1);
    assert_eq!(step(&mut s), [(1, 7)], "no decode beside a prompt");
    // Two blocks for the forks of 0, one for 1: 0 has [0], 1 has [1, 2]; three are free.
    s.withhold(2);
    let plan = s.schedule().unwrap();
    assert_eq!(plan.preempted, [(RequestId(1), PreemptionMode::Recompute)]);
    go_on(&mut s, 1);
    s.config.preemption = Preemption::Swap;
    s.withhold(4);
    s.schedule().unwrap();
    go_on(&mut s, 1);
    assert_eq!(ids(&s.swapped), [0]);
    assert_eq!(step(&mut s), [], "1 waits as long as 0 is swapped");
}

#[test]
fn vl_08_the_last_running_group_gives_its_blocks_up() {
    let mut s = scheduler(config(), 3, 0);
    (0..3).for_each(|id| add(&mut s, id, SIZE, 1));
    assert_eq!(step(&mut s).len(), 3);
    // All need a second block, and none is free: 2 makes room for 0, then 1 is the last itself.
    let plan = s.schedule().unwrap();
    let preempted: Vec<u64> = plan.preempted.iter().map(|(id, _)| id.0).collect();
    assert_eq!((chunks(&s, &plan), preempted), (vec![(0, 1)], vec![2, 1]));
    go_on(&mut s, 1);

    // As many free blocks as sequences suffice (the source document has more).
    let mut s = scheduler(config(), 2, 0);
    add(&mut s, 0, SIZE, 1);
    step(&mut s);
    assert_eq!((s.device.blocks.n_free(), step(&mut s)), (1, vec![(0, 1)]));
}

#[test]
fn vl_09_groups_of_one_are_recomputed_and_others_swapped() {
    let mut s = scheduler(config(), 4, 4);
    add(&mut s, 0, SIZE, 1);
    add(&mut s, 1, SIZE, 2);
    s.schedule().unwrap();
    go_on(&mut s, 1);
    s.withhold(2);
    let plan = s.schedule().unwrap();
    assert_eq!(plan.preempted, [(RequestId(1), PreemptionMode::Swap)]);
    assert_eq!((plan.swap_out.blocks.len(), ids(&s.swapped)), (1, vec![1]));
    go_on(&mut s, 1);

    let mut s = scheduler(config(), 4, 4);
    (0..3).for_each(|id| add(&mut s, id, SIZE, 1));
    step(&mut s);
    s.withhold(1);
    let plan = s.schedule().unwrap();
    assert_eq!(plan.preempted.last(), Some(&(RequestId(1), PreemptionMode::Recompute)));
    assert_eq!(ids(&s.waiting), [1, 2], "at the front of those that wait");
    assert!(s.waiting.iter().all(|g| g.sequences[0].blocks().ids().is_empty()));
}

#[test]
fn vl_10_without_host_memory_a_group_is_recomputed() {
    let mut s = scheduler(SchedulerConfig { preemption: Preemption::Swap, ..config() }, 4, 0);
    add(&mut s, 0, SIZE, 1);
    add(&mut s, 1, SIZE, 1);
    step(&mut s);
    s.withhold(2);
    assert_eq!(s.schedule().unwrap().preempted, [(RequestId(1), PreemptionMode::Recompute)]);
}

#[test]
fn vl_11_a_swapped_group_returns_when_it_has_room_for_its_next_tokens() {
    let mut s = scheduler(SchedulerConfig { preemption: Preemption::Swap, ..config() }, 4, 4);
    add(&mut s, 0, SIZE, 1);
    add(&mut s, 1, SIZE, 1);
    step(&mut s);
    s.withhold(2);
    let plan = s.schedule().unwrap();
    assert_eq!((plan.swap_out.blocks.len(), plan.swap_in.blocks.len()), (1, 0), "never both in a step");
    go_on(&mut s, 1);
    s.withhold(1);
    let plan = s.schedule().unwrap();
    assert_eq!(plan.swap_in.blocks, [], "its block and one for its next token: one is free");
    go_on(&mut s, 1);
    s.withhold(0);
    let plan = s.schedule().unwrap();
    assert_eq!((plan.swap_in.blocks.len(), chunks(&s, &plan)), (1, vec![(0, 1), (1, 1)]));
}

/// No delay before a prefill: a waiting prompt is admitted in the next step that has room.
#[test]
fn vl_12_a_prompt_waits_for_room_alone() {
    for config in [config(), prefill_first()] {
        let mut s = scheduler(config, 32, 0);
        add(&mut s, 0, 9, 1);
        step(&mut s);
        add(&mut s, 1, 5, 1);
        assert!(step(&mut s).contains(&(1, 5)), "{config:?}");
    }
}

#[test]
fn vl_13_decodes_then_swapped_groups_then_chunks_of_prompts() {
    let config = SchedulerConfig { max_num_batched_tokens: 6, max_num_seqs: 4, ..config() };
    let mut s = scheduler(config, 32, 0);
    add(&mut s, 0, 2, 1);
    step(&mut s);
    add(&mut s, 1, 12, 1);
    add(&mut s, 2, 3, 1);
    assert_eq!(step(&mut s), [(0, 1), (1, 5)], "the decode does not wait for the prompt");
    assert_eq!(step(&mut s), [(0, 1), (1, 5)]);
    assert_eq!(step(&mut s), [(0, 1), (1, 2), (2, 3)]);
    assert_eq!(step(&mut s), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn the_cheaper_way_of_preemption_is_taken_where_both_were_measured() {
    let mode = |ns_per_block, ns_per_token| {
        let cost = Some(PreemptionCost { ns_per_block, ns_per_token });
        let mut s = scheduler(SchedulerConfig { cost, ..config() }, 4, 4);
        add(&mut s, 0, SIZE, 1);
        add(&mut s, 1, SIZE, 1);
        step(&mut s);
        s.withhold(2);
        s.schedule().unwrap().preempted[0].1
    };
    // Out and in again: two blocks; again: four tokens.
    assert_eq!(mode(10, 6), PreemptionMode::Swap);
    assert_eq!(mode(12, 6), PreemptionMode::Recompute);
}

#[test]
fn a_higher_priority_is_served_first() {
    let mut s = scheduler(SchedulerConfig { max_num_seqs: 1, ..config() }, 8, 0);
    add(&mut s, 0, 2, 1);
    s.add(&NewGroup { priority: 1, ..request(1, &[1, 2], 1) }).unwrap();
    assert_eq!(step(&mut s), [(1, 2)]);
}

#[test]
fn events_out_of_order_are_refused() {
    let mut s = scheduler(config(), 8, 0);
    add(&mut s, 0, 2, 1);
    assert!(s.add(&request(0, &[1], 1)).unwrap_err().to_string().contains("exists already"));
    assert!(s.abort(RequestId(9)).unwrap_err().to_string().contains("does not exist"));
    s.schedule().unwrap();
    assert_eq!(s.schedule(), Err(Error::StepInFlight));
    let before = s.clone();
    let child = Child::new(SequenceId(0), 1);
    let outcome = |next: Vec<Child>| [Outcome { request: RequestId(0), next }];
    assert!(s.complete(&outcome(vec![child; 2])).is_err(), "one more than its width");
    assert!(s.complete(&outcome(vec![Child { parent: SequenceId(7), ..child }])).is_err());
    assert_eq!(s, before, "an error changes nothing");
    s.complete(&outcome(vec![child])).unwrap();
}
