//! `llmrt doctor`: what is good, and what each kind of problem looks like.

use super::text;
use llmrt_tests::build::{llmrt, plugin, succeed};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder for a store; no program listens at the port.
struct World {
    folder: tempfile::TempDir,
    port: u16,
}

impl World {
    fn new() -> World {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        World { folder: tempfile::tempdir().unwrap(), port: listener.local_addr().unwrap().port() }
    }

    fn models(&self) -> PathBuf {
        self.folder.path().join("models")
    }

    fn llmrt(&self, line: &str) -> Command {
        let mut command = llmrt(line.split(' '));
        command.env("LLMRT_MODELS", self.models()).env("LLMRT_HOST", format!("127.0.0.1:{}", self.port));
        command
    }

    fn create(&self) {
        let gguf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/assets/stories.gguf");
        std::fs::write(self.folder.path().join("Modelfile"), format!("FROM {}\n", gguf.display())).unwrap();
        succeed(self.llmrt("create tales").current_dir(self.folder.path()));
    }
}

/// What the command reports as JSON, and its exit code.
fn report(command: &mut Command) -> (Value, i32) {
    let out = command.arg("--json").output().unwrap();
    let json = serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&out.stderr)));
    (json, out.status.code().unwrap())
}

/// The texts of a part with this level.
fn lines(report: &Value, part: &str, level: &str) -> Vec<String> {
    let lines = report["lines"].as_array().unwrap().iter();
    let of_part = lines.filter(|line| line["part"] == part && line["level"] == level);
    of_part.map(|line| line["text"].as_str().unwrap().to_string()).collect()
}

/// Insists on one problem, in this part and with these words in it, and on exit code 1.
fn check_problem(command: &mut Command, part: &str, words: &[&str]) {
    let (report, code) = report(command);
    assert_eq!((report["n_problems"].as_u64(), code), (Some(1), 1), "{report:#}");
    let problems = lines(&report, part, "problem");
    assert!(problems.len() == 1 && words.iter().all(|word| problems[0].contains(word)), "{report:#}");
}

#[test]
fn a_machine_without_a_problem_has_a_line_for_every_part_and_exit_code_0() {
    let world = World::new();
    world.create();
    let (report, code) = report(world.llmrt("doctor -m tales").env("LLMRT_API_KEY", "sesame"));
    assert_eq!((report["n_problems"].as_u64(), code), (Some(0), 0), "{report:#}");
    for part in
        ["version", "environment", "plugin", "device", "processor", "memory", "store", "server", "model"]
    {
        assert!(
            report["lines"].as_array().unwrap().iter().any(|line| line["part"] == part),
            "{part}: {report:#}"
        );
    }
    assert!(!report.to_string().contains("sesame") && report.to_string().contains("LLMRT_API_KEY=(hidden)"));
    assert!(lines(&report, "server", "ok")[0].contains("the port is free"), "{report:#}");
    assert!(lines(&report, "store", "ok").iter().any(|text| text.starts_with("1 model, ")), "{report:#}");
    let table = text(&succeed(&mut world.llmrt("doctor")).stdout);
    let is_version = |line: &str| line.split_whitespace().take(3).eq(["ok", "version", "llmrt"]);
    assert!(table.starts_with("level") && table.lines().any(is_version), "{table}");
}

#[test]
fn a_broken_plugin_is_a_problem() {
    let world = World::new();
    let broken = world.folder.path().join("libllmrt_broken.so");
    std::fs::write(&broken, "no library").unwrap();
    let words = ["libllmrt_broken.so: rejected", "replace or remove the file"];
    check_problem(world.llmrt("doctor").env("LLMRT_PLUGIN_PATH", world.folder.path()), "plugin", &words);
    // With --backend only what it names is looked at.
    let (report, code) =
        report(world.llmrt("doctor --backend cpu").env("LLMRT_PLUGIN_PATH", world.folder.path()));
    assert_eq!(code, 0, "{report:#}");
    check_problem(&mut world.llmrt("doctor --backend absent"), "device", &["absent", "no such device"]);
}

#[test]
fn devices_of_a_plugin_are_listed() {
    let world = World::new();
    let so = plugin("sim");
    let mut command = world.llmrt("doctor --backend sim:small --plugin");
    let (report, code) = report(command.arg(so));
    assert_eq!(code, 0, "{report:#}");
    assert!(lines(&report, "device", "ok")[0].starts_with("sim:small: "), "{report:#}");
}

#[test]
fn a_store_that_cannot_be_written_is_a_problem() {
    let world = World::new();
    std::fs::write(world.models(), "a file").unwrap();
    check_problem(&mut world.llmrt("doctor"), "store", &["models: cannot write", "check the path"]);
}

#[test]
fn a_truncated_blob_is_a_problem_and_leftovers_are_warnings() {
    let world = World::new();
    world.create();
    let blobs = std::fs::read_dir(world.models().join("blobs")).unwrap().map(|file| file.unwrap().path());
    let largest = blobs.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    std::fs::write(largest.with_file_name("sha256-0.partial"), "half").unwrap();
    let (before, code) = report(&mut world.llmrt("doctor"));
    assert_eq!(code, 0, "{before:#}");
    assert!(lines(&before, "store", "warning")[0].contains("1 unfinished download, 4 B"), "{before:#}");
    OpenOptions::new().write(true).open(&largest).unwrap().set_len(1000).unwrap();
    check_problem(
        &mut world.llmrt("doctor"),
        "store",
        &["has 1000 bytes, the manifest states", "llmrt pull"],
    );
}

#[test]
fn a_port_that_another_program_has_is_a_problem() {
    let world = World::new();
    let listener = TcpListener::bind(("127.0.0.1", world.port)).unwrap();
    // Answers like a web server without models, until the test ends.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello");
        }
    });
    check_problem(&mut world.llmrt("doctor"), "server", &["another program has this port", "--port"]);
}

#[test]
fn a_value_that_a_variable_cannot_have_is_a_problem() {
    let world = World::new();
    let (report, code) = report(world.llmrt("doctor").env("LLMRT_THREADS", "many"));
    assert_eq!(code, 1, "{report:#}");
    assert!(
        lines(&report, "environment", "problem")[0].starts_with("LLMRT_THREADS=many: expected"),
        "{report:#}"
    );
}

#[test]
fn a_model_that_is_no_model_or_does_not_fit_is_a_problem() {
    let world = World::new();
    let path = world.folder.path().join("x.gguf");
    std::fs::write(&path, "GGUF").unwrap();
    check_problem(world.llmrt("doctor -m").arg(&path), "model", &["x.gguf"]);
    world.create();
    let huge = "doctor -m tales -c 2000000000 --kv-type f32";
    check_problem(&mut world.llmrt(huge), "model", &["more than is free"]);
}
