//! One graph over three plugins: simulated devices, the example in C, and the CPU give together the CPU's logits, and
//! the placement report names the device of every node.

use llmrt_abi::DType;
use llmrt_engine::EngineOptions;
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_host::sched::report::Report;
use llmrt_host::{Host, HostOptions, Outcome};
use llmrt_tests::compile::c_example;
use llmrt_tests::models::TinyLlama;
use llmrt_tests::nmse;
use llmrt_tests::steps::{self, Core};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Two simulated chips, neither of which could run a model alone.
const CHIPS: &str = "
    [rows]
    ops = rms_norm rope add get_rows mul
    [cache]
    ops = set_rows rms_norm attention
    dtypes.attention = f32 i32";

/// A plugin reads its options in `init`, which runs once at a time in a process.
static TURN: Mutex<()> = Mutex::new(());

/// A host with the three plugins, and what it logged.
struct Lab {
    host: Arc<Host>,
    log: Arc<Mutex<Vec<String>>>,
    _profiles: tempfile::NamedTempFile,
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// `queue`: when the chips run their work. `validate`: whether every call is checked.
    fn new(queue: &str, validate: bool) -> Option<Lab> {
        let file = c_example(env!("CARGO_TARGET_TMPDIR"))?;
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let profiles = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(profiles.path(), CHIPS).unwrap();
        let options =
            [("sim.profiles", profiles.path().display().to_string()), ("sim.queue", queue.to_string())];
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let host = Host::new(HostOptions {
            n_threads: Some(2),
            options: options.map(|(key, value)| (key.to_string(), value)).into(),
            log: Some(Arc::new(move |_, _, text| lines.lock().unwrap().push(text.to_string()))),
            validate: Some(validate),
            ..HostOptions::default()
        });
        host.register_builtin(llmrt_cpu::query).unwrap();
        host.register_builtin(llmrt_sim::query).unwrap();
        let found = host.load(file.to_path_buf());
        assert!(matches!(found.outcome, Outcome::Loaded { n_devices: 1, .. }), "{found:?}");
        Some(Lab { host, log, _profiles: profiles, _turn: turn })
    }

    /// A core on these devices, in this order, and the CPU.
    fn core(&self, devices: &str, model: &TinyLlama) -> Core {
        let dir = tempfile::tempdir().unwrap();
        let files = ModelFiles::open(&model.write(dir.path()), &OpenOptions::default()).unwrap();
        let names = devices.split_whitespace().chain(["cpu"]);
        let devices = names.map(|name| self.host.device(name).unwrap_or_else(|| panic!("no {name}")));
        let options = EngineOptions {
            n_ctx: 64,
            n_batch: 32,
            max_seqs: 1,
            k_type: DType::F32,
            v_type: DType::F32,
            split: Default::default(),
            ..EngineOptions::default()
        };
        steps::core(&self.host, devices.collect(), files, options).unwrap()
    }
}

/// Logits of a prompt in chunks and of single tokens after it, and the report of every step.
fn run(mut core: Core) -> (Vec<f32>, Vec<Report>) {
    let (tokens, sizes) = steps::usual();
    let steps = steps::run(&mut core, &tokens, &sizes);
    (steps.logits, steps.reports)
}

/// A report's placement in a line: nodes of the first device, and per other device how many of which op.
fn places(report: &Report) -> String {
    let of = |row: usize| {
        let groups = report.fallbacks.iter().filter(|f| f.device == row);
        let ops = groups.map(|f| format!("{} {}", f.count, f.op)).collect::<Vec<_>>();
        format!("{} {}", report.devices[row], ops.join(" "))
    };
    let others = (1..report.devices.len()).map(|row| format!("; {}", of(row))).collect::<String>();
    format!("{} {}{others}; {} splits", report.devices[0], report.nodes[0], report.splits.len())
}

/// Runs on these devices, whenever the chips run their work, with and without checks: the CPU's logits, and in every
/// step these places.
fn check_model(devices: &str, model: &TinyLlama, expected: &str) {
    for (queue, validate) in [("now", true), ("delay:150", false), ("sync", true), ("sync", false)] {
        let Some(lab) = Lab::new(queue, validate) else { return };
        let (on_cpu, _) = run(lab.core("", model));
        let (found, reports) = run(lab.core(devices, model));
        let error = nmse(&found, &on_cpu);
        assert!(error <= 1e-6, "{devices}, queue {queue}: NMSE {error}\n{}", reports[0]);
        for report in &reports {
            assert_eq!(places(report), expected, "{report}");
            assert!(report.nodes.iter().all(|&n| n > 0), "{report}");
            // Every split but the first works on what another device made.
            assert!(report.copied_bytes > 0 && report.n_copies + 1 >= report.splits.len(), "{report}");
            assert!(report.failed.is_empty() && report.n_legalised == 0, "{report}");
        }
        let (prompt, decode) = (&reports[0], &reports[5]);
        assert!(decode.copied_bytes < prompt.copied_bytes, "7 tokens {prompt}\n1 token {decode}");
        let log = lab.log.lock().unwrap();
        assert!(
            !log.iter().any(|line| line.contains("LLMRT_VALIDATE")),
            "{devices}, queue {queue}: {log:#?}"
        );
    }
}

fn check(devices: &str, expected: &str) {
    check_model(devices, &TinyLlama::default(), expected);
}

#[test]
fn products_in_c_rows_on_a_chip_and_the_rest_on_the_cpu() {
    check(
        "c sim:rows",
        "c 19; sim:rows 3 get_rows 5 rms_norm 4 rope; cpu 2 attention 2 glu 4 set_rows; 21 splits",
    );
}

#[test]
fn the_first_choice_takes_what_both_can() {
    check("sim:rows c", "sim:rows 16; c 15 mul_mat; cpu 2 attention 2 glu 4 set_rows; 21 splits");
}

#[test]
fn four_devices_share_a_graph_in_any_order() {
    check(
        "c sim:rows sim:cache",
        "c 19; sim:rows 3 get_rows 5 rms_norm 4 rope; sim:cache 2 attention 4 set_rows; cpu 2 glu; 21 splits",
    );
    check(
        "sim:rows sim:cache c",
        "sim:rows 16; sim:cache 2 attention 4 set_rows; c 15 mul_mat; cpu 2 glu; 21 splits",
    );
    check(
        "sim:cache sim:rows c",
        "sim:cache 11; sim:rows 4 add 3 get_rows 4 rope; c 15 mul_mat; cpu 2 glu; 26 splits",
    );
    check(
        "sim:cache c sim:rows",
        "sim:cache 11; c 4 add 15 mul_mat; sim:rows 3 get_rows 4 rope; cpu 2 glu; 22 splits",
    );
}

#[test]
fn weights_of_a_type_that_no_other_device_takes_are_multiplied_by_the_cpu() {
    check_model(
        "c sim:rows",
        &TinyLlama { dtype: DType::F16, ..TinyLlama::default() },
        "c 4; sim:rows 3 get_rows 5 rms_norm 4 rope; cpu 2 attention 2 glu 15 mul_mat 4 set_rows; 20 splits",
    );
}
