//! Requests beside others on simulated devices: the tokens of each alone, with too few blocks for all, chunks, swaps, prefixes
//! of others and beams; and caches and pinned memory as large as they were planned.

use llmrt_abi::types as c;
use llmrt_engine::beam::{BeamParams, EarlyStopping};
use llmrt_engine::memory::{KvLimit, PlacementPlan, kv_blocks};
use llmrt_engine::options::BLOCK_SIZE;
use llmrt_engine::scheduler::{Policy, Preemption};
use llmrt_engine::{Decoding, EngineEvent, EngineOptions, Request, SamplingParams};
use llmrt_host::device::Staging;
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_host::{Device, Host, HostOptions, Outcome};
use llmrt_tests::models::{TinyGemma3, TinyLlama};
use llmrt_tests::steps::{self, Core};
use llmrt_tests::{ascend, nvidia};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options reach a plugin when it is initialised, and it is initialised once at a time in a process.
static TURN: Mutex<()> = Mutex::new(());

const N_CTX: usize = 64;

/// A host with the CPU and one more device.
struct Lab {
    host: Arc<Host>,
    devices: Vec<Arc<Device>>,
    _turn: MutexGuard<'static, ()>,
}

/// The device of a plugin's file, whose option `lib_dir` names simulated libraries; no file: the simulator, or the CPU alone.
fn lab(name: &str, plugin: Option<(&Path, &Path)>) -> Lab {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut options = BTreeMap::new();
    if let Some((_, libraries)) = plugin {
        options.insert(format!("{name}.lib_dir"), libraries.display().to_string());
    }
    let host = Host::new(HostOptions { options, n_threads: Some(2), ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    host.register_builtin(llmrt_sim::query).unwrap();
    if let Some((file, _)) = plugin {
        let outcome = host.load(file.to_path_buf()).outcome;
        assert!(matches!(outcome, Outcome::Loaded { .. }), "{outcome:?}");
    }
    let names = if name == "cpu" { vec!["cpu"] } else { vec![name, "cpu"] };
    let device = |name: &&str| host.device(name).unwrap_or_else(|| panic!("no {name}"));
    let devices = names.iter().map(device).collect();
    Lab { host, devices, _turn: turn }
}

/// Each kind of device.
fn labs(check: impl Fn(&str, &Lab)) {
    check("cpu", &lab("cpu", None));
    check("sim", &lab("sim:sim", None));
    check("cuda", &lab("cuda", Some(nvidia::built())));
    check("cann", &lab("cann", Some(ascend::built())));
}

/// Models with caches of different kinds.
#[derive(Clone, Copy, Debug)]
enum Tiny {
    /// All layers see whole contexts.
    Llama,
    /// Two of three layers see a window of ten tokens.
    Gemma3,
}

impl Tiny {
    fn files(self) -> ModelFiles {
        let dir = tempfile::tempdir().unwrap();
        let path = match self {
            Tiny::Llama => TinyLlama::default().write(dir.path()),
            Tiny::Gemma3 => TinyGemma3::default().write(dir.path()),
        };
        ModelFiles::open(&path, &OpenOptions::default()).unwrap()
    }
}

fn options() -> EngineOptions {
    EngineOptions { n_ctx: N_CTX, n_batch: 32, max_seqs: 8, ..EngineOptions::default() }
}

impl Lab {
    fn core(&self, model: Tiny, options: EngineOptions) -> Core {
        steps::core(&self.host, self.devices.clone(), model.files(), options).unwrap()
    }
}

/// Greedy, sampled, several texts, beams; two with the same beginning of more than a block.
fn requests() -> Vec<Request> {
    let prompt = |n: u32, by: u32| (0..n).map(|i| 3 + (i * 7 + (i / 20) * by) % 290).collect::<Vec<_>>();
    let hot = SamplingParams { temperature: 1.5, top_k: 20, ..SamplingParams::default() };
    let beam = BeamParams { length_penalty: 1.0, early_stopping: EarlyStopping::Likely };
    let request =
        |prompt, decoding, n| Request { decoding, n, max_tokens: Some(10), ..Request::greedy(prompt) };
    let greedy = || Decoding::Sample { params: SamplingParams::greedy(), seed: 0 };
    vec![
        request(prompt(9, 0), greedy(), 1),
        request(prompt(33, 1), Decoding::Sample { params: hot.clone(), seed: 7 }, 1),
        request(prompt(30, 2), Decoding::Sample { params: hot, seed: 8 }, 3),
        request(prompt(18, 0), Decoding::Beam(beam), 2),
        request(prompt(40, 3), greedy(), 1),
    ]
}

/// The tokens of each request's texts, how many tokens were cached, and steps in which requests were preempted.
fn run(core: &mut Core, requests: &[Request]) -> (Vec<Vec<Vec<u32>>>, usize, usize) {
    let ids: Vec<_> = requests.iter().map(|request| core.add(request.clone()).unwrap()).collect();
    let (mut texts, mut n_cached, mut n_preempted) = (vec![Vec::new(); ids.len()], 0, 0);
    while !core.is_idle() {
        let before = core.scheduler().counts();
        for event in core.step().unwrap() {
            match event {
                EngineEvent::Finished(output) => {
                    n_cached += output.usage.n_cached;
                    let at = ids.iter().position(|id| *id == output.request).unwrap();
                    texts[at] = output.outputs.into_iter().map(|output| output.tokens).collect();
                }
                EngineEvent::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        let after = core.scheduler().counts();
        n_preempted += usize::from(after[0] + after[2] > before[0] + before[2]);
    }
    (texts, n_cached, n_preempted)
}

#[test]
fn requests_beside_others_have_the_tokens_of_each_alone_on_every_device() {
    let models = [Tiny::Llama, Tiny::Gemma3];
    labs(|name, lab| models.into_iter().for_each(|model| check_mixes(name, lab, model)));
}

fn check_mixes(name: &str, lab: &Lab, model: Tiny) {
    let requests = requests();
    let mut core = lab.core(model, EngineOptions { prefix_cache: false, swa_full: true, ..options() });
    let alone: Vec<_> =
        requests.iter().flat_map(|request| run(&mut core, std::slice::from_ref(request)).0).collect();
    let (mut n_cached, mut n_preempted) = (0, 0);
    // Blocks of 128 hold more than the context, and those of 4 little of it.
    for (i, (policy, preemption, n_batch, block_size, n_blocks)) in [
        (Policy::Chunked, Preemption::Auto, 16, 16, 8),
        (Policy::Chunked, Preemption::Swap, 32, 16, 9),
        (Policy::PrefillFirst, Preemption::Recompute, 64, 16, 10),
        (Policy::Chunked, Preemption::Recompute, 9, 16, 11),
        (Policy::Chunked, Preemption::Swap, 16, 128, 6),
        (Policy::PrefillFirst, Preemption::Recompute, 64, 128, 7),
        (Policy::Chunked, Preemption::Auto, 16, 4, 30),
    ]
    .into_iter()
    .enumerate()
    {
        let (block_size, kv_blocks, swap_space) = (Some(block_size), Some(n_blocks), 1 << 20);
        let options =
            EngineOptions { policy, preemption, n_batch, block_size, kv_blocks, swap_space, ..options() };
        let mut core = lab.core(model, options);
        for round in 0..2 {
            let (found, cached, preempted) = run(&mut core, &requests);
            assert_eq!(found, alone, "{name}, {model:?}, mix {i}, round {round}");
            (n_cached, n_preempted) = (n_cached + cached, n_preempted + preempted);
        }
    }
    assert!(n_cached > 0 && n_preempted > 0, "{name}, {model:?}: {n_cached} cached, {n_preempted} preempted");
}

/// Bytes of caches, and of arenas with the scratch memory that the host manages; not that of Ascend's operators, whose sizes
/// only their planning on the device gives.
fn allocated(name: &str, core: &Core) -> (u64, u64) {
    let (caches, arenas) = core.runner().allocated();
    let pools = core.runner().pool_stats();
    let scratch: u64 = pools.iter().filter(|_| name != "cann").map(|(_, pool)| pool.mapped).sum();
    (caches, arenas.iter().sum::<u64>() + scratch)
}

#[test]
fn caches_and_compute_memory_are_as_large_as_planned_on_every_device() {
    labs(|name, lab| {
        let free = options();
        let files = || Tiny::Llama.files();
        let all = PlacementPlan::new(&lab.devices, &files(), &free).unwrap().device_plans();
        let n_padding = (free.n_device_blocks() - free.n_blocks()) as u64;
        let block_bytes = all.iter().map(|row| row.kv).sum::<u64>() / free.n_device_blocks() as u64;
        let limit = KvLimit::Bytes((10 + n_padding) * block_bytes + 1);
        let n_blocks = kv_blocks(&lab.devices, &files(), &free, limit).unwrap();
        assert_eq!(n_blocks, 10, "{name}");
        let options = EngineOptions { kv_blocks: Some(n_blocks), ..free.clone() };
        let plans = PlacementPlan::new(&lab.devices, &files(), &options).unwrap().device_plans();
        let planned = (plans.iter().map(|row| row.kv).sum(), plans.iter().map(|row| row.compute).sum());
        let pinned: Vec<u64> = plans.iter().map(|row| row.pinned).collect();
        assert_eq!(pinned.iter().any(|n| *n > 0), ["cuda", "cann"].contains(&name), "{name}: {pinned:?}");
        let mut core = lab.core(Tiny::Llama, options);
        assert_eq!(
            (planned.0, core.runner().allocated().0),
            ((10 + n_padding) * block_bytes, planned.0),
            "{name}"
        );
        // The largest step: as many tokens as fit, logits of each sequence.
        let most = Request { max_tokens: Some(2), ..Request::greedy((0..4).collect()) };
        run(&mut core, &vec![most; 8]);
        assert_eq!(allocated(name, &core), planned, "{name}");
        assert_eq!(core.runner().staged(), pinned, "{name}");
        run(&mut core, &requests()[..3]);
        assert_eq!(core.runner().staged(), pinned, "{name}");
        assert_eq!(allocated(name, &core), planned, "{name}: steps allocate nothing");

        let small = kv_blocks(&lab.devices, &files(), &free, KvLimit::Bytes((3 + n_padding) * block_bytes))
            .unwrap_err();
        let expected = format!("the memory for the KV cache holds {} tokens", 3 * BLOCK_SIZE);
        assert!(small.to_string().starts_with(&expected), "{small}");
        let share = kv_blocks(&lab.devices, &files(), &free, KvLimit::Share(0.5)).unwrap();
        assert_eq!(share, free.n_blocks(), "{name}: no more than all take at full length");
    });
}

/// Pinned memory takes its place in a stream's order: it is read until the stream was synchronised, and not written before.
#[test]
fn staging_memory_is_not_written_while_a_stream_copies_it() {
    labs(|name, lab| {
        let device = &lab.devices[0];
        let staging = Staging::new(device, 1000).unwrap();
        assert_eq!(staging.is_some(), ["cuda", "cann"].contains(&name), "{name}");
        let Some(mut staging) = staging else { return };
        let buffer = device.alloc(0, 4096, c::USAGE_ANY).unwrap();
        buffer.fill(0, 4096, 9).unwrap();
        let stream = device.stream(1).unwrap();
        staging.bytes().unwrap().iter_mut().enumerate().for_each(|(i, byte)| *byte = i as u8);
        stream.set_staged(&buffer, 64, &staging, 100..200).unwrap();
        stream.set_staged(&buffer, 1000, &staging, 0..1000).unwrap();
        assert!(staging.bytes().unwrap_err().to_string().contains("still in use"), "{name}");
        stream.synchronize().unwrap();
        assert_eq!(staging.bytes().unwrap().len() as u64, staging.size(), "{name}");
        let mut found = vec![0; 2048];
        buffer.read(0, &mut found).unwrap();
        let expected = |i: usize| match i {
            64..164 => (i - 64 + 100) as u8,
            1000..2000 => (i - 1000) as u8,
            _ => 9,
        };
        assert!(found.iter().enumerate().all(|(i, byte)| *byte == expected(i)), "{name}");
        let past = stream.set_staged(&buffer, 0, &staging, 500..staging.size() + 1).unwrap_err();
        assert!(past.to_string().contains(&format!("of {}", staging.size())), "{name}: {past}");
        assert!(stream.set_staged(&buffer, 4000, &staging, 0..1000).is_err(), "{name}: past the buffer");
    });
}

/// A window of ten tokens takes few blocks of a sequence, however long it is.
#[test]
fn caches_of_windows_are_as_large_as_planned_on_every_device() {
    labs(|name, lab| {
        let files = || Tiny::Gemma3.files();
        let kv = |options: &EngineOptions| {
            let plans = PlacementPlan::new(&lab.devices, &files(), options).unwrap().device_plans();
            plans.iter().map(|row| row.kv).sum::<u64>()
        };
        let windowed = EngineOptions { n_ctx: 256, n_batch: 16, max_seqs: 2, ..EngineOptions::default() };
        let whole = EngineOptions { swa_full: true, ..windowed.clone() };
        // Three layers of 16 blocks each for both sequences; or one of these, and two of 3 blocks.
        assert_eq!(kv(&windowed) * 96, kv(&whole) * (32 + 2 * 6), "{name}");
        let limit = KvLimit::Bytes(kv(&windowed));
        assert_eq!(kv_blocks(&lab.devices, &files(), &windowed, limit).unwrap(), 32, "{name}");
        let limit = KvLimit::Bytes(kv(&windowed) - 1);
        assert_eq!(kv_blocks(&lab.devices, &files(), &windowed, limit).unwrap(), 31, "{name}");

        let long = Request { max_tokens: Some(200), ignore_eos: true, ..requests().remove(4) };
        let text = |options: &EngineOptions| {
            let mut core = lab.core(Tiny::Gemma3, options.clone());
            assert_eq!(core.runner().allocated().0, kv(options), "{name}");
            let (text, ..) = run(&mut core, &[long.clone(), long.clone()]);
            let pools = core.scheduler().device();
            assert!(pools.paged().all(|(_, pool)| pool.n_used() == 0), "{name}");
            assert_eq!(
                pools.windows.iter().map(|w| w.blocks.n_blocks()).max().unwrap_or(32),
                if options.swa_full { 32 } else { 6 }
            );
            text
        };
        assert!(text(&windowed) == text(&whole), "{name}");
    });
}
