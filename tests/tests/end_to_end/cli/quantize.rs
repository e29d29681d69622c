//! `quantize`: models in smaller types.

use llmrt_abi::DType;
use llmrt_gguf::{Metadata, TensorInfo, Value, writer};
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::{f32s, nmse};
use std::path::{Path, PathBuf};

/// A folder with a model in it whose rows are whole blocks of every type.
fn model(dtype: DType) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = TinyLlama { n_layer: 8, n_embd: 256, n_vocab: 300, dtype }.write(dir.path());
    (dir, path)
}

/// Quantises into `out.gguf` beside the model; gives its path and stderr.
fn quantized(model: &Path, args: &[&str]) -> (PathBuf, String) {
    let out = model.with_file_name("out.gguf");
    let done = succeed(llmrt(["quantize", "--force"]).arg(model).arg(&out).args(args));
    (out, String::from_utf8(done.stderr).unwrap())
}

fn tables(model: &Path) -> (Metadata, Vec<TensorInfo>) {
    let files = ModelFiles::open(model, &OpenOptions::default()).unwrap();
    (files.model.metadata.clone(), files.model.tensors.clone())
}

/// Types of these tensors, by the ends of their names.
fn check(args: &[&str], expected: &[(&str, DType)]) {
    let (_dir, model) = model(DType::F32);
    let (out, _) = quantized(&model, args);
    let (_, tensors) = tables(&out);
    for (name, dtype) in expected {
        let tensor = tensors.iter().find(|t| t.name == format!("{name}.weight")).unwrap();
        assert_eq!(tensor.dtype, *dtype, "{args:?}: {name}");
    }
}

fn logits(model: &Path) -> Vec<f32> {
    let out = model.with_extension("logits");
    let tokens = ["eval", "--tokens", "1 262 263 264 265", "--logits", "all", "-m"];
    succeed(llmrt(tokens).arg(model).arg("--logits-out").arg(&out));
    f32s(&std::fs::read(out).unwrap())
}

#[test]
fn the_result_runs_and_is_as_close_as_its_type_allows() {
    let (_dir, model) = model(DType::F32);
    let expected = logits(&model);
    for (name, file_type, limit) in [
        ("f16", 1, 1e-5),
        ("bf16", 32, 1e-3),
        ("q8_0", 7, 2e-3),
        ("q6_k", 18, 1e-2),
        ("q5_k_m", 17, 3e-2),
        ("q4_k_m", 15, 0.25),
        ("q4_k_s", 14, 0.25),
        ("q4_0", 2, 0.3),
        ("iq4_nl", 25, 0.25),
        ("iq4_xs", 30, 0.25),
        ("mxfp4", 38, 2e-3),
        ("q3_k_m", 12, 0.6),
        ("q2_k", 10, 1.2),
    ] {
        let (out, stderr) = quantized(&model, &[name]);
        let error = nmse(&logits(&out), &expected);
        assert!(error < limit, "{name}: NMSE {error:e}");
        assert!(stderr.contains("bits per weight"), "{stderr}");
        let (metadata, _) = tables(&out);
        assert_eq!(metadata.get("general.file_type"), Some(&Value::U32(file_type)), "{name}");
        assert_eq!(metadata.get("general.quantization_version"), Some(&Value::U32(2)));
    }
}

#[test]
fn a_mix_gives_more_bits_to_what_matters_more() {
    check(
        &["q4_k_m"],
        &[
            ("output", DType::Q6_K),
            ("token_embd", DType::Q4_K),
            ("blk.0.attn_v", DType::Q6_K),
            ("blk.1.attn_v", DType::Q4_K),
            ("blk.7.ffn_down", DType::Q6_K),
            ("blk.3.attn_q", DType::Q4_K),
            ("blk.3.attn_norm", DType::F32),
            ("output_norm", DType::F32),
        ],
    );
}

#[test]
fn flags_come_before_the_mix() {
    let rules = ["--tensor", "ffn_(up|gate)=q8_0", "--tensor", "blk\\.2\\.=F16"];
    let flags = ["--output-tensor-type", "f16", "--token-embedding-type", "q5_0"];
    check(
        &[&["q4_k_m"], &rules[..], &flags].concat(),
        &[
            ("output", DType::F16),
            ("token_embd", DType::Q5_0),
            ("blk.2.ffn_up", DType::Q8_0),
            ("blk.2.attn_q", DType::F16),
            ("blk.2.attn_norm", DType::F32),
            ("blk.0.attn_v", DType::Q6_K),
        ],
    );
    check(&["q4_k", "--pure"], &[("output", DType::Q4_K), ("blk.0.attn_v", DType::Q4_K)]);
}

#[test]
fn rows_that_are_no_whole_blocks_get_another_type_which_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama::default().write(dir.path());
    let (out, stderr) = quantized(&model, &["q4_k_s"]);
    assert!(
        stderr.contains("blk.0.attn_q.weight: rows of 64 elements are no whole blocks of Q4_K: Q5_0"),
        "{stderr}"
    );
    let (_, tensors) = tables(&out);
    assert!(tensors.iter().any(|t| t.name == "blk.0.attn_q.weight" && t.dtype == DType::Q5_0));
    assert!(nmse(&logits(&out), &logits(&model)) < 0.05);
}

