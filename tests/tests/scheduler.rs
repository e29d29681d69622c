//! Graphs split over devices that claim only some ops give the CPU's numbers, bit for bit, and what fell back is shown.

use llmrt_abi::DType;
use llmrt_engine::memory::memory_plan;
use llmrt_engine::{EngineOptions, Request};
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_host::sched::report::Report;
use llmrt_host::{Device, Host, HostOptions};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::nmse;
use llmrt_tests::partial::{CLAIMS, QUERIES};
use llmrt_tests::steps::{self, Core};
use std::sync::Arc;

/// The CPU, after the partial device `name` if one is given; the model's files, and options for it.
struct Setting {
    host: Arc<Host>,
    devices: Vec<Arc<Device>>,
    files: ModelFiles,
    options: EngineOptions,
}

fn setting(name: Option<&str>, model: &TinyLlama, strict: bool) -> Setting {
    let host: Arc<Host> = Host::new(HostOptions::default());
    host.register_builtin(llmrt_cpu::query).unwrap();
    let mut devices = Vec::new();
    if let Some(name) = name {
        let row = CLAIMS.iter().position(|c| c.name == name).unwrap();
        host.register_builtin(QUERIES[row]).unwrap();
        devices.push(host.device(name).unwrap());
    }
    devices.push(host.device("cpu").unwrap());
    let dir = tempfile::tempdir().unwrap();
    let files = ModelFiles::open(&model.write(dir.path()), &OpenOptions::default()).unwrap();
    let options = EngineOptions {
        n_ctx: 64,
        n_batch: 32,
        max_seqs: 2,
        k_type: DType::F16,
        v_type: DType::F16,
        strict,
        split: Default::default(),
        ..EngineOptions::default()
    };
    Setting { host, devices, files, options }
}

fn core(name: Option<&str>, model: &TinyLlama, strict: bool) -> Result<Core, llmrt_engine::Error> {
    let s = setting(name, model, strict);
    steps::core(&s.host, s.devices, s.files, s.options)
}

/// Compute memory per device, as `llmrt plan` shows it.
fn planned(name: Option<&str>) -> Vec<u64> {
    let s = setting(name, &TinyLlama::default(), false);
    let plan = memory_plan(&s.devices, &s.files, &s.options).unwrap();
    plan.devices.iter().map(|d| d.compute).collect()
}

/// Logits of a prompt in chunks, then of single tokens; and the report of the last step.
fn run(mut core: Core) -> (Vec<u32>, Report) {
    let (tokens, sizes) = steps::usual();
    let steps = steps::run(&mut core, &tokens, &sizes);
    (steps.bits(), steps.last_report().clone())
}

fn check(name: &str, model: &TinyLlama) -> Report {
    let (expected, _) = run(core(None, model, false).unwrap());
    assert_eq!(expected.len(), 23 * model.n_vocab as usize);
    let (bits, report) = run(core(Some(name), model, false).unwrap());
    if report.n_legalised == 0 {
        assert!(bits == expected, "{name}: {report}");
    }
    // Parts add up in another order than the whole.
    let floats = |bits: &[u32]| bits.iter().map(|&b| f32::from_bits(b)).collect::<Vec<_>>();
    let error = nmse(&floats(&bits), &floats(&expected));
    assert!(error < 1e-6, "{name}: NMSE {error}: {report}");
    report
}

#[test]
fn a_device_that_runs_everything_takes_the_whole_graph_in_one_split() {
    let report = check("everything", &TinyLlama::default());
    assert_eq!((report.splits.len(), report.n_fallbacks(), report.copied_bytes), (1, 0, 0), "{report}");
}

#[test]
fn a_device_with_mul_mat_and_add_gets_those_and_the_cpu_the_rest() {
    let report = check("matmul", &TinyLlama::default());
    // Per layer: q, k, v, out, gate, up, down and two residual adds; and the head.
    assert_eq!(report.nodes[0], 2 * 9 + 1, "{report}");
    assert!(report.copied_bytes > 0 && report.splits.len() > 4, "{report}");
    let text = report.to_string();
    assert!(text.contains("rms_norm on cpu instead of matmul: op"), "{text}");
}

