//! The plain references of the ops, run over whole models, give the logits that llama.cpp gave: a check of
//! architectures and of what ops mean, without any plugin.

use llmrt_tests::fixtures::{compared, tokens};
use llmrt_tests::{f32s, nmse, reference};

#[test]
fn one_batch_gives_the_stored_logits() {
    check(48);
}

#[test]
fn chunks_beside_an_empty_sequence_give_the_stored_logits() {
    check(12);
}

/// Runs the 48 tokens of every file in steps of `n_tokens`, or in one where tokens see later ones, and compares the logits of each step's second half.
fn check(n_tokens: usize) {
    let tokens = std::fs::read_to_string(tokens()).unwrap();
    let tokens: Vec<i32> = tokens.split_whitespace().map(|t| t.parse().unwrap()).collect();
    let mut above = Vec::new();
    for (file, stored) in compared() {
        let n_tokens = if reference::spec(&file).is_causal { n_tokens } else { tokens.len() };
        let stored = f32s(&std::fs::read(stored).unwrap());
        let n_vocab = stored.len() / tokens.len();
        let of_second_half = |row: usize| row % n_tokens >= n_tokens / 2;
        let rows = stored.chunks_exact(n_vocab).enumerate().filter(|&(row, _)| of_second_half(row));
        let stored: Vec<f32> = rows.flat_map(|(_, row)| row).copied().collect();

        let error = nmse(&reference::logits(&file, &tokens, n_tokens), &stored);
        let name = file.file_stem().unwrap().to_string_lossy();
        println!("{name:<20} NMSE {error:.1e}");
        if error.is_nan() || error > limit(&name) {
            above.push(format!("{name}: NMSE {error:.1e}"));
        }
    }
    assert!(above.is_empty(), "{above:?}");
}

/// llama.cpp looks gelu up in a table of F16 numbers; the rest it computes in F32. Scores of latent attention are sums of
/// 576 products; the stacks of HRM run one after the other many times; Grok's experts
/// have gelu, between norms that leave little of it.
fn limit(name: &str) -> f64 {
    const GELU: [&str; 24] = [
        "bert",
        "bloom",
        "codeshell",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3n",
        "gemma-embedding",
        "gpt2",
        "gptneox",
        "jina-bert-v2",
        "jina-bert-v2-code",
        "jina-bert-v3",
        "modern-bert",
        "mpt",
        "nomic-bert",
        "phi2",
        "pockettts",
        "spark2_5",
        "starcoder",
        "starcoder2",
        "t5-gated",
        "t5encoder-gated",
    ];
    let endings = ["-dense", "-moe", "-linear", "-8-experts"];
    let arch = endings.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name);
    match arch {
        arch if GELU.contains(&arch) => 1e-6,
        // Gelu twice in each layer.
        "gemma4" => 1e-5,
        // Compared with flash attention, whose sums llama.cpp rounds.
        "minimax-m3" => 1e-6,
        "grok" => 1e-9,
        "deepseek2" | "hrm_text" | "mistral4" => 1e-10,
        _ => 1e-12,
    }
}
