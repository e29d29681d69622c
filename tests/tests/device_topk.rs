//! Where the largest logits decide the next tokens, a device with memory of its own picks them and only they are read
//! back: the tokens are those of all logits, for every sampler and seed, and the bytes are counted.

use llmrt_engine::{
    Decoding, DeviceRunner, EngineEvent, EngineOptions, Error, Request, SamplingParams, TokenId,
};
use llmrt_gguf::Gguf;
use llmrt_host::load::{LoadOptions, ModelFiles, OpenOptions};
use llmrt_host::sched::SplitMode;
use llmrt_host::sched::report::Report;
use llmrt_host::{Host, HostOptions, Outcome};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::nvidia;
use llmrt_tests::partial::{CLAIMS, QUERIES};
use llmrt_tests::steps::Core;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Options reach a plugin when it is initialised, and it is initialised once at a time in a process.
static TURN: Mutex<()> = Mutex::new(());

/// A host and the devices to use, the CPU last.
struct Lab {
    host: Arc<Host>,
    devices: Vec<String>,
    _turn: MutexGuard<'static, ()>,
}

fn lab(options: BTreeMap<String, String>, devices: &[&str]) -> Lab {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let host = Host::new(HostOptions { options, n_threads: Some(2), ..HostOptions::default() });
    host.register_builtin(llmrt_cpu::query).unwrap();
    let devices = devices.iter().chain(&["cpu"]).map(|name| name.to_string()).collect();
    Lab { host, devices, _turn: turn }
}

/// The CPU alone.
fn cpu() -> Lab {
    lab(BTreeMap::new(), &[])
}

/// Simulated devices; `profiles` is the text of a profile file, or empty for the built-in ones.
fn sim(queue: &str, profiles: &str, devices: &[&str]) -> Lab {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), profiles).unwrap();
    let mut options = BTreeMap::from([("sim.queue".to_string(), queue.to_string())]);
    if !profiles.is_empty() {
        options.insert("sim.profiles".into(), file.path().display().to_string());
    }
    let lab = lab(options, devices);
    lab.host.register_builtin(llmrt_sim::query).unwrap();
    lab
}

/// A simulated card of the cuda plugin.
fn cuda() -> Lab {
    let (plugin, libraries) = nvidia::built();
    let lab = lab(BTreeMap::from([("cuda.lib_dir".into(), libraries.display().to_string())]), &["cuda"]);
    let outcome = lab.host.load(plugin.to_path_buf()).outcome;
    assert!(matches!(outcome, Outcome::Loaded { n_devices: 1, .. }), "{outcome:?}");
    lab
}

/// One of the devices that claim only some ops.
fn partial(name: &str) -> Lab {
    let lab = lab(BTreeMap::new(), &[name]);
    lab.host.register_builtin(QUERIES[CLAIMS.iter().position(|c| c.name == name).unwrap()]).unwrap();
    lab
}

impl Lab {
    fn core(&self, model: &[u8], keep_logits_from: u64, split: SplitMode) -> Core {
        self.core_of(model, EngineOptions { keep_logits_from, split, ..options() })
    }

    fn core_of(&self, model: &[u8], options: EngineOptions) -> Core {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.gguf");
        std::fs::write(&path, model).unwrap();
        let files = ModelFiles::open(&path, &OpenOptions::default()).unwrap();
        let devices =
            self.devices.iter().map(|name| self.host.device(name).unwrap_or_else(|| panic!("no {name}")));
        // One of the tests has a NaN among its weights.
        let load = LoadOptions::default();
        let runner = DeviceRunner::new(&self.host, devices.collect(), files, load, options).unwrap();
        runner.into_core(None).unwrap()
    }
}

fn options() -> EngineOptions {
    EngineOptions { n_ctx: 64, n_batch: 64, max_seqs: 8, ..EngineOptions::default() }
}

/// What became of some requests.
#[derive(Clone, Debug)]
struct Run {
    tokens: Vec<Vec<TokenId>>,
    /// Bytes read back by each step, which gave logits of all requests.
    n_bytes: Vec<u64>,
    report: Report,
}

