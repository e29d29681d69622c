//! A scheduler, and the memory that its plans are executed on. A slot holds a number that stands for the tokens up to the
//! one whose keys and values were written there, so a wrong read is found where it happens.

use super::super::*;
use crate::kv::pool::BlockId;
use crate::kv::pools::{CacheMoves, PoolId};
use crate::sequence::TokenId;
use std::collections::{BTreeMap, HashMap};
use std::result::Result;

/// What stands for a prefix: never 0, which is a slot that was not written.
fn content(tokens: &[TokenId]) -> u64 {
    tokens.iter().fold(0xcbf2_9ce4_8422_2325, |h, t| (h ^ u64::from(t + 1)).wrapping_mul(0x0100_0000_01b3))
        | 1
}

/// The tokens of a sequence and its guesses of the next ones.
fn with_drafts(seq: &Sequence) -> Vec<TokenId> {
    [seq.tokens(), seq.drafts()].concat()
}

/// Changes the state after an event as a bug would.
pub type Fault = fn(&mut Scheduler, &mut StepPlan);

/// What the slots of tokens, by pool, and those of recurrent states hold.
#[derive(Clone)]
struct Memory {
    tokens: Vec<Vec<u64>>,
    states: Vec<u64>,
}

impl Memory {
    fn new(pools: &CachePools) -> Memory {
        let slots = |(_, pool): (usize, &BlockPool)| vec![0; pool.n_blocks() * pool.block_size()];
        Memory { tokens: pools.paged().map(slots).collect(), states: vec![0; pools.states.n_blocks()] }
    }

    /// Writes the state of a sequence's first `end` tokens, or reads that of its computed ones.
    fn check_state(&mut self, seq: &Sequence, end: usize, read: bool) -> Result<(), String> {
        if self.states.is_empty() {
            return Ok(());
        }
        let (from, to) = seq.state_slots();
        let held = from.map_or(0, |slot| self.states[slot.0 as usize]);
        let expected = match seq.n_computed() {
            0 => 0,
            n => content(&seq.tokens()[..n]),
        };
        match (read, to) {
            (true, _) if held != expected => Err(format!("{} reads a wrong state", seq.id)),
            (true, _) => Ok(()),
            (false, Some(to)) => {
                self.states[to.0 as usize] = content(&with_drafts(seq)[..end]);
                Ok(())
            }
            (false, None) => Err(format!("{} has no slot for its next state", seq.id)),
        }
    }

