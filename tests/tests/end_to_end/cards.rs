//! Every architecture on simulated cards of NVIDIA and Ascend: llama.cpp's logits, and at each position the CPU's most likely
//! token, whether ops fall back or not. Nothing here shows what a real card does.

use llmrt_tests::build::{llmrt, succeed};
use llmrt_tests::fixtures::{compared, root, tokens};
use llmrt_tests::skip::skipped;
use llmrt_tests::{ascend, f32s, nmse, nvidia};
use serde_json::Value;
use std::process::Command;

/// GELU is a table in llama.cpp; without it logits differ by less than best tokens lead.
const LIMIT: f64 = 1e-5;
const WITHOUT_GELU: f64 = 1e-9;

/// One model of each family; what of its decode step falls back is in `tests/fixtures/placements.txt`.
const FAMILIES: [&str; 22] = [
    "llama-dense",
    "qwen3moe-moe",
    "gemma3-dense",
    "gemma3n",
    "gemma4",
    "gpt-oss-moe",
    "deepseek2-moe",
    "deepseek32",
    "deepseek4",
    "glm5-next",
    "minimax-01-moe",
    "mamba-dense",
    "mamba2-dense",
    "falcon-h1-dense",
    "lfm2-dense",
    "qwen3next-moe",
    "kimi-linear-moe",
    "rwkv6",
    "rwkv7",
    "t5",
    "bert",
    "qwen4exp-moe",
];

fn on_nvidia() -> Command {
    let (plugin, libraries) = nvidia::built();
    let mut command = llmrt(["--backend", "cuda", "--plugin"]);
    command.arg(plugin).env("LLMRT_CUDA_LIB_DIR", libraries);
    command
}

fn on_ascend() -> Command {
    let (plugin, libraries) = ascend::built();
    let mut command = llmrt(["--backend", "cann", "--plugin"]);
    command.arg(plugin).env("LLMRT_CANN_LIB_DIR", libraries).env("LLMRT_CANN_SIM", "soc=Ascend910B3");
    command
}

#[test]
fn every_architecture_gives_the_stored_logits_on_nvidias_cards() {
    check("cuda", on_nvidia);
}

#[test]
fn every_architecture_gives_the_stored_logits_on_ascends_cards() {
    check("cann", on_ascend);
}

#[test]
fn placements_show_what_of_each_family_falls_back() {
    let models = compared();
    let kept = root().join("tests/fixtures/placements.txt");
    let kept_text = std::fs::read_to_string(&kept).unwrap_or_default();
    let is_known = |line: &str| FAMILIES.contains(&line.split(' ').next().unwrap_or_default());
    assert!(kept_text.lines().all(is_known), "{}: a line of another model", kept.display());
    let (mut text, mut expected) = (String::new(), String::new());
    for family in FAMILIES {
        let model = models.iter().find(|(model, _)| model.file_stem().is_some_and(|stem| stem == family));
        let Some((model, _)) = model else {
            skipped(&format!("{family} is not among the committed fixtures"));
            continue;
        };
        let of_family = kept_text.lines().filter(|line| line.split(' ').next() == Some(family));
        expected.extend(of_family.map(|line| format!("{line}\n")));
        for (name, command) in [("cuda", on_nvidia as fn() -> Command), ("cann", on_ascend)] {
            let mut inspect = command();
            inspect.args(["inspect", "--placement", "--json"]).arg(model);
            let found: Value = serde_json::from_slice(&succeed(&mut inspect).stdout).unwrap();
            let placed = &found["placement"];
            let n = |row: usize| placed["devices"][row]["n_nodes"].as_u64().unwrap();
            let fallbacks = placed["fallbacks"].as_array().unwrap().iter();
            let fallbacks: Vec<_> = fallbacks
                .map(|f| {
                    format!(
                        ", {} {} ({})",
                        f["count"],
                        f["op"].as_str().unwrap(),
                        f["reason"].as_str().unwrap()
                    )
                })
                .collect();
            text += &format!(
                "{family} {name}: {} on the card, {} on the CPU{}\n",
                n(0),
                n(1),
                fallbacks.concat()
            );
        }
    }
    assert!(text == expected, "{} should be:\n{text}", kept.display());
}

/// A prompt of 40 tokens, then single ones; texts whose tokens see later ones at once.
fn check(backend: &str, command: impl Fn() -> Command) {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("logits");
    for (model, stored) in compared() {
        let stored = f32s(&std::fs::read(stored).unwrap());
        let mut eval = command();
        eval.args(["-v", "eval", "--logits", "all", "--chunks", "40,1", "-m"]).arg(&model);
        let ran = succeed(eval.arg("--tokens-file").arg(tokens()).arg("--logits-out").arg(&out));
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let (on_card, on_cpu) = (n_nodes(&stderr, backend), n_nodes(&stderr, "cpu"));
        let logits = f32s(&std::fs::read(&out).unwrap());
        let (name, error) = (model.file_stem().unwrap().to_string_lossy(), nmse(&logits, &stored));
        println!("{name:<24} NMSE {error:.1e}, {on_card} nodes on the card, {on_cpu} on the CPU");
        assert!(error <= LIMIT, "{name} on {backend}: NMSE {error}");
        assert!(on_card > 0, "{name} on {backend}: {on_card} nodes on the card, {on_cpu} on the CPU");
        let n_vocab = stored.len() / 48;
        let best = |logits: &[f32]| -> Vec<usize> {
            logits
                .chunks_exact(n_vocab)
                .map(|row| (0..n_vocab).fold(0, |b, i| if row[i] > row[b] { i } else { b }))
                .collect()
        };
        assert!(error > WITHOUT_GELU || best(&logits) == best(&stored), "{name} on {backend}");
    }
}

/// Nodes of a device in the last report of placement.
fn n_nodes(stderr: &str, device: &str) -> usize {
    let row = stderr.lines().rfind(|line| line.trim_start().starts_with(&format!("{device} ")));
    let words = row.map(|row| row.split_whitespace().collect::<Vec<_>>()).unwrap_or_default();
    words.get(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}
