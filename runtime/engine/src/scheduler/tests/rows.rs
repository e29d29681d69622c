//! Rows VL-14 to VL-29 of the list of requirements, each by its name: blocks, caches, parallel texts, beams, samplers, and the
//! arrays of a step.

use super::super::*;
use super::rules::{SIZE, add, blocks, config, go_on, scheduler, step};
use crate::batch::{Batch, PagedArrays};
use crate::beam::{BeamParams, EarlyStopping};
use crate::core::{CoreOptions, EngineCore, EngineEvent, Rows, Runner, StepInputs};
use crate::kv::pool::BlockId;
use crate::kv::pools::CacheMoves;
use crate::memory::{KvLimit, PlacementPlan, kv_blocks};
use crate::options::EngineOptions;
use crate::request::{Decoding, Request};
use crate::runner::DeviceRunner;
use crate::sampler::{Row, Sampler, SamplingParams, SamplingRules};
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::{Device, Host, HostOptions};
use llmrt_models::CacheGroup;
use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

fn host() -> (Arc<Host>, Vec<Arc<Device>>) {
    let host = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query).unwrap();
    let devices = host.devices();
    (host, devices)
}

/// The embedded model.
fn files() -> ModelFiles {
    ModelFiles::open(Path::new("../../cli/assets/stories.gguf"), &OpenOptions::default()).unwrap()
}

fn options() -> EngineOptions {
    EngineOptions { n_ctx: 64, max_seqs: 2, ..EngineOptions::default() }
}

fn runner(options: EngineOptions) -> DeviceRunner {
    let (host, devices) = host();
    let load = LoadOptions::default();
    DeviceRunner::new(&host, devices, files(), load, options).unwrap()
}

/// A table of block numbers for each sequence; a block has a size and counts its users.
#[test]
fn vl_14_each_sequence_has_a_table_of_counted_blocks() {
    let mut s = scheduler(config(), 8, 0);
    add(&mut s, 0, SIZE + 1, 1);
    add(&mut s, 1, SIZE, 1);
    step(&mut s);
    assert_eq!((blocks(&s, 0), blocks(&s, 1)), (vec![vec![0, 1]], vec![vec![2]]));
    assert_eq!((s.pool().block_size(), s.pool().n_users(BlockId(2))), (SIZE, Ok(1)));
}

/// Of a block's contents only their number is needed: the length of the table, and the tokens of the sequence.
#[test]
fn vl_16_a_table_is_as_long_as_its_tokens_need() {
    let mut s = scheduler(config(), 8, 0);
    add(&mut s, 0, SIZE - 1, 1);
    let lengths: Vec<usize> = (0..4)
        .map(|_| {
            step(&mut s);
            blocks(&s, 0)[0].len()
        })
        .collect();
    assert_eq!(lengths, [1, 1, 2, 2], "3, 4, 5 and 6 tokens");
}

#[test]
fn vl_15_the_block_freed_last_is_used_first_and_double_frees_are_errors() {
    let mut pool = BlockPool::new(3, SIZE).unwrap();
    let [a, b] = [pool.alloc().unwrap(), pool.alloc().unwrap()];
    assert_eq!((a, b), (BlockId(0), BlockId(1)));
    pool.free(a).unwrap();
    assert!(pool.free(a).unwrap_err().to_string().contains("not in use"));
    assert_eq!(pool.alloc(), Some(a));
    pool.share(a).unwrap();
    pool.free(a).unwrap();
    assert_eq!(pool.n_users(a), Ok(1), "a block in use stays");
}

#[test]
fn vl_17_sequences_of_a_group_share_the_blocks_of_its_prompt() {
    let mut s = scheduler(config(), 8, 0);
    add(&mut s, 0, SIZE + 1, 3);
    s.schedule().unwrap();
    go_on(&mut s, 3);
    assert_eq!(blocks(&s, 0), [vec![0, 1], vec![0, 1], vec![0, 1]]);
    assert_eq!([0, 1].map(|b| s.device.blocks.n_users(BlockId(b)).unwrap()), [3, 3]);
}

