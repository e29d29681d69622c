//! `eval` and `bench`: logits and speed.

use super::{checkpoint, json, stdout};
use llmrt_tests::build::{fail, llmrt, plugin, succeed};
use llmrt_tests::f32s;
use llmrt_tests::fixtures::{fixture, fixtures};
use llmrt_tests::models::{TinyLlama, text as described};
use std::path::Path;

const TOKENS: &str = "1 262 263 264,265\n266 267";

/// Logits as eval writes them.
fn logits(model: &Path, more: &[&str]) -> Vec<f32> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("logits");
    succeed(llmrt(["eval", "--tokens", TOKENS, "-m"]).arg(model).arg("--logits-out").arg(&out).args(more));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing else remains");
    f32s(&std::fs::read(out).unwrap())
}

#[test]
fn there_is_a_row_per_token_or_the_last_one_alone() {
    let (_dir, model) = checkpoint();
    let all = logits(&model, &["--logits", "all"]);
    let n_vocab = all.len() / 7;
    assert_eq!(n_vocab * 7, all.len());
    assert_eq!(logits(&model, &["--logits", "last"]), all[6 * n_vocab..]);
    assert_eq!(logits(&model, &[]), all[6 * n_vocab..]);
}

#[test]
fn chunks_change_no_bit() {
    let (_dir, model) = checkpoint();
    let whole = logits(&model, &["--logits", "all"]);
    for chunks in ["1", "3", "2,4", "100"] {
        let cut = logits(&model, &["--logits", "all", "--chunks", chunks]);
        assert!(
            whole.iter().zip(&cut).all(|(a, b)| a.to_bits() == b.to_bits()) && whole.len() == cut.len(),
            "{chunks}"
        );
    }
    let small_steps = logits(&model, &["--logits", "all", "-b", "2"]);
    assert_eq!(small_steps, whole);
}

#[test]
fn without_a_file_the_likeliest_tokens_are_shown() {
    let (_dir, model) = checkpoint();
    let shown = stdout(["eval", "--logits", "all", "--tokens", TOKENS, "-m", model.to_str().unwrap()]);
    assert_eq!(shown.lines().count(), 7);
    let last = logits(&model, &[]);
    let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
    assert!(shown.lines().last().unwrap().starts_with(&format!("6\t{best}:")), "{shown}");
}

#[test]
fn per_op_writes_a_file_for_every_row_of_its_index() {
    let (dir, model) = checkpoint();
    let ops = dir.path().join("ops");
    succeed(llmrt(["eval", "--tokens", TOKENS, "-m"]).arg(&model).arg("--per-op").arg(&ops));
    let index = std::fs::read_to_string(ops.join("index.tsv")).unwrap();
    assert!(index.lines().count() > 15, "{index}");
    for line in index.lines().skip(1) {
        let cells: Vec<_> = line.split('\t').collect();
        let n: u64 = cells[2].split(',').map(|n| n.parse::<u64>().unwrap()).product();
        assert_eq!(std::fs::metadata(ops.join(cells[0])).unwrap().len(), 4 * n, "{line}");
    }
}

#[test]
fn tokens_that_make_no_sense_are_named() {
    let (_dir, model) = checkpoint();
    for (tokens, expected) in [
        ("1 2 99999", "--tokens: entry 2 is token 99999: the vocabulary has 289 tokens, ids 0 to 288"),
        ("1 two", "entry 1 is `two`"),
        (" ", "there are no token ids"),
        ("-1", "entry 0 is `-1`"),
    ] {
        let stderr = fail(llmrt(["eval", "-m"]).arg(&model).arg(format!("--tokens={tokens}")), 2);
        assert!(stderr.contains(expected), "{stderr}");
    }
    let stderr = fail(llmrt(["eval", "--tokens", "1 2 3", "-c", "2", "-m"]).arg(&model), 2);
    assert!(stderr.contains("3 tokens do not fit into a context of 2"), "{stderr}");
}

#[test]
fn bench_measures_prompt_and_decode() {
    let result = json(&mut llmrt(["bench", "-p", "8", "-n", "4", "-r", "2", "--json"]));
    for key in ["prompt_tok_s", "decode_tok_s"] {
        assert!(result[key].as_f64().is_some_and(|x| x > 0.0), "{result}");
        assert!(result[format!("{key}_sd")].as_f64().is_some(), "{result}");
    }
    assert_eq!((result["n_prompt"].as_u64(), result["n_gen"].as_u64()), (Some(8), Some(4)));
    assert_eq!(result["devices"][0], "cpu");
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/assets/stories.gguf");
    let table = stdout(["bench", model, "-p", "8", "-n", "0", "-r", "1"]);
    assert!(table.contains("prompt 8") && table.contains(" ± 0.00") && !table.contains("decode"), "{table}");
}