#[test]
fn quantised_tensors_stay_as_they_are_without_the_flag() {
    let (_dir, model) = model(DType::Q8_0);
    let out = model.with_file_name("out.gguf");
    let stderr = fail(llmrt(["quantize"]).arg(&model).arg(&out).arg("q4_k_m"), 3);
    assert!(stderr.contains("Q8_0 already") && stderr.contains("--allow-requantize"), "{stderr}");
    assert!(!out.exists());
    quantized(&model, &["q4_k_m", "--allow-requantize"]);
    // Nothing changes its type here, so nothing is lost.
    let (same, _) = quantized(&model, &["q8_0"]);
    assert_eq!(logits(&same), logits(&model));
}

#[test]
fn threads_change_no_byte() {
    let (_dir, model) = model(DType::F16);
    let bytes = |n: &str| std::fs::read(quantized(&model, &["q4_k_m", "-t", n]).0).unwrap();
    let one = bytes("1");
    assert!(one == bytes("2") && one == bytes("5"));
}

#[test]
fn a_split_model_becomes_one_file() {
    let (dir, model) = model(DType::F32);
    let files = ModelFiles::open(&model, &OpenOptions::default()).unwrap();
    let tensors = &files.model.tensors;
    let half = tensors.len() / 2;
    let name = |i: u16| dir.path().join(format!("parts-{:05}-of-00002.gguf", i + 1));
    for (i, part) in [&tensors[..half], &tensors[half..]].into_iter().enumerate() {
        let mut metadata = if i == 0 { files.model.metadata.clone() } else { Metadata::new() };
        metadata.set("split.no", Value::U16(i as u16));
        metadata.set("split.count", Value::U16(2));
        metadata.set("split.tensors.count", Value::I32(tensors.len() as i32));
        let shapes = part.iter().map(TensorInfo::shape).collect();
        let tables = writer::Tables { metadata, tensors: shapes, ..Default::default() };
        let data: Vec<_> = part.iter().map(|t| files.bytes(t).unwrap()).collect();
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        std::fs::write(name(i as u16), writer::to_vec(&tables, &data).unwrap()).unwrap();
    }
    let whole = std::fs::read(quantized(&model, &["q5_k_s"]).0).unwrap();
    let (out, _) = quantized(&name(0), &["q5_k_s"]);
    assert!(std::fs::read(out).unwrap() == whole);
    let stderr = fail(llmrt(["quantize", "--force"]).arg(name(0)).arg(name(1)).arg("q4_0"), 2);
    assert!(stderr.contains("give the output another name"), "{stderr}");
}

#[test]
fn nothing_is_overwritten_or_left_half_done() {
    let (dir, model) = model(DType::F32);
    let stderr = fail(llmrt(["quantize", "--force"]).arg(&model).arg(&model).arg("q4_0"), 2);
    assert!(stderr.contains("give the output another name"), "{stderr}");
    let out = dir.path().join("out.gguf");
    std::fs::write(&out, "precious").unwrap();
    let stderr = fail(llmrt(["quantize"]).arg(&model).arg(&out).arg("q4_0"), 1);
    assert!(stderr.contains("exists already"), "{stderr}");
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");

    let (_, tensors) = tables(&model);
    let damaged = tensors.iter().find(|t| t.name == "blk.3.ffn_up.weight").unwrap();
    let mut bytes = std::fs::read(&model).unwrap();
    bytes[damaged.offset as usize + 400..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&model, bytes).unwrap();
    let stderr = fail(llmrt(["quantize", "--force"]).arg(&model).arg(&out).arg("q4_0"), 3);
    assert!(stderr.contains("blk.3.ffn_up.weight") && stderr.contains("NaN"), "{stderr}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else remains");
}

#[test]
fn a_signal_that_ends_the_program_leaves_no_unfinished_file() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama { n_layer: 1, n_embd: 512, n_vocab: 40_000, dtype: DType::F16 }.write(dir.path());
    let names = || std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    for (signal, code) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let mut child = std::process::Command::new("env");
        child.arg("--default-signal=HUP,TERM,INT").arg(llmrt([""; 0]).get_program());
        let quantize = ["quantize", "-t", "1"].map(AsRef::<Path>::as_ref);
        child.args(quantize).args([&model, &dir.path().join("out.gguf")]).arg("q2_k");
        let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
        while !names().any(|name| name.to_string_lossy().ends_with(".part")) {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it wrote");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        succeed(std::process::Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]));
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
        assert_eq!(names().count(), 1, "{signal}: {:?}", names().collect::<Vec<_>>());
    }
}

#[test]
fn words_that_are_no_types_are_answered_with_those_that_are() {
    let (_dir, model) = model(DType::F32);
    let out = model.with_file_name("out.gguf");
    for (args, expected) in [
        (&["q9"][..], "q4_k_m"),
        (&["iq2_xxs"], "expected one of"),
        (&["q4_k", "--tensor", "ffn"], "REGEX=TYPE"),
        (&["q4_k", "--output-tensor-type", "iq1_s"], "iq4_xs"),
    ] {
        let stderr = fail(llmrt(["quantize"]).arg(&model).arg(&out).args(args), 2);
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
}
