//! The programs under test, built once per test process with the profile of the tests themselves.

use crate::fixtures::root;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The folder with `llmrt` and the plugins' shared libraries.
pub fn bin_dir() -> &'static Path {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let test = std::env::current_exe().expect("a test has a path");
        // target/<profile>/deps/<test>
        let dir =
            test.parent().and_then(Path::parent).expect("tests are in target/<profile>/deps").to_path_buf();
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(root()).arg("programs");
        if dir.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.arg("--target-dir").arg(dir.parent().expect("target/<profile>"));
        let out = cargo.output().expect("cargo runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        dir
    })
}

/// A shared library of this tree.
pub fn plugin(name: &str) -> PathBuf {
    bin_dir().join(format!("libllmrt_{name}.so"))
}

/// `llmrt` with arguments, no plugins but those named, no stored models, and no input.
pub fn llmrt<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(bin_dir().join("llmrt"));
    command.args(args).stdin(Stdio::null()).env("LLMRT_PLUGIN_PATH", "");
    // No models of this machine: there is no such folder.
    command.env("LLMRT_MODELS", bin_dir().join("no-models"));
    // A variable of the tests; the program warns of those that it does not read.
    command.env_remove("LLMRT_REQUIRE_FIXTURES");
    command
}

/// Longer than any command of a test takes on a slow machine.
const LONGEST: Duration = Duration::from_secs(300);

/// Runs to the end, which comes within five minutes, and insists on success.
pub fn succeed(command: &mut Command) -> Output {
    let out = output(command);
    assert!(out.status.success(), "{command:?}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    out
}

/// Runs to the end, which comes within five minutes, and insists on this exit code; returns stderr.
pub fn fail(command: &mut Command, exit_code: i32) -> String {
    let out = output(command);
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(exit_code), "{command:?}\n{stderr}");
    stderr
}

/// What a program writes until it ends.
fn output(command: &mut Command) -> Output {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let stdout = read(child.stdout.take());
    let stderr = read(child.stderr.take());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if started.elapsed() > LONGEST {
            child.kill().expect("the program ends");
            panic!("{command:?} runs for more than {LONGEST:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let bytes = |thread: JoinHandle<Vec<u8>>| thread.join().expect("a pipe");
    Output { status, stdout: bytes(stdout), stderr: bytes(stderr) }
}

fn read(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    let mut pipe = pipe.expect("a pipe");
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).expect("a pipe is readable");
        bytes
    })
}