/// Seven tokens by each way of decoding, after prompts that differ.
fn run(core: &mut Core, samplers: &[Decoding]) -> Result<Run, Error> {
    let mut ids = Vec::new();
    for (i, decoding) in (0..).zip(samplers) {
        let prompt = (0..3 + i % 3).map(|j| 5 + 31 * i + 7 * j).collect();
        let request = Request { decoding: decoding.clone(), max_tokens: Some(7), ..Request::greedy(prompt) };
        ids.push(core.add(request)?);
    }
    let (mut n_bytes, mut tokens) = (Vec::new(), vec![Vec::new(); ids.len()]);
    for _ in 0..7 {
        let mut n_rows = 0;
        for event in core.step()? {
            match event {
                EngineEvent::Token { request, token, .. } => {
                    n_rows += 1;
                    tokens[ids.iter().position(|id| *id == request).unwrap()].push(token.token);
                }
                EngineEvent::Failed { error, .. } => return Err(error),
                _ => {}
            }
        }
        assert_eq!(n_rows, ids.len(), "a step for all");
        n_bytes.push(core.runner().n_bytes_read());
    }
    Ok(Run { tokens, n_bytes, report: core.runner().report().unwrap().clone() })
}

fn chain(params: SamplingParams, seed: u64) -> Decoding {
    Decoding::Sample { params, seed }
}

/// Samplers that need the 1, 40, 7, 100 and 1 largest logits.
fn few(seed: u64) -> Vec<Decoding> {
    let hot = SamplingParams { temperature: 3.0, ..SamplingParams::default() };
    let typical = SamplingParams { top_k: 7, top_p: 0.5, typical_p: 0.9, min_p: 0.0, ..hot.clone() };
    let wide = SamplingParams { top_k: 100, top_p: 1.0, min_p: 0.0, ..hot.clone() };
    vec![
        chain(SamplingParams::greedy(), seed),
        chain(hot, seed),
        chain(typical, seed),
        chain(wide, seed),
        Decoding::Llama2c { temperature: 0.0, top_p: 0.9, seed: 1 },
    ]
}

/// Samplers that need all logits.
fn all(seed: u64) -> Vec<Decoding> {
    let hot = SamplingParams { temperature: 3.0, ..SamplingParams::default() };
    vec![
        chain(SamplingParams { top_k: 0, ..hot.clone() }, seed),
        chain(SamplingParams { repeat_penalty: 1.5, ..hot.clone() }, seed),
        chain(SamplingParams { logit_bias: vec![(7, 2.0)], ..SamplingParams::greedy() }, seed),
        Decoding::Llama2c { temperature: 1.0, top_p: 0.9, seed: seed + 1 },
    ]
}

const N_VOCAB: u64 = 300;

fn model() -> Vec<u8> {
    TinyLlama { n_vocab: N_VOCAB, ..TinyLlama::default() }.bytes()
}

/// Bytes of a row that is read whole, and of one of which `k` are picked.
fn whole() -> u64 {
    4 * N_VOCAB
}

fn picked(k: u64) -> u64 {
    8 * k + 4
}

/// With picking and without, the samplers' tokens are the same; picking reads this many bytes a step.
fn check(lab: &Lab, samplers: &[Decoding], expected_bytes: u64) -> Run {
    check_split(lab, samplers, expected_bytes, SplitMode::Layers)
}

fn check_split(lab: &Lab, samplers: &[Decoding], expected_bytes: u64, split: SplitMode) -> Run {
    let model = model();
    let expected = run(&mut lab.core(&model, u64::MAX, split), samplers).unwrap();
    let found = run(&mut lab.core(&model, 0, split), samplers).unwrap();
    assert_eq!(found.tokens, expected.tokens, "{:?}: {}", lab.devices, found.report);
    assert_eq!(expected.n_bytes, [whole() * samplers.len() as u64; 7], "{}", expected.report);
    assert_eq!(found.n_bytes, [expected_bytes; 7], "{:?}: {}", lab.devices, found.report);
    assert_eq!(found.report.n_fallbacks(), expected.report.n_fallbacks(), "{}", found.report);
    found
}