#[test]
fn vl_18_a_shared_last_block_is_copied_before_it_is_written() {
    let mut s = scheduler(config(), 8, 0);
    add(&mut s, 0, SIZE + 1, 3);
    s.schedule().unwrap();
    go_on(&mut s, 3);
    let plan = s.schedule().unwrap();
    let copies: Vec<(u32, u32)> = plan.block_copies.blocks.iter().map(|m| (m.from.0, m.to.0)).collect();
    assert_eq!(copies, [(1, 2), (1, 3)], "the last one writes where it is");
    assert_eq!(blocks(&s, 0), [vec![0, 2], vec![0, 3], vec![0, 1]]);
    assert_eq!([0, 1, 2, 3].map(|b| s.device.blocks.n_users(BlockId(b)).unwrap()), [3, 1, 1, 1]);
}

#[test]
fn vl_19_swapping_keeps_shared_blocks_shared() {
    let mut s = scheduler(SchedulerConfig { preemption: Preemption::Swap, ..config() }, 8, 8);
    add(&mut s, 0, SIZE + 1, 3);
    s.schedule().unwrap();
    go_on(&mut s, 3);
    s.withhold(8);
    let plan = s.schedule().unwrap();
    assert_eq!((plan.swap_out.blocks.len(), blocks(&s, 0)), (2, vec![vec![0, 1]; 3]), "each moves once");
    assert_eq!([0, 1].map(|b| s.host.blocks.n_users(BlockId(b)).unwrap()), [3, 3]);
    go_on(&mut s, 1);
    s.withhold(0);
    let plan = s.schedule().unwrap();
    assert_eq!((plan.swap_in.blocks.len(), plan.block_copies.blocks.len()), (2, 2));
    assert_eq!((s.host.blocks.n_used(), s.device.blocks.n_used()), (0, 4));
}

/// What weights, compute memory and other programs leave of a share of the memory, in blocks.
#[test]
fn vl_20_the_pool_is_as_large_as_memory_allows() {
    let (_host, devices) = host();
    let (files, options) = (files(), options());
    let row = &PlacementPlan::new(&devices, &files, &options).unwrap().device_plans()[0];
    let block_bytes = row.kv / options.n_blocks() as u64;
    assert_eq!(kv_blocks(&devices, &files, &options, KvLimit::Bytes(7 * block_bytes)), Ok(7));
    let (free, total) = devices[0].memory().unwrap();
    let n = kv_blocks(&devices, &files, &options, KvLimit::Share(0.9)).unwrap() as u64;
    let used = total - free + row.weights + row.compute + row.staging;
    let expected = ((total as f64 * 0.9) as u64).saturating_sub(used) / block_bytes;
    assert_eq!(n, expected.min(options.n_blocks() as u64), "no more than all take at full length");
    let swap = runner(EngineOptions { swap_space: 7 * block_bytes, ..options }).into_core(None).unwrap();
    assert_eq!(swap.scheduler().host().blocks.n_blocks(), 7, "blocks of host memory");
}

