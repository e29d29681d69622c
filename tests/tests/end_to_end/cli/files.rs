//! Files that commands read and write: any name, whole or not at all.

use super::{json, stdout, text};
use llmrt_tests::build::{bin_dir, fail, llmrt, plugin, succeed};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

const EMBEDDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");

fn names(folder: &Path) -> Vec<OsString> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn file_names_may_be_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join(OsStr::from_bytes(b"caf\xe9.gguf"));
    std::fs::copy(EMBEDDED, &model).unwrap();
    let expected = stdout(["run", "--temp", "0", "-n", "4", "-p", "Once"]);
    let run = ["run", "--temp", "0", "-n", "4"];
    assert_eq!(text(&succeed(llmrt(run).arg(&model).arg("Once")).stdout), expected);
    assert_eq!(text(&succeed(llmrt(run).args(["-p", "Once", "-m"]).arg(&model)).stdout), expected);
    let prompt = dir.path().join(OsStr::from_bytes(b"prompt\xff"));
    std::fs::write(&prompt, "Once").unwrap();
    assert_eq!(text(&succeed(llmrt(run).arg("-f").arg(&prompt)).stdout), expected);
    succeed(llmrt(["inspect"]).arg(&model));
    succeed(llmrt(["plan"]).arg(&model));
    let out = dir.path().join(OsStr::from_bytes(b"out\xff.gguf"));
    succeed(llmrt(["quantize"]).arg(&model).arg(&out).args(["q8_0"]));
    assert!(out.exists());
    let stderr = fail(llmrt(["run", "-m", EMBEDDED]).arg(OsStr::from_bytes(b"\xff")), 2);
    assert!(stderr.contains("the prompt is no UTF-8 text: give it in a file with -f"), "{stderr}");
}

#[test]
fn the_name_of_a_plugin_file_may_be_any_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let so = dir.path().join(OsStr::from_bytes(b"caf\xe9.so"));
    std::fs::copy(plugin("null"), &so).unwrap();
    let choice = |backend: &OsStr| {
        let devices = json(llmrt(["devices", "--json", "--plugin"]).arg(&so).arg("--backend").arg(backend));
        let null = devices.as_array().unwrap().iter().find(|row| row["id"] == "null");
        null.expect("the plugin has a device")["choice"].clone()
    };
    assert_eq!(choice(so.as_os_str()), 1);
    assert_eq!(choice(so.file_name().unwrap()), 1);
    let mut list = OsString::from("cpu,");
    list.push(&so);
    list.push(":0");
    // The CPU runs everything, so a device after it is not used.
    assert!(choice(&list).is_null(), "the entry is found, after the CPU");
    let missing = fail(llmrt(["run", "--backend"]).arg(dir.path().join(OsStr::from_bytes(b"\xff.so"))), 2);
    assert!(missing.contains("there is no such device"), "{missing}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_with_a_remedy_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.gguf");
    let llmrt = bin_dir().join("llmrt");
    let script = format!("ulimit -f 8; '{}' quantize '{EMBEDDED}' '{}' q8_0", llmrt.display(), out.display());
    let stderr = fail(Command::new("sh").args(["-c", &script]).env("LLMRT_PLUGIN_PATH", ""), 1);
    assert!(stderr.contains("File too large") && stderr.contains("ulimit -f"), "{stderr}");
    assert!(names(dir.path()).is_empty(), "{:?}", names(dir.path()));
}

#[test]
fn the_unfinished_file_of_a_killed_run_is_removed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("big.gguf");
    let flags = ["synth", "--like", "qwen2.5-0.5b", "--type", "f16", "--layers", "4"];
    let mut child = llmrt(flags).arg(&out).stderr(Stdio::null()).spawn().unwrap();
    let is_part = |name: &OsString| name.to_string_lossy().ends_with(".part");
    while !names(dir.path()).iter().any(is_part) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(dir.path()).iter().filter(|name| is_part(name)).count(), 1);
    succeed(llmrt(["quantize", EMBEDDED]).arg(&out).arg("q8_0"));
    assert_eq!(names(dir.path()), ["big.gguf"]);
}

#[test]
fn outputs_that_make_no_sense_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let stderr = fail(llmrt(["quantize", EMBEDDED, "-", "q8_0"]).current_dir(dir.path()), 2);
    assert!(stderr.contains("-: a model is written to a file") && names(dir.path()).is_empty(), "{stderr}");
    let stderr = fail(llmrt(["quantize", EMBEDDED]).arg(dir.path()).arg("q8_0"), 1);
    assert!(stderr.contains("is a directory: give the name of a file in it"), "{stderr}");
    let stderr = fail(llmrt(["run", "-f"]).arg(dir.path()), 3);
    assert!(stderr.contains("is a directory: give the name of a text file"), "{stderr}");
    let nowhere = dir.path().join("no/out.gguf");
    let stderr = fail(llmrt(["quantize", EMBEDDED]).arg(nowhere).arg("q8_0"), 1);
    assert!(stderr.contains("check the path; folders are not made"), "{stderr}");
}

#[test]
fn a_dense_model_as_mxfp4_is_announced_as_what_it_becomes() {
    let dir = tempfile::tempdir().unwrap();
    let quantize = |flags: &[&str]| {
        let out = dir.path().join("out.gguf");
        text(&succeed(llmrt(["quantize", "--force", EMBEDDED]).arg(out).arg("mxfp4").args(flags)).stderr)
    };
    assert!(quantize(&[]).contains("its matrices become Q8_0; --pure writes them as MXFP4"));
    assert!(!quantize(&["--pure"]).contains("become Q8_0"));
}
