//! `ci/device/card.sh run` as far as it goes without a card: on the simulated driver, with the programs of this build.

use llmrt_tests::build::{bin_dir, succeed};
use llmrt_tests::fixtures::root;
use llmrt_tests::nvidia;
use std::process::Command;

/// A folder as it is carried to the machine.
fn carried() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let files = ["cli/assets/stories.gguf", "ci/device/card.sh", "plugins/cuda/kernels/cost.txt"];
    let files = files.map(|file| root().join(file));
    for file in files.iter().chain([&nvidia::built().0.to_path_buf(), &bin_dir().join("llmrt")]) {
        std::fs::copy(file, dir.path().join(file.file_name().unwrap())).unwrap();
    }
    dir
}

/// Runs steps of the script with these variables; the table, and the report.
fn run(steps: &[&str], simulated: &str, variables: &[(&str, &str)]) -> (String, String) {
    let (dir, (_, libraries)) = (carried(), nvidia::built());
    let mut script = Command::new("bash");
    script.arg(dir.path().join("card.sh")).arg("run").args(steps);
    script.env("LLMRT_CUDA_LIB_DIR", libraries).env("LLMRT_CUDA_SIM", simulated);
    script.env("TYPES", "").env("TOKENS", "4").env("LEVELS", "L0").env_remove("OUT").env_remove("FILES");
    // On a busy machine the simulator takes long.
    script.env("LIMIT", "3000").envs(variables.iter().copied());
    succeed(&mut script);
    let read = |file: &str| std::fs::read_to_string(dir.path().join("out").join(file)).unwrap();
    (read("table.txt"), read("report.md"))
}

#[test]
fn it_reports_conformance_and_that_texts_are_equal_to_the_cpus() {
    let (table, report) = run(&["conform", "equal", "bench"], "memory=1g", &[]);
    assert!(table.contains("exit 0: ") && table.contains("0 failed"), "{table}");
    for dtype in ["f32", "f16", "q8_0", "q4_0"] {
        let line = table.lines().find(|line| line.starts_with(&format!("text {dtype}")));
        assert!(line.is_some_and(|line| line.ends_with("as the CPU's")), "{dtype}: {table}");
    }
    assert!(table.contains("GB/s read and written") && table.contains("no models"), "{table}");
    for part in [&table[..], "## Predicted and measured", "no card like this", "## conform.log"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn it_reports_the_speed_of_ops() {
    let (table, report) = run(&["perf"], "memory=1g,queue=now", &[("PERF_OPS", "argmax")]);
    assert!(table.contains("perf         exit 0: "), "{table}");
    assert!(report.contains("| argmax | "), "{report}");
}

#[test]
fn it_reports_that_a_card_with_faults_differs() {
    let (table, _) = run(&["equal"], "memory=1g,fault=9", &[]);
    assert!(table.contains("text f32     DIFFERS"), "{table}");
}

#[test]
fn a_step_without_time_is_named() {
    let (table, report) = run(&["conform", "equal"], "memory=1g", &[("LIMIT", "1")]);
    for step in ["conform", "equal"] {
        assert!(table.contains(&format!("{step:<12} LEFT OUT")), "{table}");
    }
    assert!(report.contains("LEFT OUT") && report.contains(" s of 1."), "{report}");
}

/// Every kernel takes two seconds more.
#[test]
fn a_step_that_takes_too_long_is_cut_off_and_the_report_is_written() {
    let variables = [("LIMIT", "20"), ("LEAST", "1")];
    let (table, report) = run(&["equal"], "memory=1g,slow=1:2000000", &variables);
    assert!(table.contains("equal        CUT OFF after"), "{table}");
    assert!(report.contains("CUT OFF"), "{report}");
}

/// A measurement of each kind, and one that the table does not have.
#[test]
fn what_was_predicted_stands_beside_what_was_measured() {
    let dir = carried();
    let row = |op: &str, case: &str, us: f64| {
        format!("{{\"op\": \"{op}\", \"case\": \"{case}\", \"best_us\": {us}}}")
    };
    let rows = [
        row("mul_mat", "Q4_0 [2048, 2048] × 1", 12.34),
        row("mul_mat", "Q4_0 [2048, 2048] × 512", 1.0),
        row("attention", "F16 cache, 4096 tokens deep, 1 new, 32 heads of 128", 56.78),
        row("rms_norm", "F32 [4096, 1, 1]", 1.0),
    ];
    std::fs::write(dir.path().join("perf.json"), format!("{{\"perf\": [{}]}}", rows.join(", "))).unwrap();
    let compare = |card: &str| {
        let mut script = Command::new("bash");
        script.arg("card.sh").args(["predicted", card]).current_dir(dir.path()).env("OUT", ".");
        String::from_utf8_lossy(&succeed(&mut script).stdout).into_owned()
    };
    let table = compare("NVIDIA H100 80GB HBM3, 570.1, 81559 MiB");
    let line =
        |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_string();
    assert!(line("| Q4_0:2048x2048:1 |").contains("| 12.3 |"), "{table}");
    assert!(line("| attention:4096:1 |").contains("| 56.8 |"), "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("| ")).count(), 3, "{table}");
    assert!(compare("Some other card").contains("no card like this"));
}