#[test]
fn the_tokens_are_those_of_all_logits_for_every_sampler_and_seed() {
    let lab = sim("delay:50", "", &["sim"]);
    for seed in 0..25 {
        check(&lab, &few(seed), 5 * picked(128));
    }
}

#[test]
fn greedy_steps_read_one_logit_of_each_row() {
    for queue in ["now", "delay:150", "sync"] {
        check(&sim(queue, "", &["sim"]), &vec![few(0).swap_remove(0); 8], 8 * picked(1));
    }
}

#[test]
fn rows_that_need_all_logits_are_read_whole_and_the_others_are_not() {
    let lab = sim("sync", "", &["sim"]);
    for seed in 0..5 {
        let samplers = [all(seed)[..2].to_vec(), few(seed)[1..3].to_vec(), all(seed)[2..].to_vec()].concat();
        check(&lab, &samplers, 4 * whole() + 6 * picked(64));
    }
    check(&lab, &all(9), 4 * whole());
}

#[test]
fn the_cpus_tokens_come_from_a_simulated_device_that_picks() {
    let samplers = [few(3), all(3)[..3].to_vec()].concat();
    let expected = run(&mut cpu().core(&model(), u64::MAX, SplitMode::Layers), &samplers).unwrap();
    let found = check(&sim("delay:150", "", &["sim"]), &samplers, 3 * whole() + 8 * picked(128));
    assert_eq!(found.tokens, expected.tokens);
}

/// Sorts of the cuda plugin go through one pass for up to 1024 logits and several for more.
#[test]
fn a_simulated_cuda_card_picks() {
    let lab = cuda();
    check(&lab, &few(1), 5 * picked(128));
    check(&lab, &[few(2), all(2)[..2].to_vec()].concat(), 2 * whole() + 7 * picked(128));
    let model = TinyLlama { n_vocab: 5000, ..TinyLlama::default() }.bytes();
    let expected = run(&mut lab.core(&model, u64::MAX, SplitMode::Layers), &few(3)).unwrap();
    let found = run(&mut lab.core(&model, 0, SplitMode::Layers), &few(3)).unwrap();
    assert_eq!(found.tokens, expected.tokens);
    assert_eq!((found.n_bytes[6], expected.n_bytes[6]), (5 * picked(128), 5 * 4 * 5000));
}

#[test]
fn the_card_with_the_last_layers_picks() {
    let card = "[card]\ndevices = 2\np2p = yes\nmemory = ";
    let found = check(
        &sim("sync", &format!("{card}560 KiB"), &["sim:card.0", "sim:card.1"]),
        &few(0),
        5 * picked(128),
    );
    assert!(
        found.report.nodes[0] > 0 && found.report.nodes[1] > 0 && found.report.nodes[2] == 0,
        "{}",
        found.report
    );

    let lab = sim("sync", &format!("{card}64 MiB"), &["sim:card.0", "sim:card.1"]);
    let found = check_split(&lab, &few(0), 5 * picked(128), SplitMode::Rows);
    assert!(found.report.splits.len() > 10, "{}", found.report);
    let is_there = |(n, bytes): &(usize, u64)| *n > 0 && *bytes > 0;
    assert!(found.report.collectives.iter().all(is_there), "put together by the cards: {}", found.report);
    drop(lab);
    let apart = sim("sync", "[card]\ndevices = 2\np2p = no\nmemory = 64 MiB", &["sim:card.0", "sim:card.1"]);
    let found = check_split(&apart, &few(0), 5 * picked(128), SplitMode::Rows);
    assert!(found.report.by_copies.is_some_and(|why| why.contains("cannot reach each other")));
}

#[test]
fn on_the_cpu_there_is_no_copy_to_spare() {
    check(&cpu(), &few(0), 5 * whole());
}