    /// Writes the keys and values of a chunk, or reads what its tokens see, in the caches of one window.
    fn check_tokens(
        &mut self,
        seq: &Sequence,
        pool: usize,
        (window, block_size): (usize, usize),
        (end, read): (usize, bool),
    ) -> Result<(), String> {
        let first = match (read, window) {
            (false, _) => seq.n_computed(),
            (true, 0) => 0,
            (true, window) => (seq.n_computed() + 1).saturating_sub(window),
        };
        let tokens = with_drafts(seq);
        let table = seq.tables().nth(pool).ok_or("a sequence without a table")?;
        for position in first..end {
            let slot = table.slot(position, block_size).ok_or("a token without a slot")? as usize;
            let expected = content(&tokens[..=position]);
            match read {
                false => self.tokens[pool][slot] = expected,
                true if self.tokens[pool][slot] != expected => {
                    return Err(format!("{} reads a wrong token at position {position}", seq.id));
                }
                true => {}
            }
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.tokens.iter_mut().for_each(|tokens| tokens.fill(0));
        self.states.fill(0);
    }
}

/// Copies blocks of so many tokens, and states, from one memory to another.
fn copy(from: &Memory, to: &mut Memory, moves: &CacheMoves, size: usize) {
    let slots = |b: BlockId| b.0 as usize * size..(b.0 as usize + 1) * size;
    for pool in 0..from.tokens.len() {
        for m in moves.of(if pool == 0 { PoolId::Blocks } else { PoolId::Window(pool - 1) }) {
            to.tokens[pool][slots(m.to)].copy_from_slice(&from.tokens[pool][slots(m.from)]);
        }
    }
    for m in &moves.states {
        to.states[m.to.0 as usize] = from.states[m.from.0 as usize];
    }
}

/// The moves of a plan's copies, one at a time.
fn one_by_one(copies: &CacheMoves) -> Vec<CacheMoves> {
    let blocks = copies.blocks.iter().map(|m| CacheMoves { blocks: vec![*m], ..CacheMoves::default() });
    let of_window = |(i, moves): (usize, &Vec<BlockMove>)| {
        let single = |m: &BlockMove| {
            let mut single = CacheMoves::default();
            single.of_window(i).push(*m);
            single
        };
        moves.iter().map(single).collect::<Vec<_>>()
    };
    blocks.chain(copies.windows.iter().enumerate().flat_map(of_window)).collect()
}

/// Blocks are counted as often as the sequences of a queue hold them, and all others are free or kept.
fn check_pool(
    pool: &BlockPool,
    queue: &VecDeque<Group>,
    held: &dyn Fn(&Sequence) -> Vec<BlockId>,
    what: &str,
) -> Result<(), String> {
    let mut users: HashMap<BlockId, u32> = HashMap::new();
    let tables = queue.iter().flat_map(|g| &g.sequences).map(held);
    tables.flatten().for_each(|block| *users.entry(block).or_default() += 1);
    let (free, kept) = pool.unused();
    let mut unused: Vec<BlockId> = free.iter().copied().chain(kept).collect();
    unused.sort();
    let expected: Vec<BlockId> =
        (0..pool.n_blocks() as u32).map(BlockId).filter(|block| !users.contains_key(block)).collect();
    if unused != expected {
        return Err(format!("{what}: {unused:?} are free, {expected:?} have no users"));
    }
    match users.iter().find(|(block, n)| pool.n_users(**block) != Ok(**n)) {
        Some((block, n)) => {
            Err(format!("{what}: {block} is counted {:?} times of {n}", pool.n_users(*block)))
        }
        None => Ok(()),
    }
}

#[derive(Clone)]
pub struct World {
    pub s: Scheduler,
    device: Memory,
    host: Memory,
    /// The live sequences by request, with the tokens that they must have.
    expected: BTreeMap<RequestId, BTreeMap<SequenceId, Vec<TokenId>>>,
    /// Requests that end with the step in flight.
    aborted: Vec<RequestId>,
    /// Requests that were refused.
    pub refused: Vec<Refusal>,
    pub fault: Option<Fault>,
    pub trace: Vec<Event>,
    /// The scheduler before the first event.
    pub first: Scheduler,
}

impl World {
    /// Blocks and states of the device, then those of host memory. A window has as many blocks as sequences hold.
    pub fn new(
        config: SchedulerConfig,
        device: [usize; 2],
        host: [usize; 2],
        block_size: usize,
        windows: &[usize],
    ) -> World {
        let pools = |[n_blocks, n_states]: [usize; 2], windows: Vec<(usize, usize)>| {
            CachePools::new(n_blocks, n_states, block_size).unwrap().with_windows(windows).unwrap()
        };
        let held = |window: &usize| {
            let of_one = (window + config.max_num_batched_tokens).div_ceil(block_size) + 1;
            (*window, device[0].min(config.max_num_seqs * of_one))
        };
        let host_windows = windows.iter().map(|window| (*window, host[0])).collect();
        let (device, host) = (pools(device, windows.iter().map(held).collect()), pools(host, host_windows));
        World {
            device: Memory::new(&device),
            host: Memory::new(&host),
            first: Scheduler::new(config, device.clone(), host.clone()).unwrap(),
            s: Scheduler::new(config, device, host).unwrap(),
            expected: BTreeMap::new(),
            aborted: Vec::new(),
            refused: Vec::new(),
            fault: None,
            trace: Vec::new(),
        }
    }

