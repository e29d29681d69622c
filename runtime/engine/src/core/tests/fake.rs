//! A runner whose logits are a function of the tokens that a sequence reads through its block table: a wrong array, block or
//! copy changes them.

use super::super::*;
use crate::scheduler::BlockMove;
use std::borrow::Cow;

pub const N_VOCAB: usize = 32;
const BLOCK_SIZE: usize = 4;

/// Slots with the token and position that were written there.
pub struct Fake {
    device: Vec<Option<(i32, i32)>>,
    host: Vec<Option<(i32, i32)>>,
    /// Of the last step.
    n_rows: usize,
    logits: Vec<f32>,
    /// Steps that fail before one succeeds.
    pub n_failures: usize,
    /// Tokens of the largest step that its memory has room for.
    pub max_tokens: usize,
    /// Whether all logits are NaN.
    pub is_nan: bool,
    /// Whether the next failure takes the caches with it.
    pub loses_caches: bool,
    pub abilities: Abilities,
    /// Tokens of the last step.
    n_tokens: usize,
}

impl Fake {
    pub fn new(n_blocks: usize, n_host_blocks: usize) -> Fake {
        Fake {
            device: vec![None; n_blocks * BLOCK_SIZE],
            host: vec![None; n_host_blocks * BLOCK_SIZE],
            n_rows: 0,
            logits: Vec::new(),
            n_failures: 0,
            max_tokens: usize::MAX,
            is_nan: false,
            loses_caches: false,
            abilities: Abilities::default(),
            n_tokens: 0,
        }
    }

    /// Tokens of the last step.
    pub fn last_step(&self) -> usize {
        self.n_tokens
    }
}

/// A row of logits for these tokens: numbers from −4 to 4 that look random.
fn logits(tokens: &[(i32, i32)]) -> Vec<f32> {
    let mut state = tokens
        .iter()
        .fold(7u64, |h, (token, _)| (h ^ *token as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23));
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 * 8.0 - 4.0
    };
    (0..N_VOCAB).map(|_| next()).collect()
}

fn copy(from: &[Option<(i32, i32)>], to: &mut [Option<(i32, i32)>], m: &BlockMove) {
    for i in 0..BLOCK_SIZE {
        to[m.to.0 as usize * BLOCK_SIZE + i] = from[m.from.0 as usize * BLOCK_SIZE + i];
    }
}

impl Runner for Fake {
    fn n_vocab(&self) -> usize {
        N_VOCAB
    }

    fn abilities(&self) -> Abilities {
        self.abilities
    }

    fn move_blocks(&mut self, plan: &StepPlan) -> Result<()> {
        plan.swap_out.blocks.iter().for_each(|m| copy(&self.device, &mut self.host, m));
        plan.swap_in.blocks.iter().for_each(|m| copy(&self.host, &mut self.device, m));
        for m in &plan.block_copies.blocks {
            let before = self.device.clone();
            copy(&before, &mut self.device, m);
        }
        Ok(())
    }

    fn forward(&mut self, inputs: &StepInputs<'_>) -> Result<()> {
        if self.n_failures > 0 {
            self.n_failures -= 1;
            return Err(Error::Cancelled);
        }
        let b = inputs.batch;
        if b.n_tokens() > self.max_tokens {
            return Err(out_of_memory());
        }
        for ((slot, token), position) in b.paged[0].slots.iter().zip(&b.tokens).zip(&b.positions) {
            self.device[*slot as usize] = Some((*token, *position));
        }
        (self.n_rows, self.logits) = (b.n_outputs(), Vec::new());
        self.n_tokens = b.n_tokens();
        for id in &b.output_ids {
            let seq = b.query_starts[1..].iter().position(|end| id < end).expect("a sequence of each token");
            let table = &b.paged[0].block_table[seq * b.max_blocks..][..b.max_blocks];
            let read = (0..=b.positions[*id as usize]).map(|position| {
                let slot = table[position as usize / BLOCK_SIZE] as usize * BLOCK_SIZE;
                let found =
                    self.device[slot + position as usize % BLOCK_SIZE].expect("a slot that was written");
                assert_eq!(found.1, position, "a slot of another position");
                found
            });
            self.logits.extend(logits(&read.collect::<Vec<_>>()));
        }
        if self.is_nan {
            self.logits.fill(f32::NAN);
        }
        Ok(())
    }

    fn rows(&self) -> Result<Rows<'_>> {
        Ok(Rows { n_rows: self.n_rows, logits: Cow::Borrowed(&self.logits), largest: &[] })
    }

    fn recover(&mut self, e: Error, caches_lost: &mut dyn FnMut()) -> Result<()> {
        if self.loses_caches {
            self.loses_caches = false;
            self.device.fill(None);
            caches_lost();
            return Ok(());
        }
        Err(e)
    }
}

/// A device's answer.
fn out_of_memory() -> Error {
    let call = llmrt_host::CallError {
        who: "card".into(),
        call: "alloc",
        status: llmrt_abi::Status::OomDevice,
        scope: llmrt_abi::Scope::Call,
        vendor_code: 0,
        node: None,
        bytes_requested: 2,
        bytes_available: 1,
        message: "no room".into(),
    };
    Error::Host(call.into())
}

/// A core of the fake with so many blocks.
pub fn core(n_blocks: usize, n_host_blocks: usize, scheduler: SchedulerConfig) -> EngineCore<Fake> {
    let block_size = BLOCK_SIZE;
    let options =
        CoreOptions { scheduler, n_ctx: 64, n_blocks, n_host_blocks, block_size, ..CoreOptions::default() };
    EngineCore::new(Fake::new(n_blocks, n_host_blocks), None, options).unwrap()
}

/// All events until every request has ended. Steps that fail are repeated.
pub fn run<R: Runner>(core: &mut EngineCore<R>) -> Vec<EngineEvent> {
    let mut events = Vec::new();
    for _ in 0..5000 {
        if core.is_idle() {
            return events;
        }
        match core.step() {
            Ok(more) => events.extend(more),
            Err(Error::Cancelled) => {}
            Err(e) => panic!("{e}"),
        }
    }
    panic!("requests do not end: {:?}", core.scheduler().counts());
}

/// What each request came to, by id.
pub fn outputs(events: &[EngineEvent]) -> BTreeMap<RequestId, RequestOutput> {
    let finished = events.iter().filter_map(|event| match event {
        EngineEvent::Finished(output) => Some((output.request, output.clone())),
        EngineEvent::Failed { request, error } => panic!("{request}: {error}"),
        _ => None,
    });
    finished.collect()
}
