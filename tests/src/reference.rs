//! Whole models run by the plain references of the ops, without any plugin.

use llmrt_abi::DType;
use llmrt_gguf::Gguf;
use llmrt_graph::ops::value::Value;
use llmrt_graph::reference::{self, Memory};
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_models::config::MAX_NGRAM;
use llmrt_models::{BatchShape, Input, Model, ModelGraph, ModelSpec, StepOutput, WindowBlocks};
use std::path::Path;

const BLOCK_SIZE: u64 = 16;
/// The sequence's blocks in a pool of 5.
const BLOCKS: [i32; 3] = [4, 0, 3];

/// Logits of the second half of every step of `n_tokens` tokens, with an F32 cache. Panics past 48 tokens.
pub fn logits(path: &Path, tokens: &[i32], n_tokens: usize) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    let file = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
    let mut model = Model::new(&file.metadata, |name| file.tensor(name).map(|t| (t.dtype, t.ne))).unwrap();
    model.set_context(tokens.len() as u64);
    let n_outputs = n_tokens - n_tokens / 2;
    // Each step encodes all again.
    let n_encoder_tokens = if model.spec().has_encoder() { tokens.len() as u64 } else { 0 };
    let shape = BatchShape {
        n_tokens: n_tokens as u64,
        n_encoder_tokens,
        max_encoder_tokens: n_encoder_tokens,
        n_seqs: 2,
        n_outputs: n_outputs as u64,
        output: StepOutput::Logits,
        max_blocks: BLOCKS.len() as u64,
        n_blocks: 5,
        windows: WindowBlocks::All,
        block_size: BLOCK_SIZE,
        n_state_slots: 2,
        k_type: DType::F32,
        v_type: DType::F32,
    };
    let ModelGraph { graph, inputs, logits, .. } = model.graph(&shape).unwrap();
    let mut memory = weights(&graph, &file, &bytes);

    let mut all = vec![];
    for (step, chunk) in tokens.chunks_exact(n_tokens).enumerate() {
        let rows = ngram_rows(&model, &tokens[..(step + 1) * n_tokens], n_tokens);
        let set = Step { past: (step * n_tokens) as i32, all: tokens, chunk, ngram_rows: &rows };
        set_inputs(&graph, &inputs, &mut memory, &set);
        reference::run(&graph, &mut memory).unwrap();
        all.extend_from_slice(memory.get(&graph, logits).unwrap().floats());
    }
    all
}

/// What the model's graphs read and give.
pub fn spec(path: &Path) -> ModelSpec {
    let bytes = std::fs::read(path).unwrap();
    let file = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
    let find = |name: &str| file.tensor(name).map(|t| (t.dtype, t.ne));
    Model::new(&file.metadata, find).unwrap().spec().clone()
}

fn weights(graph: &Graph, file: &Gguf, bytes: &[u8]) -> Memory {
    let mut memory = Memory::new();
    for (i, def) in graph.tensors.iter().enumerate().filter(|(_, def)| def.kind == Kind::Weight) {
        let t = file.tensor(&def.name).unwrap();
        memory.set_bytes(Tensor(i as u32), bytes[t.offset as usize..][..t.nbytes as usize].to_vec());
    }
    memory
}

/// What the last `n` of these tokens hash to with those before them.
fn ngram_rows(model: &Model, tokens: &[i32], n: usize) -> Vec<i32> {
    let of_token = |i: usize| {
        let before: Vec<i32> =
            (1..MAX_NGRAM).map(|back| i.checked_sub(back).map_or(-1, |i| tokens[i])).collect();
        model.config.ngrams.rows(tokens[i], &before).collect::<Vec<_>>()
    };
    (tokens.len() - n..tokens.len()).flat_map(of_token).collect()
}

/// `chunk` follows `past` tokens of sequence 0, whose encoder, if there is one, reads `all`; sequence 1 is not in use.
struct Step<'a> {
    past: i32,
    all: &'a [i32],
    chunk: &'a [i32],
    ngram_rows: &'a [i32],
}

fn set_inputs(graph: &Graph, inputs: &[(Input, Tensor)], memory: &mut Memory, step: &Step<'_>) {
    let Step { past, all, chunk, ngram_rows } = *step;
    let (n, n_all) = (chunk.len() as i32, all.len() as i32);
    let block_size = BLOCK_SIZE as i32;
    let slot = |pos: i32| BLOCKS[(pos / block_size) as usize] * block_size + pos % block_size;
    let values = |input| match input {
        Input::Tokens => chunk.to_vec(),
        Input::NgramRows(_) => ngram_rows.to_vec(),
        Input::Positions => (past..past + n).collect(),
        Input::Slots(_) => (past..past + n).map(slot).collect(),
        Input::BlockTable(_) => [BLOCKS, [0; 3]].concat(),
        Input::SeqLens => vec![past + n, 0],
        Input::QueryStarts => vec![0, n, n],
        // Two slots by turns; the first step starts from zeros.
        Input::StateSlots => {
            let read = past / n.max(1) % 2;
            vec![if past == 0 { -1 } else { read }, -1, 1 - read, -1]
        }
        Input::OutputIds => (n / 2..n).collect(),
        Input::EncoderTokens => all.to_vec(),
        Input::EncoderSlots => (0..n_all).map(slot).collect(),
        Input::EncoderTable => (0..n_all).chain(std::iter::repeat_n(0, all.len())).collect(),
        Input::EncoderStarts => vec![0, n_all, n_all],
        Input::EncoderLens => vec![n_all, 0],
        // Of layers that predict ahead alone.
        Input::Hidden(_) => Vec::new(),
    };
    for &(input, t) in inputs {
        memory.set(graph, t, &Value::i32(graph.ne(t), values(input))).unwrap();
    }
}