/// One cache of K and one of V for each layer, of rows by slot; a second copy in host memory for blocks that are swapped.
#[test]
fn vl_21_and_28_each_layer_has_rows_of_keys_and_values_by_slot() {
    let mut runner = runner(EngineOptions { swap_space: 1 << 20, ..options() });
    let spec = runner.model().spec().clone();
    let [CacheGroup::Paged { layers, window: 0 }] = &spec.caches[..] else { panic!("{spec:?}") };
    let mut expected: Vec<_> =
        layers.iter().flat_map(|layer| ["k", "v"].map(|kv| format!("blk.{}.{kv}_cache", layer.il))).collect();
    expected.sort();
    let caches = runner.caches();
    assert_eq!(caches.iter().map(|cache| cache.name.clone()).collect::<Vec<_>>(), expected);
    let row_bytes = layers[0].k_row * 2;
    assert!(caches.iter().all(|cache| cache.n_bytes == 16 * row_bytes), "a block is 16 rows of F16");
    // Host memory has the same blocks.
    let name = caches[0].name.clone();
    let content: Vec<u8> = (0..16 * row_bytes).map(|i| i as u8).collect();
    runner.executor().write_state(&name, 3 * 16 * row_bytes, &content).unwrap();
    let moves = |from, to| {
        let blocks = vec![BlockMove { from: BlockId(from), to: BlockId(to) }];
        CacheMoves { blocks, ..CacheMoves::default() }
    };
    runner.swap_out(&moves(3, 1)).unwrap();
    runner.swap_in(&moves(1, 5)).unwrap();
    let mut found = vec![0; content.len()];
    runner.executor_ref().read_state(&name, 5 * 16 * row_bytes, &mut found).unwrap();
    assert_eq!(found, content);
}

/// Load, prepare the largest step, move blocks, compute: one runner for all devices.
#[test]
fn vl_22_a_runner_executes_what_was_planned() {
    struct Counted(Vec<&'static str>);
    impl Runner for Counted {
        fn n_vocab(&self) -> usize {
            2
        }
        fn prepare(&mut self) -> Result<()> {
            self.0.push("prepare");
            Ok(())
        }
        fn move_blocks(&mut self, _plan: &StepPlan) -> Result<()> {
            self.0.push("move");
            Ok(())
        }
        fn forward(&mut self, inputs: &StepInputs<'_>) -> Result<()> {
            self.0.push("forward");
            assert_eq!(inputs.batch.n_outputs(), 1);
            Ok(())
        }
        fn rows(&self) -> Result<Rows<'_>> {
            Ok(Rows { n_rows: 1, logits: Cow::Borrowed(&[0.0, 1.0]), largest: &[] })
        }
    }
    let mut core = EngineCore::new(Counted(Vec::new()), None, CoreOptions::default()).unwrap();
    core.add(Request { max_tokens: Some(1), ..Request::greedy(vec![0]) }).unwrap();
    core.step().unwrap();
    assert_eq!(core.runner().0, ["prepare", "move", "forward"]);
    let before = runner(options()).allocated();
    assert!(before.1[0] > 0, "the largest step has its memory before the first request: {before:?}");
}

/// Texts of a request, each with the seed of its number; the `n` likeliest of `best_of` are returned. The searches that these
/// are compared with are in core/tests/cpu.rs.
#[test]
fn vl_23_the_n_best_of_several_texts_are_returned() {
    let mut core = runner(EngineOptions { max_seqs: 5, ..options() }).into_core(None).unwrap();
    let params = SamplingParams { temperature: 2.0, ..SamplingParams::default() };
    let mut run = |n, best_of| {
        let decoding = Decoding::Sample { params: params.clone(), seed: 3 };
        let request = Request { decoding, n, best_of, logprobs: Some(0), ..Request::greedy(vec![1, 403]) };
        core.add(Request { max_tokens: Some(6), ..request }).unwrap();
        let mut texts = Vec::new();
        while !core.is_idle() {
            for event in core.step().unwrap() {
                if let EngineEvent::Finished(output) = event {
                    texts = output.outputs.into_iter().map(|o| (o.cumulative_logprob, o.tokens)).collect();
                }
            }
        }
        texts
    };
    let mut all: Vec<_> = run(5, None);
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    assert_eq!(run(2, Some(5)), all[..2]);
}

/// Score, rules of stopping, and what is refused. The searches that beams are compared with are in core/tests.
#[test]
fn vl_24_beams_are_compared_by_their_score() {
    let params = BeamParams { length_penalty: 2.0, early_stopping: EarlyStopping::Never };
    assert_eq!(params.score(-8.0, 4), -0.5);
    let mut core = runner(options()).into_core(None).unwrap();
    let request = Request { decoding: Decoding::Beam(params), n: 1, ..Request::greedy(vec![1]) };
    let refused = core.add(request.clone()).unwrap_err().to_string();
    assert!(refused.starts_with("best_of is 1: expected 2 or more"), "{refused}");
    // Beams are not sampled: there is no temperature, top-p or top-k to give.
    core.add(Request { best_of: Some(2), ..request }).unwrap();
}

