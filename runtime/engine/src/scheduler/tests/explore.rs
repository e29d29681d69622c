//! Every state that small worlds can reach, with every event in each: no leak, double free, wrong read or count, lost token,
//! and from each state all requests end.

use super::super::*;
use super::world::{Fault, World};
use crate::kv::prefix::BlockHash;
use crate::sequence::TokenId;
use std::collections::HashSet;
use std::result::Result;

/// A world's rules, its requests and how often each kind of event happens.
#[derive(Clone)]
pub struct Setting {
    pub config: SchedulerConfig,
    pub block_size: usize,
    pub n_blocks: usize,
    pub n_host: usize,
    /// Slots of recurrent states; none in models without them.
    pub n_states: usize,
    pub n_host_states: usize,
    /// Windows whose caches have blocks of their own.
    pub windows: Vec<usize>,
    pub requests: Vec<NewGroup>,
    pub n_aborts: usize,
    pub n_failures: usize,
    pub n_losses: usize,
    /// Blocks that are withheld, and found again.
    pub n_withheld: usize,
    /// Context shifts, and changes of the tokens of a step.
    pub n_shifts: usize,
    /// Steps with guesses of next tokens.
    pub n_drafts: usize,
    /// Tokens at which a sequence ends.
    pub n_max: usize,
}

pub fn request(id: u64, prompt: &[TokenId], width: usize) -> NewGroup {
    NewGroup {
        id: RequestId(id),
        encoder_tokens: [].into(),
        prompt: prompt.to_vec(),
        width,
        lockstep: false,
        priority: 0,
        root: BlockHash::ROOT,
        reuses_prefix: true,
        logits_from: None,
    }
}

/// Four requests, two of which fork, in six blocks; small budgets.
pub fn setting() -> Setting {
    let config = SchedulerConfig {
        max_num_batched_tokens: 4,
        max_num_seqs: 4,
        max_num_prompt_logits: 2,
        watermark: 0.0,
        policy: Policy::Chunked,
        preemption: Preemption::Auto,
        cost: None,
        prefix_cache: false,
        is_causal: true,
    };
    let requests = vec![
        request(0, &[1, 2, 3], 2),
        request(1, &[1, 2], 1),
        request(2, &[5], 2),
        request(3, &[1, 2, 3], 1),
    ];
    Setting {
        config,
        block_size: 2,
        n_blocks: 6,
        n_host: 3,
        n_states: 0,
        n_host_states: 0,
        windows: Vec::new(),
        requests,
        n_aborts: 0,
        n_failures: 0,
        n_losses: 0,
        n_withheld: 0,
        n_shifts: 0,
        n_drafts: 0,
        n_max: 5,
    }
}

/// What was found: states, or the first violated invariant with the events that led to it.
pub fn explore(setting: &Setting, fault: Option<Fault>) -> Result<usize, String> {
    let device = [setting.n_blocks, setting.n_states];
    let host = [setting.n_host, setting.n_host_states];
    let mut world = World::new(setting.config, device, host, setting.block_size, &setting.windows);
    world.fault = fault;
    let root = Node { world, left: setting.clone(), n_added: 0 };
    let (mut seen, mut open) = (HashSet::new(), vec![root]);
    while let Some(node) = open.pop() {
        for event in node.events() {
            let mut next = node.after(&event).map_err(|e| format!("{e}\nafter {:?}", node.world.trace))?;
            if !seen.insert(next.key()) {
                continue;
            }
            let mut alone = next.world.clone();
            alone.run_to_end(setting.n_max, 80).map_err(|e| format!("{e}\nafter {:?}", next.world.trace))?;
            next.world.refused.clear();
            open.push(next);
        }
    }
    Ok(seen.len())
}

#[derive(Clone)]
struct Node {
    world: World,
    left: Setting,
    n_added: usize,
}

impl Node {
    fn key(&self) -> Vec<u8> {
        let left = &self.left;
        let counts = [
            self.n_added,
            left.n_aborts,
            left.n_failures,
            left.n_losses,
            left.n_withheld,
            left.n_shifts,
            left.n_drafts,
        ];
        let mut key = self.world.key();
        key.extend(counts.map(|n| n as u8));
        key
    }

    /// All that may happen next.
    fn events(&self) -> Vec<Event> {
        let (s, left) = (&self.world.s, &self.left);
        let mut events = Vec::new();
        if let Some(request) = left.requests.get(self.n_added) {
            events.push(Event::Add(request.clone()));
        }
        if s.in_flight.is_none() {
            events.push(Event::Schedule);
        } else {
            let plain = self.world.outcomes(left.n_max, false);
            let forked = self.world.outcomes(left.n_max, true);
            // Each request may also end early, by a token that ends its text.
            let ends = (0..plain.len()).filter(|&i| !plain[i].next.is_empty()).map(|i| {
                let mut outcomes = plain.clone();
                outcomes[i].next.pop();
                outcomes
            });
            events.extend(ends.map(Event::Completed));
            if forked != plain {
                events.push(Event::Completed(forked));
            }
            for n in 1..=2 {
                let accepting = self.world.accepting(plain.clone(), n);
                if accepting != self.world.accepting(plain.clone(), n - 1) {
                    events.push(Event::Completed(accepting));
                }
            }
            events.push(Event::Completed(plain));
            if left.n_failures > 0 {
                events.push(Event::Failed);
            }
        }
        if left.n_losses > 0 {
            events.extend([Event::CachesLost, Event::HostBlocksLost]);
        }
        if left.n_aborts > 0 {
            events.extend(s.groups().filter(|g| !g.is_aborted).map(|g| Event::Abort(g.id)));
        }
        if left.n_shifts > 0 {
            events.push(Event::MaxTokens(2));
            let single = s.groups().filter(|g| g.sequences.len() == 1 && s.in_flight.is_none());
            events.extend(single.map(|g| Event::Replace(g.id, vec![1, 2, 3])));
        }
        if left.n_drafts > 0 && s.in_flight.is_none() {
            let groups = s.running.iter().filter(|g| !g.lockstep);
            let drafted = groups.flat_map(|g| &g.sequences).filter(|seq| seq.n_missing() == 1);
            events.extend(drafted.map(|seq| Event::Draft(seq.id, vec![3, 4])));
        }
        if left.n_withheld > 0 {
            events.push(Event::Withhold(left.n_withheld));
            events.push(Event::Withhold(0));
        }
        events
    }