#[test]
fn bench_goes_to_a_depth_and_with_several_sequences() {
    let args = ["bench", "-p", "4", "-n", "3", "-d", "20", "-s", "3", "-r", "2", "--no-warmup", "--json"];
    let result = json(&mut llmrt(args));
    assert!(result["prompt_tok_s"].as_f64() > Some(0.0) && result["decode_tok_s"].as_f64() > Some(0.0));
    assert_eq!((result["n_depth"].as_u64(), result["sequences"].as_u64()), (Some(20), Some(3)));
    // Embeddings and output are one matrix here: a step reads all of the file.
    assert_eq!(result["read_bytes_per_step"], result["model_bytes"]);
    // What is before the prompt is computed once, and the prompt every time.
    let result = json(&mut llmrt(["bench", "-p", "5", "-n", "0", "-d", "100", "-r", "2", "--json"]));
    assert!(result["prompt_tok_s"].as_f64() < Some(1e6), "{result}");
    let few = ["bench", "-s", "9", "-n", "16", "-p", "0", "-r", "1", "-d", "200", "--kv-memory", "2MiB"];
    let error = fail(&mut llmrt(few), 2);
    assert!(error.contains("9 sequences at depth 200 do not run together"), "{error}");
    let table = stdout(["bench", "-p", "0", "-n", "2", "-d", "20", "-s", "3", "-r", "1"]);
    assert!(table.contains("decode 2 × 3 at depth 20"), "{table}");
}

/// 8 rows of 32 000 logits are 1 MB; of each, 64 with their ids and a sum are what a top-k of 40 needs.
#[test]
fn bench_reports_what_was_read_back_of_the_logits() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama { n_vocab: 32_000, ..TinyLlama::default() }.write(dir.path());
    let logits_bytes = |backend: &str, flags: &str| {
        let mut command = llmrt(["--plugin"]);
        command.arg(plugin("sim")).args(["--backend", backend, "bench", "-p", "0", "-n", "1", "-s", "8"]);
        command.args(["-r", "1", "--no-warmup", "--json"]).args(flags.split_whitespace());
        json(command.arg("-m").arg(&model))["logits_bytes"].as_u64().unwrap()
    };
    assert_eq!(logits_bytes("sim:sim", ""), 8 * 32_000 * 4);
    assert_eq!(logits_bytes("sim:sim", "--top-k 40"), 8 * (64 * 8 + 4));
    assert_eq!(logits_bytes("cpu", "--top-k 40"), 8 * 32_000 * 4, "nothing to copy from");
}

#[test]
fn bench_measures_what_the_machine_can_do() {
    let result = json(&mut llmrt(["bench", "-p", "0", "-n", "0", "--ceilings", "--json"]));
    for key in ["read_gb_s", "read_mean_gb_s", "f32_gflop_s", "int8_gop_s"] {
        assert!(result["ceilings"][key].as_f64() > Some(0.1), "{result}");
    }
    let reads = json(&mut llmrt(["bench", "-p", "0", "-n", "0", "--ceilings=reads", "--json"]));
    assert!(reads["ceilings"]["read_mean_gb_s"].as_f64() > Some(0.1), "{reads}");
    assert!(reads["ceilings"]["int8_gop_s"].is_null(), "{reads}");
}

#[test]
fn what_a_file_has_beyond_its_model_and_rules_without_a_tensor_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let model = TinyLlama::default().write(dir.path());
    let noted = |args: &[&str]| {
        let out = succeed(llmrt(["eval", "--tokens", "1 2", "-m"]).arg(&model).args(args));
        String::from_utf8(out.stderr).unwrap()
    };
    assert!(!noted(&[]).contains("not used"));
    let one_layer = ["eval", "--tokens", "1 2", "--override-kv", "llama.block_count=int:1", "-m"];
    let error = fail(llmrt(one_layer).arg(&model), 3);
    let expected = "`llama.block_count` is 1: expected 2, as the file has tensors of layer 1";
    assert!(error.contains(expected), "{error}");
    let rule = noted(&["--tensor-placement", "nothing=cpu"]);
    assert!(rule.contains("no tensor is placed on cpu by `nothing`: none matches"), "{rule}");
}

#[test]
fn a_model_made_for_images_reads_text_alone_and_states_so() {
    let Some(model) = fixtures("archs").and_then(|dir| fixture(&dir, "qwen2vl-dense.gguf")) else { return };
    let noted = succeed(llmrt(["eval", "--tokens", "1 2", "-m"]).arg(model)).stderr;
    let noted = String::from_utf8(noted).unwrap();
    assert!(noted.contains("qwen2vl models get images from a projector (mmproj)"), "{noted}");
}

#[test]
fn a_model_without_logits_shows_its_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let model = described::write(&described::descriptions().join("bert.txt"), dir.path());
    let shown = stdout(["eval", "--tokens", "1 2 3", "-m", model.to_str().unwrap()]);
    assert!(shown.starts_with("2\t") && !shown.contains(':') && shown.contains("numbers)"), "{shown}");
}

#[test]
fn a_part_of_a_model_is_named_before_what_it_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let description = dir.path().join("mmproj.txt");
    std::fs::write(&description, "general.architecture str clip\ntensor mm.0.weight 4 4\n").unwrap();
    let file = described::write(&description, dir.path());
    let message = fail(llmrt(["run", "-n", "1", "-m"]).arg(&file).arg("hi"), 3);
    assert!(message.contains("a projector (mmproj)"), "{message}");
}