#[test]
fn quantised_weights_split_over_devices_give_the_same_bits() {
    for dtype in [DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        check("matmul", &TinyLlama { n_embd: 256, dtype, ..TinyLlama::default() });
    }
}

#[test]
fn composite_ops_are_taken_apart_where_the_device_runs_the_parts() {
    // Attention and the gated unit of both layers; then nothing is left for the CPU.
    let report = check("simple", &TinyLlama::default());
    assert_eq!((report.n_legalised, report.n_fallbacks()), (4, 0), "{report}");
}

#[test]
fn weights_past_the_memory_of_a_device_stay_on_the_cpu() {
    for name in ["tiny", "tiny120", "tiny90"] {
        let report = check(name, &TinyLlama::default());
        assert!(report.nodes.iter().all(|&n| n > 0), "{report}");
        assert!(report.to_string().contains("memory"), "{report}");
    }
}

#[test]
fn a_device_without_room_to_compute_is_not_used_and_that_is_reported() {
    let report = check("tiny10", &TinyLlama::default());
    assert_eq!(report.devices, ["cpu"]);
    let core = core(Some("tiny10"), &TinyLlama::default(), false).unwrap();
    let warnings = core.runner().warnings();
    assert!(
        warnings[0].starts_with("tiny10 is not used: of the 9.8 KiB that may be used, computing takes"),
        "{warnings:?}"
    );
}

#[test]
fn a_device_that_fails_an_op_it_supports_does_not_get_it_again() {
    let report = check("liar", &TinyLlama::default());
    let text = report.to_string();
    assert!(text.contains("5 × rms_norm on cpu") && text.contains("2 composite nodes taken apart"), "{text}");
}

#[test]
fn a_cache_moves_when_its_device_turns_out_not_to_write_it() {
    let report = check("forgetful", &TinyLlama::default());
    let text = report.to_string();
    assert!(text.contains("4 × set_rows on cpu instead of forgetful"), "{text}");
}

#[test]
fn strict_placement_refuses_what_would_fall_back_and_lists_it() {
    let Err(e) = core(Some("matmul"), &TinyLlama::default(), true) else { panic!("nothing was refused") };
    let text = e.to_string();
    assert!(text.contains("rms_norm on cpu instead of matmul"), "{text}");
    assert!(core(Some("everything"), &TinyLlama::default(), true).is_ok());
}

#[test]
fn allocated_bytes_are_the_planned_bytes() {
    for name in [None, Some("everything"), Some("matmul")] {
        let mut core = core(name, &TinyLlama::default(), false).unwrap();
        let (_, before) = core.runner().allocated();
        // The largest step, whose plan the arenas were made for.
        for first in [0, 100] {
            let prompt = (first..first + 16).collect();
            core.add(Request { max_tokens: Some(0), ..Request::greedy(prompt) }).unwrap();
        }
        core.step().unwrap();
        let (_, after) = core.runner().allocated();
        assert_eq!(before, after, "{name:?}: no arena grew");
        assert_eq!(core.runner().report().unwrap().compute_bytes, after, "{name:?}");
        assert_eq!(planned(name), after, "{name:?}: what `llmrt plan` shows");
    }
}

#[test]
fn several_sequences_in_one_batch_give_the_logits_of_each_alone() {
    let prompts: [Vec<u32>; 2] = [(0..11).map(|i| 4 + i).collect(), (0..17).map(|i| 260 - i).collect()];
    let model = TinyLlama::default();
    let last = |prompt: &Vec<u32>| {
        let prompt_logits = Some(prompt.len() - 1);
        Request { prompt_logits, max_tokens: Some(0), ..Request::greedy(prompt.clone()) }
    };
    let mut together = core(None, &model, false).unwrap();
    for prompt in &prompts {
        together.add(last(prompt)).unwrap();
    }
    let found = steps::logits(together.step().unwrap());
    assert!(together.is_idle(), "one step computes both");
    for (i, prompt) in prompts.iter().enumerate() {
        let mut alone = core(None, &model, false).unwrap();
        alone.add(last(prompt)).unwrap();
        let n = model.n_vocab as usize;
        let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert!(bits(&found[i * n..(i + 1) * n]) == bits(&steps::logits(alone.step().unwrap())));
    }
}
