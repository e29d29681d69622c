//! Larger worlds by chance: shared prompts, forks, priorities, small pools, all kinds of events; and traces that replay.

use super::super::*;
use super::explore::request;
use super::world::World;
use crate::kv::prefix::BlockHash;
use crate::sampler::Rng;
use crate::sequence::TokenId;

struct Chance(Rng);

impl Chance {
    fn below(&mut self, n: usize) -> usize {
        (self.0.next_f64() * n as f64) as usize
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A walk of `n_events` events; its world at the end.
fn walk(seed: u64, n_events: usize) -> World {
    let mut chance = Chance(Rng::new(seed));
    let config = SchedulerConfig {
        max_num_batched_tokens: [8, 16, 64][chance.below(3)],
        max_num_seqs: 8,
        max_num_prompt_logits: 3,
        watermark: [0.0, 0.1][chance.below(2)],
        policy: [Policy::Chunked, Policy::PrefillFirst][chance.below(2)],
        preemption: [Preemption::Auto, Preemption::Recompute, Preemption::Swap][chance.below(3)],
        cost: chance.one_in(2).then_some(PreemptionCost { ns_per_block: 5, ns_per_token: 4 }),
        prefix_cache: !chance.one_in(4),
        is_causal: true,
    };
    let (n_blocks, n_host) = (6 + chance.below(20), chance.below(12));
    let windows = [&[][..], &[5], &[3, 9]][chance.below(3)];
    let states = if chance.one_in(4) { [16, chance.below(6)] } else { [0, 0] };
    let mut world = World::new(config, [n_blocks, states[0]], [n_host, states[1]], 4, windows);
    let mut n_requests = 0;
    for _ in 0..n_events {
        let event = next(&mut chance, &world, &mut n_requests, n_blocks);
        world.apply(event).unwrap_or_else(|e| panic!("seed {seed}: {e}\nafter {:?}", world.trace));
    }
    world.apply(Event::Withhold(0)).unwrap();
    world.run_to_end(24, 2000).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    world
}

fn next(chance: &mut Chance, world: &World, n_requests: &mut u64, n_blocks: usize) -> Event {
    let s = &world.s;
    if chance.one_in(4) && s.groups().count() < 12 {
        *n_requests += 1;
        // Few different beginnings, so that prefixes are shared.
        let beginning = chance.below(2) as TokenId;
        let prompt: Vec<TokenId> = (0..1 + chance.below(20) as TokenId)
            .map(|i| if i < 9 { beginning + i } else { i * beginning + chance.below(2) as TokenId })
            .collect();
        return Event::Add(NewGroup {
            lockstep: chance.one_in(3),
            priority: chance.below(2) as i32,
            root: if chance.one_in(4) { BlockHash::ROOT.next(&[9]) } else { BlockHash::ROOT },
            reuses_prefix: !chance.one_in(5),
            logits_from: chance.one_in(5).then(|| chance.below(9)),
            ..request(*n_requests, &prompt, 1 + chance.below(4))
        });
    }
    if chance.one_in(40)
        && let Some(group) = s.groups().nth(chance.below(6)).filter(|g| !g.is_aborted)
    {
        return Event::Abort(group.id);
    }
    if chance.one_in(60) {
        return if chance.one_in(2) { Event::CachesLost } else { Event::HostBlocksLost };
    }
    if chance.one_in(60) {
        let [ns_per_block, ns_per_token] = [1 + chance.below(9) as u64, 1];
        return Event::Cost(PreemptionCost { ns_per_block, ns_per_token });
    }
    if chance.one_in(60) {
        return Event::MaxTokens(8 + chance.below(40));
    }
    if chance.one_in(30)
        && s.in_flight.is_none()
        && let Some(group) = s.groups().find(|g| g.sequences.len() == 1)
    {
        return Event::Replace(group.id, (0..1 + chance.below(12) as TokenId).collect());
    }
    if chance.one_in(40) {
        return Event::Withhold(chance.below(n_blocks / 2));
    }
    if chance.one_in(3)
        && s.in_flight.is_none()
        && let Some(group) = s.running.iter().find(|g| !g.lockstep && g.id.0 as usize % 3 == chance.below(3))
        && let Some(seq) = group.sequences.iter().rfind(|seq| seq.n_missing() <= 2)
    {
        return Event::Draft(seq.id, (0..1 + chance.below(5) as TokenId).collect());
    }
    match &s.in_flight {
        None => Event::Schedule,
        Some(_) if chance.one_in(20) => Event::Failed,
        Some(_) => {
            let mut outcomes = world.outcomes(24, chance.one_in(2));
            for outcome in &mut outcomes {
                if chance.one_in(12) {
                    outcome.next.pop();
                }
            }
            Event::Completed(world.accepting(outcomes, chance.below(6)))
        }
    }
}

#[test]
fn random_walks_keep_all_invariants_and_replay() {
    let mut totals = [0; 4];
    for seed in 0..300 {
        let world = walk(seed, 300);
        let count = |is: fn(&Event) -> bool| world.trace.iter().filter(|e| is(e)).count();
        totals[0] += count(|e| matches!(e, Event::Schedule));
        totals[1] += world.refused.len();
        let accepted = |e: &Event| match e {
            Event::Completed(outcomes) => outcomes.iter().flat_map(|o| &o.next).map(|c| c.n_accepted).sum(),
            _ => 0,
        };
        totals[3] += world.trace.iter().map(accepted).sum::<usize>();

        let mut again = world.first.clone();
        for event in &world.trace {
            again.apply(event).unwrap();
        }
        assert_eq!(again, world.s, "seed {seed}: the trace does not replay");
        totals[2] += 1;
    }
    println!("{} steps, {} refused, {} traces replayed", totals[0], totals[1], totals[2]);
    assert!(totals[0] > 10_000 && totals[1] > 0 && totals[3] > 1000, "{totals:?}");
}
