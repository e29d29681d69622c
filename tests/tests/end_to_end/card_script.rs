//! `ci/device/card.sh run` as far as it goes without a card: on the simulated driver, with the programs of this build.

use llmrt_tests::build::{bin_dir, succeed};
use llmrt_tests::fixtures::root;
use llmrt_tests::nvidia;
use std::path::Path;
use std::process::Command;

/// Runs steps of the script in a folder as it is carried; the table, and the exit code's success.
fn run(steps: &[&str], simulated: &str) -> String {
    let (plugin, libraries) = nvidia::built();
    let dir = tempfile::tempdir().unwrap();
    let carry = |file: &Path| {
        std::fs::copy(file, dir.path().join(file.file_name().unwrap())).unwrap();
    };
    carry(plugin);
    carry(&bin_dir().join("llmrt"));
    carry(&root().join("cli/assets/stories.gguf"));
    carry(&root().join("ci/device/card.sh"));
    let mut script = Command::new("bash");
    script.arg(dir.path().join("card.sh")).arg("run").args(steps);
    script.env("LLMRT_CUDA_LIB_DIR", libraries).env("LLMRT_CUDA_SIM", simulated);
    script.env("TYPES", "").env("TOKENS", "4").env("LEVELS", "L0").env_remove("OUT").env_remove("FILES");
    succeed(&mut script);
    std::fs::read_to_string(dir.path().join("out/table.txt")).unwrap()
}

#[test]
fn it_reports_conformance_and_that_texts_are_equal_to_the_cpus() {
    let table = run(&["conform", "equal", "bench"], "memory=1g");
    assert!(table.contains("exit 0: ") && table.contains("0 failed"), "{table}");
    for dtype in ["f32", "f16", "q8_0", "q4_0"] {
        let line = table.lines().find(|line| line.starts_with(&format!("text {dtype}")));
        assert!(line.is_some_and(|line| line.ends_with("as the CPU's")), "{dtype}: {table}");
    }
    assert!(table.contains("GB/s read and written") && table.contains("no models"), "{table}");
}

#[test]
fn it_reports_that_a_card_with_faults_differs() {
    let table = run(&["equal"], "memory=1g,fault=9");
    assert!(table.contains("text f32     DIFFERS"), "{table}");
}