/// Penalties, then temperature, top-k, top-p and min-p; the largest logit below a temperature of 1e-5.
#[test]
fn vl_25_the_temperature_acts_before_the_cuts() {
    let first = |temperature, top_p| {
        let rules = SamplingRules::Vllm;
        let params =
            SamplingParams { temperature, rules, top_k: 0, top_p, min_p: 0.0, ..SamplingParams::default() };
        let mut sampler = Sampler::new(params, 1).unwrap();
        let mut seen: Vec<_> =
            (0..300).map(|_| sampler.sample(Row::All(&[2.0, 1.0, 0.0]), &[], 0).unwrap()).collect();
        seen.sort_unstable();
        seen.dedup();
        seen
    };
    // 0.665, 0.245, 0.09 at temperature 1; 0.42, 0.32, 0.26 at temperature 4.
    assert_eq!(first(1.0, 0.6), [0]);
    assert_eq!(first(4.0, 0.6), [0, 1], "a hot distribution has more to cut from");
    assert_eq!(first(9e-6, 1.0), [0]);
    let penalised = SamplingParams { repeat_penalty: 3.0, ..SamplingParams::greedy() };
    assert_eq!(Sampler::new(penalised, 1).unwrap().sample(Row::All(&[2.0, 1.0, 0.0]), &[0], 0), Ok(1));
}

/// Tokens, positions, slots (block · size + offset), block table, lengths and the last token of each prompt, of a decode
/// beside a prompt.
#[test]
fn vl_26_the_arrays_of_a_step() {
    let mut s = scheduler(config(), 8, 0);
    add(&mut s, 0, SIZE + 1, 1);
    step(&mut s);
    add(&mut s, 1, 2 * SIZE + 2, 1);
    let plan = s.schedule().unwrap();
    let find = |id| s.sequence(id).map(|seq| (seq, None));
    let batch = Batch::new(&plan.chunks, find, s.device(), 3).unwrap();
    let expected = Batch {
        tokens: vec![0, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109],
        positions: vec![5, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
        paged: vec![PagedArrays {
            window: 0,
            n_blocks: 8,
            slots: vec![5, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17],
            block_table: vec![0, 1, 0, 2, 3, 4],
        }],
        seq_lens: vec![6, 10],
        query_starts: vec![0, 1, 11],
        state_slots: vec![-1; 4],
        output_ids: vec![0, 10],
        hidden: Vec::new(),
        max_blocks: 3,
        before: batch.before.clone(),
        encoder: batch.encoder.clone(),
        ids: batch.ids.clone(),
        rows: batch.rows.clone(),
    };
    assert_eq!(batch, expected);
    go_on(&mut s, 1);
}

/// What is in use on a device is not given to the cache: a share counts weights, compute memory and what others have.
#[test]
fn vl_27_memory_in_use_is_not_the_caches() {
    let (_host, devices) = host();
    let n = |share| kv_blocks(&devices, &files(), &options(), KvLimit::Share(share));
    let (free, total) = devices[0].memory().unwrap();
    let used = (total - free) as f64 / total as f64;
    assert!(n(used / 2.0).is_err(), "less than what is in use");
    assert!(n(0.9 + 0.1 * used).is_ok());
}

/// Neither tensor nor pipeline parallelism cuts the port's caches: each device has those of its layers, here all.
#[test]
fn vl_29_caches_are_divided_among_devices_by_layer() {
    let (_host, devices) = host();
    let plan = PlacementPlan::new(&devices, &files(), &options()).unwrap();
    let states = plan.states();
    assert!(states.values().all(|device| *device == 0) && states.len() == 2 * 4, "{states:?}");
}
