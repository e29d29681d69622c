//! The floor computes what llmrt computes.

use super::forward::Floor;
use super::model::Model;
use super::reads;
use llmrt_abi::DType;
use llmrt_gguf::{Gguf, TensorShape, Value, writer};
use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::models::TinyLlama;
use llmrt_tests::{f32s, nmse};
use std::path::{Path, PathBuf};

/// The logits of every position, from the floor with 1 and 3 threads, and from llmrt.
fn check(model: &Path) {
    let tokens: Vec<usize> = (0..40).map(|i| i * 37 % 300).collect();
    let out = model.with_extension("logits");
    let words: Vec<String> = tokens.iter().map(usize::to_string).collect();
    let mut eval = llmrt(["eval", "--kv-type", "f32", "--logits", "all", "--tokens", &words.join(" "), "-m"]);
    succeed(eval.arg(model).arg("--logits-out").arg(&out));
    let expected = f32s(&std::fs::read(out).unwrap());

    let model = Model::read(model).unwrap();
    for n_threads in [1, 3] {
        let mut floor = Floor::new(&model, n_threads);
        let found: Vec<f32> = tokens.iter().flat_map(|token| floor.step(*token)).collect();
        let error = nmse(&found, &expected);
        assert!(error < 1e-10, "{n_threads} threads: NMSE {error}");
    }
}

#[test]
fn a_llama_has_the_logits_that_llmrt_gives() {
    let dir = tempfile::tempdir().unwrap();
    check(&TinyLlama::default().write(dir.path()));
}

#[test]
fn a_qwen2_has_the_logits_that_llmrt_gives() {
    let dir = tempfile::tempdir().unwrap();
    check(&tiny_qwen2(dir.path()));
}

#[test]
fn what_the_floor_does_not_compute_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path, expected: &str| {
        let message = Model::read(path).err().unwrap();
        assert!(message.contains(expected), "{message}");
    };
    let f16 = TinyLlama { dtype: DType::F16, ..TinyLlama::default() }.write(dir.path());
    assert_eq!(reads(&f16), Ok(false));
    refused(&f16, "expected F32");
    let extra = |name: &str| rewritten(dir.path(), "llama", &[(name.to_string(), 64)]);
    refused(&extra("blk.0.attn_q_norm.weight"), "`blk.0.attn_q_norm.weight` is none that the floor");
    refused(&rewritten(dir.path(), "qwen3", &[]), "expected llama or qwen2");
    refused(&dir.path().join("none.gguf"), "none.gguf");
}

/// The small llama as a qwen2: with biases on Q, K and V, and the output from the token embeddings.
fn tiny_qwen2(dir: &Path) -> PathBuf {
    let sizes = [("q", 64), ("k", 32), ("v", 32)];
    let biases = (0..2).flat_map(|i| sizes.map(|(what, n)| (format!("blk.{i}.attn_{what}.bias"), n)));
    rewritten(dir, "qwen2", &biases.collect::<Vec<_>>())
}

/// The small llama as another architecture, without an output matrix, with more vectors of so many elements.
fn rewritten(dir: &Path, arch: &str, vectors: &[(String, usize)]) -> PathBuf {
    let file = TinyLlama::default().bytes();
    let gguf = Gguf::parse(&file, file.len() as u64).unwrap();
    let mut tables = writer::Tables::default();
    for (key, value) in gguf.metadata.iter() {
        tables.metadata.set(key.replace("llama.", &format!("{arch}.")), value.clone());
    }
    tables.metadata.set("general.architecture", Value::String(arch.into()));
    let mut data: Vec<Vec<u8>> = Vec::new();
    for tensor in gguf.tensors.iter().filter(|tensor| tensor.name != "output.weight") {
        tables.tensors.push(tensor.shape());
        data.push(file[tensor.offset as usize..][..tensor.nbytes as usize].to_vec());
    }
    for (name, n) in vectors {
        tables.tensors.push(TensorShape::new(name.as_str(), DType::F32, &[*n as u64]).unwrap());
        data.push((0..*n).flat_map(|i| ((i % 7) as f32 * 0.1 - 0.3).to_le_bytes()).collect());
    }
    let path = dir.join(format!("{arch}.gguf"));
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    std::fs::write(&path, writer::to_vec(&tables, &slices).unwrap()).unwrap();
    path
}
