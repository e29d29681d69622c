//! Attention in chunks: of a model whose layers all see the chunk that a token is in and turn heads by position, a chunk in the
//! middle of a text has the logits that it has alone.

use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::models::text;
use llmrt_tests::{f32s, nmse};
use std::path::Path;

const CHUNK: usize = 16;

/// Two layers of Llama 4 with chunks of 16.
const MODEL: &str = "
general.architecture str llama4
llama4.block_count u32 2
llama4.vocab_size u32 64
llama4.context_length u32 128
llama4.embedding_length u32 32
llama4.feed_forward_length u32 48
llama4.expert_feed_forward_length u32 48
llama4.expert_count u32 2
llama4.expert_used_count u32 1
llama4.interleave_moe_layer_step u32 3
llama4.attention.head_count u32 4
llama4.attention.head_count_kv u32 2
llama4.attention.layer_norm_rms_epsilon f32 0.00001
llama4.attention.sliding_window u32 16
llama4.attention.sliding_window_pattern [u32] 1 1
llama4.rope.dimension_count u32 8
tensor token_embd.weight 32 64
tensor output_norm.weight 32 : 1 0.1
tensor blk.{0,1}.attn_norm.weight 32 : 1 0.1
tensor blk.{0,1}.ffn_norm.weight 32 : 1 0.1
tensor blk.{0,1}.attn_q.weight 32 32
tensor blk.{0,1}.attn_k.weight 32 16
tensor blk.{0,1}.attn_v.weight 32 16
tensor blk.{0,1}.attn_output.weight 32 32
tensor blk.{0,1}.ffn_gate.weight 32 48
tensor blk.{0,1}.ffn_up.weight 32 48
tensor blk.{0,1}.ffn_down.weight 48 32
";

fn eval(model: &Path, tokens: &[usize], extra: &[&str]) -> Vec<f32> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("logits");
    let tokens: Vec<String> = tokens.iter().map(usize::to_string).collect();
    let mut command = llmrt(["eval", "--logits", "all", "-m"]);
    command.arg(model).args(["--tokens", &tokens.join(" ")]).arg("--logits-out").arg(&out).args(extra);
    succeed(&mut command);
    f32s(&std::fs::read(out).unwrap())
}

#[test]
fn a_chunk_in_a_text_is_as_it_is_alone() {
    let dir = tempfile::tempdir().unwrap();
    let description = dir.path().join("chunks.txt");
    std::fs::write(&description, MODEL).unwrap();
    let model = text::write(&description, dir.path());
    let tokens: Vec<usize> = (0..3 * CHUNK - 5).map(|i| i * i % 61).collect();
    let whole = eval(&model, &tokens, &[]);
    let n_vocab = whole.len() / tokens.len();
    for (of_text, chunk) in whole.chunks(CHUNK * n_vocab).zip(tokens.chunks(CHUNK)) {
        assert!(nmse(&eval(&model, chunk, &[]), of_text) < 1e-9);
    }
    for sizes in ["1", "5,17,3"] {
        assert!(eval(&model, &tokens, &["--chunks", sizes]) == whole, "chunks {sizes}");
    }
}