    /// Applies an event and checks all invariants.
    pub fn apply(&mut self, event: Event) -> Result<Effect, String> {
        let (due, drafts) = (self.due(), self.drafts());
        let was_in_flight = self.s.in_flight.is_some();
        let mut effect = self.s.apply(&event).map_err(|e| format!("{event:?}: {e}"))?;
        let mut none = StepPlan::default();
        let plan = if let Effect::Plan(plan) = &mut effect { plan } else { &mut none };
        if let Some(fault) = self.fault {
            fault(&mut self.s, plan);
        }
        match (&event, &effect) {
            (Event::Schedule, Effect::Plan(plan)) => self.execute(plan)?,
            (Event::CachesLost, _) => self.device.clear(),
            (Event::HostBlocksLost, _) => self.host.clear(),
            _ => {}
        }
        self.expect(&event, &effect, (&due, &drafts), was_in_flight);
        self.trace.push(event);
        self.check().map_err(|e| format!("{e}\n{:#?}", self.s))?;
        Ok(effect)
    }

    /// Sequences whose tokens are all computed once the step in flight is.
    fn due(&self) -> Vec<SequenceId> {
        let all = self.s.running.iter().flat_map(|g| &g.sequences);
        all.filter(|seq| self.s.n_missing_after_step(seq) == 0).map(|seq| seq.id).collect()
    }

    /// The guesses that the step in flight computes.
    fn drafts(&self) -> HashMap<SequenceId, Vec<TokenId>> {
        let all = self.s.running.iter().flat_map(|g| &g.sequences);
        all.map(|seq| (seq.id, seq.drafts()[..self.s.n_drafted(seq)].to_vec())).collect()
    }

    /// Which sequences there must be after an event, of those with all their tokens computed and the guesses before it.
    fn expect(
        &mut self,
        event: &Event,
        effect: &Effect,
        (due, drafts): (&[SequenceId], &HashMap<SequenceId, Vec<TokenId>>),
        was_in_flight: bool,
    ) {
        match (event, effect) {
            (Event::Add(new), _) => {
                let group = self.s.group(new.id).expect("it was added");
                let first = (group.sequences[0].id, new.prompt.clone());
                self.expected.insert(new.id, BTreeMap::from([first]));
            }
            (Event::Replace(id, tokens), _) => {
                let sequences = self.expected.get_mut(id).expect("it exists");
                sequences.values_mut().for_each(|known| known.clone_from(tokens));
            }
            (Event::Abort(id), _) if was_in_flight && self.s.group(*id).is_some() => self.aborted.push(*id),
            (Event::Abort(id), _) => drop(self.expected.remove(id)),
            (Event::Schedule, Effect::Plan(plan)) => {
                plan.refused.iter().for_each(|refusal| drop(self.expected.remove(&refusal.request)));
            }
            (Event::Completed(outcomes), Effect::Continued(ids)) => {
                for (Outcome { request, next }, ids) in outcomes.iter().zip(ids) {
                    let known = self.expected.entry(*request).or_default();
                    let before = known.clone();
                    known.retain(|id, _| !due.contains(id));
                    for (child, id) in next.iter().zip(ids) {
                        let mut tokens = before[&child.parent].clone();
                        tokens.extend(drafts.get(&child.parent).into_iter().flatten().take(child.n_accepted));
                        tokens.push(child.token);
                        known.insert(*id, tokens);
                    }
                }
            }
            _ => {}
        }
        if self.s.in_flight.is_none() {
            self.aborted.drain(..).for_each(|id| drop(self.expected.remove(&id)));
        }
        self.expected.retain(|_, sequences| !sequences.is_empty());
    }

