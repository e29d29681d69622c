//! `inspect` and `plan`: what is in a file, where it would run, what it needs.

use super::{checkpoint, json, stdout};
use llmrt_tests::build::llmrt;

#[test]
fn inspect_shows_metadata_and_tensors() {
    let table = stdout(["inspect", "--tensors"]);
    for expected in ["GGUF", "general.architecture", "\"llama\"", "token_embd.weight", "blk.0.attn_q.weight"]
    {
        assert!(table.contains(expected), "{expected} is missing in {table}");
    }
    let file = json(&mut llmrt(["inspect", "--tensors", "--json"]));
    let tensors = file["tensors"].as_array().unwrap();
    assert_eq!(file["n_tensors"].as_u64().unwrap() as usize, tensors.len());
    let total: u64 = tensors.iter().map(|t| t["nbytes"].as_u64().unwrap()).sum();
    assert_eq!(file["tensor_bytes"].as_u64(), Some(total));
    assert_eq!(file["metadata"]["general.architecture"], "llama");
    assert_eq!(file["metadata"]["tokenizer.ggml.tokens"]["type"], "str", "long arrays are shortened");
}

#[test]
fn inspect_shows_a_checkpoint_as_a_model() {
    let (_dir, model) = checkpoint();
    let file = json(llmrt(["inspect", "--json"]).arg(&model));
    assert_eq!(file["kind"], "llama2.c checkpoint, version 0");
    assert_eq!(file["metadata"]["llama.embedding_length"], 8);
}

#[test]
fn metadata_can_be_overridden() {
    let file = json(&mut llmrt(["inspect", "--json", "--override-kv", "general.name=str:other"]));
    assert_eq!(file["metadata"]["general.name"], "other");
}

#[test]
fn placement_puts_everything_on_the_cpu_when_there_is_nothing_else() {
    let file = json(&mut llmrt(["inspect", "--placement", "--graph", "--json"]));
    let placement = &file["placement"];
    assert_eq!(placement["n_fallbacks"], 0);
    assert_eq!(placement["splits"].as_array().unwrap().len(), 1);
    assert_eq!(
        placement["devices"][0]["n_nodes"].as_u64().unwrap() as usize,
        file["graph"].as_array().unwrap().len()
    );
}

#[test]
fn the_plan_grows_with_the_context_and_the_type_of_its_cache() {
    let plan = |flags: &[&str]| json(llmrt(["plan", "--json"]).args(flags));
    let kv = |flags: &[&str]| plan(flags)["devices"][0]["kv"].as_u64().unwrap();
    assert_eq!(2 * kv(&["-c", "160"]), kv(&["-c", "320"]));
    assert_eq!(2 * kv(&["-c", "160"]), kv(&["-c", "160", "--kv-type", "f32"]));
    let one = plan(&["-c", "160"]);
    assert_eq!(kv(&["-c", "160"]), 160 * one["kv_bytes_per_token"].as_u64().unwrap());
    let row = &one["devices"][0];
    let parts = ["weights", "kv", "compute", "staging"].map(|key| row[key].as_u64().unwrap());
    assert_eq!(row["total"].as_u64(), Some(parts.iter().sum()));
    assert!(stdout(["plan"]).contains("KV cache"));
}