/// Nothing is sorted elsewhere than on the device that has the logits.
#[test]
fn a_device_that_cannot_pick_gives_all_logits() {
    for op in ["top_k", "get_rows", "sum_rows"] {
        let found =
            check(&sim("sync", &format!("[card]\nops = * -{op}"), &["sim:card"]), &few(0), 5 * whole());
        assert!(found.report.n_copies == 0 || op == "get_rows", "{op}: {}", found.report);
    }
    let greedy = vec![few(0).swap_remove(0); 3];
    check(&sim("sync", "[card]\nops = * -argmax", &["sim:card"]), &greedy, 3 * whole());
    check(&sim("sync", "[card]\nops = * -top_k", &["sim:card"]), &greedy, 3 * picked(1));
    // The device that makes the logits must pick: here that is the CPU.
    check(&sim("sync", "[card]\nops = * -mul_mat", &["sim:card"]), &few(0), 5 * whole());
}

/// It claims the op and refuses it once for each shape of step; then it gives all logits.
#[test]
fn a_device_whose_top_k_fails_is_not_used_for_it_again() {
    let lab = partial("unsorted");
    let model = model();
    let expected = run(&mut lab.core(&model, u64::MAX, SplitMode::Layers), &few(0)).unwrap();
    let found = run(&mut lab.core(&model, 0, SplitMode::Layers), &few(0)).unwrap();
    assert_eq!(found.tokens, expected.tokens);
    assert_eq!(found.n_bytes[1..], [5 * whole(); 6]);
    assert_eq!(found.report.n_fallbacks(), 0, "{}", found.report);
}

/// Picking takes memory. A card that has it for all but that computes the logits as before.
#[test]
fn a_card_without_room_to_pick_is_kept_and_gives_all_logits() {
    let first_step = |kib: u32, keep_logits_from| {
        let lab = sim("now", &format!("[card]\nmemory = {kib} KiB"), &["sim:card"]);
        let options = EngineOptions { n_batch: 8, keep_logits_from, ..options() };
        let mut core = lab.core_of(&model(), options);
        for token in 0..8 {
            let params = SamplingParams { top_k: 200, ..SamplingParams::default() };
            core.add(Request { decoding: chain(params, 1), ..Request::greedy(vec![token]) }).unwrap();
        }
        let events = core.step().unwrap();
        let n_rows = events.iter().filter(|event| matches!(event, EngineEvent::Token { .. })).count();
        let runner = core.runner();
        let report = runner.report().unwrap();
        (n_rows, report.devices.len(), report.n_fallbacks(), runner.n_bytes_read())
    };
    let mut seen = BTreeSet::new();
    for kib in (400..720).step_by(2) {
        let (n_rows, n_devices, n_fallbacks, _) = first_step(kib, u64::MAX);
        let found = first_step(kib, 0);
        assert_eq!((found.0, found.1, found.2), (n_rows, n_devices, n_fallbacks), "{kib} KiB");
        seen.insert((n_devices, n_fallbacks > 0, found.3));
    }
    assert!(seen.contains(&(2, false, 8 * picked(256))), "{seen:?}");
    assert!(seen.contains(&(2, false, 8 * whole())), "{seen:?}");
}

#[test]
fn few_bytes_of_logits_are_read_as_they_are() {
    let lab = sim("now", "", &["sim"]);
    let read = |keep_logits_from| {
        let core = &mut lab.core(&model(), keep_logits_from, SplitMode::Layers);
        run(core, &few(0)).unwrap().n_bytes[6]
    };
    assert_eq!(read(5 * whole()), 5 * picked(128));
    assert_eq!(read(5 * whole() + 1), 5 * whole());
}

/// top_k passes over NaN; the sampler does not.
#[test]
fn a_logit_that_is_no_number_is_the_same_error() {
    for token in [0, 77, 299] {
        let mut bytes = model();
        let gguf = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
        let at = gguf.tensor("output.weight").unwrap().offset as usize + token * 64 * 4;
        bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        let lab = sim("sync", "", &["sim"]);
        for keep_logits_from in [0, u64::MAX] {
            let e = run(&mut lab.core(&bytes, keep_logits_from, SplitMode::Layers), &few(0)).unwrap_err();
            let expected = format!("the logit of token {token} is NaN:");
            assert!(e.to_string().starts_with(&expected), "{e}");
        }
    }
}