    /// Moves, copies and writes of a plan, in its order; each chunk reads all slots of its sequence's tokens.
    fn execute(&mut self, plan: &StepPlan) -> Result<(), String> {
        if !plan.swap_in.is_empty() && !plan.preempted.is_empty() {
            return Err("groups are swapped in while others are preempted".into());
        }
        let size = self.s.device.blocks.block_size();
        copy(&self.device, &mut self.host, &plan.swap_out, size);
        copy(&self.host, &mut self.device, &plan.swap_in, size);
        for m in one_by_one(&plan.block_copies) {
            let before = self.device.clone();
            copy(&before, &mut self.device, &m, size);
        }
        let config = self.s.config;
        if plan.n_tokens() > config.max_num_batched_tokens || plan.chunks.len() > config.max_num_seqs {
            return Err(format!("a step of {} tokens, {} chunks", plan.n_tokens(), plan.chunks.len()));
        }
        if plan.n_prompt_logits > config.max_num_prompt_logits {
            return Err(format!("a step of {} rows of prompt logits", plan.n_prompt_logits));
        }
        // All keys, values and states of a step are written before any are read.
        for read in [false, true] {
            for chunk in &plan.chunks {
                let seq = self.s.sequence(chunk.id).ok_or(format!("{} does not run", chunk.id))?;
                let end = seq.n_computed() + chunk.n_new;
                self.device.check_state(seq, end, read)?;
                for (i, (window, _)) in self.s.device.paged().enumerate() {
                    self.device.check_tokens(seq, i, (window, size), (end, read))?;
                }
            }
        }
        self.refused.extend(&plan.refused);
        Ok(())
    }

    /// Reference counts, free lists and queues agree.
    fn check(&self) -> Result<(), String> {
        let s = &self.s;
        let sequences = |g: &Group| g.sequences.iter().map(|seq| (seq.id, seq.tokens().to_vec())).collect();
        let found: BTreeMap<_, BTreeMap<_, _>> = s.groups().map(|g| (g.id, sequences(g))).collect();
        if found != self.expected {
            return Err(format!("the sequences are {found:?}: expected {:?}", self.expected));
        }
        if let Some(group) = s.groups().find(|g| g.sequences.is_empty() || g.sequences.len() > g.width) {
            return Err(format!("{} has {} of {} sequences", group.id, group.sequences.len(), group.width));
        }
        let has_blocks =
            |g: &Group| g.sequences.iter().any(|seq| seq.tables().any(|table| !table.ids().is_empty()));
        if s.waiting.iter().any(has_blocks) {
            return Err("a waiting group has blocks".into());
        }
        for (i, ((window, on_device), (_, on_host))) in s.device.paged().zip(s.host.paged()).enumerate() {
            let blocks =
                |seq: &Sequence| seq.tables().nth(i).map_or(Vec::new(), |table| table.ids().to_vec());
            check_pool(on_device, &s.running, &blocks, &format!("device, window {window}"))?;
            check_pool(on_host, &s.swapped, &blocks, &format!("host, window {window}"))?;
        }
        let states = |seq: &Sequence| {
            let (state, next) = seq.state_slots();
            state.into_iter().chain(next).collect()
        };
        check_pool(&s.device.states, &s.running, &states, "device states")?;
        check_pool(&s.host.states, &s.swapped, &states, "host states")?;
        for queue in [&s.waiting, &s.running, &s.swapped] {
            if !queue.iter().is_sorted_by_key(|g| g.rank()) {
                return Err("a queue is out of order".into());
            }
        }
        Ok(())
    }

    /// Requests whose sequences all have their tokens computed after the step in flight: those that are sampled.
    pub fn sampled(&self) -> Vec<&Group> {
        let is_due = |seq: &Sequence| self.s.n_missing_after_step(seq) == 0;
        let chunks = self.s.in_flight.iter().flatten();
        let in_step: Vec<SequenceId> = chunks.map(|chunk| chunk.id).collect();
        let groups = self.s.running.iter();
        groups.filter(|g| g.sequences.iter().any(|seq| in_step.contains(&seq.id) && is_due(seq))).collect()
    }

    /// Each due sequence of a group goes on with one token, or the group ends once it has `n_max` tokens a sequence. With
    /// `fork` its first due sequence is continued twice.
    pub fn outcome(&self, group: &Group, n_max: usize, fork: bool) -> Outcome {
        let due: Vec<&Sequence> =
            group.sequences.iter().filter(|seq| self.s.n_missing_after_step(seq) == 0).collect();
        let mut next = Vec::new();
        for (i, seq) in due.iter().filter(|seq| seq.tokens().len() < n_max).enumerate() {
            let n = if i == 0 && fork && group.sequences.len() < group.width { 2 } else { 1 };
            next.extend((0..n).map(|token| Child::new(seq.id, token + 7 * i as u32)));
        }
        Outcome { request: group.id, next }
    }

