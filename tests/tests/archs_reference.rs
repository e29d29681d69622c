//! The plain references of the ops, run over whole models, give the logits that llama.cpp gave: a check of
//! architectures and of what ops mean, without any plugin.

use llmrt_abi::DType;
use llmrt_gguf::Gguf;
use llmrt_graph::ops::value::Value;
use llmrt_graph::reference::{self, Memory};
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_models::{BatchShape, Inputs, Model, ModelGraph};
use llmrt_tests::fixtures::{files, fixtures};
use llmrt_tests::{f32s, nmse};
use std::path::Path;

#[test]
fn one_batch_gives_the_stored_logits() {
    check(48);
}

#[test]
fn chunks_beside_an_empty_sequence_give_the_stored_logits() {
    check(12);
}

/// Runs the 48 tokens of every file in steps of `n_tokens`, and compares the logits of each step's second half.
fn check(n_tokens: usize) {
    let Some(dir) = fixtures("archs") else { return };
    let tokens = std::fs::read_to_string(dir.join("tokens.txt")).unwrap();
    let tokens: Vec<i32> = tokens.split_whitespace().map(|t| t.parse().unwrap()).collect();
    for file in files(&dir, ".gguf") {
        let stored = f32s(&std::fs::read(file.with_extension("logits.f32")).unwrap());
        let n_vocab = stored.len() / tokens.len();
        let of_second_half = |row: usize| row % n_tokens >= n_tokens / 2;
        let rows = stored.chunks_exact(n_vocab).enumerate().filter(|&(row, _)| of_second_half(row));
        let stored: Vec<f32> = rows.flat_map(|(_, row)| row).copied().collect();

        let error = nmse(&logits(&file, &tokens, n_tokens), &stored);
        let name = file.file_stem().unwrap().to_string_lossy();
        println!("{name:<20} NMSE {error:.1e}");
        assert!(error <= limit(&name), "{name}: NMSE {error}");
    }
}

/// llama.cpp looks gelu up in a table of F16 numbers; the rest it computes in F32.
fn limit(name: &str) -> f64 {
    match name.split('-').next() {
        Some("gemma2" | "gpt2" | "falcon") => 1e-6,
        _ => 1e-12,
    }
}

const BLOCK_SIZE: u64 = 16;
/// Where the sequence's blocks lie in a pool of 5.
const BLOCKS: [i32; 3] = [4, 0, 3];

fn logits(path: &Path, tokens: &[i32], n_tokens: usize) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let file = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
    let model = Model::new(&file.metadata, |name| file.tensor(name).map(|t| (t.dtype, t.ne))).unwrap();
    let n_outputs = n_tokens - n_tokens / 2;
    let shape = BatchShape {
        n_tokens: n_tokens as u64,
        n_seqs: 2,
        n_outputs: n_outputs as u64,
        max_blocks: BLOCKS.len() as u64,
        n_blocks: 5,
        block_size: BLOCK_SIZE,
        k_type: DType::F32,
        v_type: DType::F32,
    };
    let ModelGraph { graph, inputs, logits } = model.graph(&shape).unwrap();
    let mut memory = weights(&graph, &file, &bytes);

    let mut all = vec![];
    for (step, chunk) in tokens.chunks_exact(n_tokens).enumerate() {
        set_inputs(&graph, &inputs, &mut memory, (step * n_tokens) as i32, chunk);
        reference::run(&graph, &mut memory).unwrap();
        all.extend_from_slice(memory.get(&graph, logits).unwrap().floats());
    }
    all
}

fn weights(graph: &Graph, file: &Gguf, bytes: &[u8]) -> Memory {
    let mut memory = Memory::new();
    for (i, def) in graph.tensors.iter().enumerate().filter(|(_, def)| def.kind == Kind::Weight) {
        let t = file.tensor(&def.name).unwrap();
        memory.set_bytes(Tensor(i as u32), bytes[t.offset as usize..][..t.nbytes as usize].to_vec());
    }
    memory
}

/// `chunk` follows `past` tokens of sequence 0; sequence 1 is not in use.
fn set_inputs(graph: &Graph, inputs: &Inputs, memory: &mut Memory, past: i32, chunk: &[i32]) {
    let n = chunk.len() as i32;
    let block_size = BLOCK_SIZE as i32;
    let slot = |pos: i32| BLOCKS[(pos / block_size) as usize] * block_size + pos % block_size;
    let mut set = |t: Tensor, ids: Vec<i32>| memory.set(graph, t, &Value::i32(graph.ne(t), ids)).unwrap();
    set(inputs.tokens, chunk.to_vec());
    set(inputs.positions, (past..past + n).collect());
    set(inputs.slots, (past..past + n).map(slot).collect());
    set(inputs.block_table, [BLOCKS, [0; 3]].concat());
    set(inputs.seq_lens, vec![past + n, 0]);
    set(inputs.query_starts, vec![0, n, n]);
    set(inputs.output_ids, (n / 2..n).collect());
}