    fn after(&self, event: &Event) -> Result<Node, String> {
        let mut next = self.clone();
        next.world.apply(event.clone())?;
        match event {
            Event::Add(_) => next.n_added += 1,
            Event::Abort(_) => next.left.n_aborts -= 1,
            Event::Failed => next.left.n_failures -= 1,
            Event::CachesLost | Event::HostBlocksLost => next.left.n_losses -= 1,
            Event::MaxTokens(_) | Event::Replace(..) => next.left.n_shifts -= 1,
            Event::Draft(..) => next.left.n_drafts -= 1,
            Event::Withhold(0) => next.left.n_withheld = 0,
            _ => {}
        }
        Ok(next)
    }
}

/// A model with recurrent states: two slots for each sequence of a step.
pub fn recurrent(setting: &mut Setting) {
    (setting.n_states, setting.n_host_states) = (2 * setting.config.max_num_seqs, 2);
}

/// A model with layers that see two tokens, and others that see three; sequences of more than twice as many.
pub fn windowed(setting: &mut Setting) {
    setting.windows = vec![2, 3];
    setting.n_max = 7;
    setting.n_blocks = 8;
    setting.config.max_num_batched_tokens = 2;
    setting.config.max_num_seqs = 2;
    setting.requests.truncate(3);
}

/// The settings, by name.
fn settings() -> Vec<(&'static str, Setting)> {
    let base = setting();
    let with = |change: &dyn Fn(&mut Setting)| {
        let mut setting = base.clone();
        change(&mut setting);
        setting
    };
    vec![
        ("base", base.clone()),
        ("recompute", with(&|s| s.config.preemption = Preemption::Recompute)),
        ("swap", with(&|s| s.config.preemption = Preemption::Swap)),
        ("prefill first", with(&|s| s.config.policy = Policy::PrefillFirst)),
        ("lockstep", with(&|s| s.requests[0].lockstep = true)),
        ("prefix cache", with(&|s| s.config.prefix_cache = true)),
        ("aborts", with(&|s| s.n_aborts = 1)),
        ("failures", with(&|s| s.n_failures = 1)),
        ("lost caches", with(&|s| (s.n_losses, s.config.preemption) = (1, Preemption::Swap))),
        ("withheld", with(&|s| s.n_withheld = 2)),
        ("shifts", with(&|s| s.n_shifts = 1)),
        (
            "drafts",
            with(&|s| {
                s.n_drafts = 1;
                s.requests.truncate(3);
            }),
        ),
        (
            "drafts and a prefix cache",
            with(&|s| {
                (s.config.prefix_cache, s.n_drafts, s.n_failures) = (true, 2, 1);
                s.requests = vec![request(0, &[1, 2, 3], 2), request(1, &[1, 2, 3], 1)];
            }),
        ),
        (
            "drafts of windows",
            with(&|s| {
                windowed(s);
                (s.n_drafts, s.config.max_num_batched_tokens) = (2, 4);
                s.requests.truncate(2);
            }),
        ),
        (
            "drafts of states",
            with(&|s| {
                recurrent(s);
                s.n_drafts = 2;
                s.requests.truncate(2);
            }),
        ),
        ("prompt logits", with(&|s| s.requests[0].logits_from = Some(0))),
        ("windows", with(&windowed)),
        (
            "windows and a prefix cache",
            with(&|s| {
                windowed(s);
                s.config.prefix_cache = true;
            }),
        ),
        (
            "swapped windows",
            with(&|s| {
                windowed(s);
                (s.config.preemption, s.n_failures) = (Preemption::Swap, 1);
            }),
        ),
        ("blocks of one", with(&|s| (s.block_size, s.config.prefix_cache) = (1, true))),
        (
            "blocks larger than any text",
            with(&|s| {
                (s.block_size, s.n_blocks, s.n_host) = (8, 3, 2);
                (s.config.prefix_cache, s.config.preemption) = (true, Preemption::Swap);
            }),
        ),
        (
            "windows in blocks larger than these",
            with(&|s| {
                windowed(s);
                (s.block_size, s.n_blocks, s.config.prefix_cache) = (4, 5, true);
            }),
        ),
        ("states", with(&recurrent)),
        (
            "swapped states",
            with(&|s| {
                recurrent(s);
                s.requests.truncate(3);
                (s.config.preemption, s.n_losses) = (Preemption::Swap, 1);
            }),
        ),
    ]
}

#[test]
fn every_reachable_state_of_small_worlds_keeps_all_invariants() {
    let mut n_states = Vec::new();
    for (name, setting) in settings() {
        let n = explore(&setting, None).unwrap_or_else(|e| panic!("{name}: {e}"));
        println!("{name}: {n} states");
        n_states.push((name, n));
    }
    let n = |name: &str| n_states.iter().find(|(known, _)| *known == name).unwrap().1;
    for more in ["aborts", "failures", "withheld", "shifts"] {
        assert!(n(more) > n("base"), "{more} adds no states: {n_states:?}");
    }
}
