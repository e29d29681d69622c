//! A vendor's first steps outside this tree, as the READMEs describe them.

use llmrt_host::{Host, HostOptions, Outcome};
use llmrt_tests::fixtures::root;
use std::process::Command;

/// The first block of shell lines after a heading.
fn shell_block(file: &str, heading: &str) -> String {
    let text = std::fs::read_to_string(root().join(file)).unwrap();
    let (_, section) = text.split_once(heading).unwrap();
    let (_, block) = section.split_once("```sh\n").unwrap();
    block.split_once("```").unwrap().0.to_string()
}

#[test]
fn a_copy_of_the_null_plugin_builds_outside_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let lines = shell_block("plugins/null/README.md", "## A driver outside this tree");
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", &lines]).current_dir(dir.path()).env("LLMRT", root());
    // Its own target folder, and nothing fetched.
    shell.env_remove("CARGO_TARGET_DIR").env("CARGO_NET_OFFLINE", "true");
    let out = shell.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));

    let host = Host::new(HostOptions { n_threads: Some(1), ..HostOptions::default() });
    let found = host.load(dir.path().join("mydriver/target/release/libllmrt_mydriver.so"));
    let loaded = Outcome::Loaded { name: "mydriver".into(), version: "0.1.0".into(), n_devices: 1 };
    assert_eq!(found.outcome, loaded);
    assert_eq!(host.device("mydriver").unwrap().memory().unwrap(), (1 << 30, 1 << 30));
}