    /// The step in flight with the plainest outcome.
    pub fn outcomes(&self, n_max: usize, fork: bool) -> Vec<Outcome> {
        self.sampled().into_iter().map(|g| self.outcome(g, n_max, fork)).collect()
    }

    /// The same where the first `n` guesses of each sequence that goes on once are its next tokens.
    pub fn accepting(&self, mut outcomes: Vec<Outcome>, n: usize) -> Vec<Outcome> {
        let drafts = self.drafts();
        for outcome in &mut outcomes {
            let parents: Vec<SequenceId> = outcome.next.iter().map(|child| child.parent).collect();
            for child in &mut outcome.next {
                let is_forked = parents.iter().filter(|parent| **parent == child.parent).count() > 1;
                let n_drafted = drafts.get(&child.parent).map_or(0, Vec::len);
                child.n_accepted = if is_forked { 0 } else { n.min(n_drafted) };
            }
        }
        outcomes
    }

    /// Steps without further events end all requests.
    pub fn run_to_end(&mut self, n_max: usize, max_steps: usize) -> Result<(), String> {
        if self.s.in_flight.is_some() {
            self.apply(Event::Completed(self.outcomes(n_max, false)))?;
        }
        for _ in 0..max_steps {
            if self.s.is_empty() {
                return Ok(());
            }
            self.apply(Event::Schedule)?;
            self.apply(Event::Completed(self.outcomes(n_max, false)))?;
        }
        Err(format!("requests are not complete after {max_steps} steps: {:?}", self.s.counts()))
    }

    /// The state without names that only grow: equal keys lead to equal futures.
    pub fn key(&self) -> Vec<u8> {
        let s = &self.s;
        let mut key = Vec::new();
        let ids: HashMap<SequenceId, u8> =
            s.groups().flat_map(|g| &g.sequences).zip(0..).map(|(seq, i)| (seq.id, i)).collect();
        for queue in [&s.waiting, &s.running, &s.swapped] {
            key.push(queue.len() as u8);
            for g in queue {
                let flags = u8::from(g.has_run) | u8::from(g.is_aborted) << 1;
                key.extend([g.id.0 as u8, flags, g.sequences.len() as u8]);
                for seq in &g.sequences {
                    key.extend([seq.tokens().len() as u8, seq.n_computed() as u8]);
                    key.extend(seq.tokens().iter().map(|t| *t as u8));
                    key.push(seq.drafts().len() as u8);
                    key.extend(seq.drafts().iter().map(|t| *t as u8));
                    for table in seq.tables() {
                        key.extend([table.n_left() as u8, table.ids().len() as u8]);
                        key.extend(table.ids().iter().map(|b| b.0 as u8));
                    }
                    let (state, next) = seq.state_slots();
                    key.extend([state, next].map(|slot| slot.map_or(255, |slot| slot.0 as u8)));
                }
            }
        }
        key.push(s.in_flight.as_ref().map_or(255, |chunks| chunks.len() as u8));
        key.extend(
            s.in_flight
                .iter()
                .flatten()
                .flat_map(|c| [ids.get(&c.id).copied().unwrap_or(255), c.n_new as u8]),
        );
        for (_, pool) in s.device.paged() {
            let (free, kept) = pool.unused();
            key.push(free.len() as u8);
            key.extend(free.iter().chain(&kept).map(|b| b.0 as u8));
        }
        let on_host = s.host.paged().flat_map(|(_, pool)| pool.unused().0);
        key.extend(on_host.map(|b| b.0 as u8));
        key.extend(s.device.states.unused().0.iter().map(|b| b.0 as u8));
        key.push(s.device.blocks.n_usable() as u8);
        key.push(s.config.max_num_batched_tokens as u8);
        key
    }
}
