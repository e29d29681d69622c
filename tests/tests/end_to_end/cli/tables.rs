//! `inspect` and `plan`: what is in a file, where it would run, what it needs.

use super::{checkpoint, json, stdout, text};
use llmrt_tests::build::{fail, llmrt, succeed};

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
    let parts = ["weights", "kv", "compute"].map(|key| row[key].as_u64().unwrap());
    assert_eq!(row["total"].as_u64(), Some(parts.iter().sum()));
    assert_eq!((&one["fits"], &row["fits"]), (&true.into(), &true.into()));
    assert!(stdout(["plan"]).contains("KV cache"));
    let kv =
        |flags: &[&str]| plan(flags)["devices"].as_array().unwrap().last().unwrap()["kv"].as_u64().unwrap();
    assert_eq!(kv(&["--sequences", "4"]), 4 * kv(&[]));
    let of = |flags: &[&str]| {
        let plan = plan(&[&["-c", "200"], flags].concat());
        ["kv_block_size", "kv_blocks", "kv_tokens"].map(|key| plan[key].as_u64().unwrap())
    };
    assert_eq!((of(&[]), of(&["--block-size", "128"])), ([16, 13, 208], [128, 2, 256]));
    // Seven sequences are padded to eight: with a block more.
    let block = 16 * one["kv_bytes_per_token"].as_u64().unwrap();
    assert_eq!(kv(&["--sequences", "8"]), 8 * kv(&[]) + block);
}

#[test]
fn the_plan_of_the_process_is_near_the_peak_of_a_run() {
    let flags = ["-c", "60000"]; // the KV cache is most of it
    let plan = json(llmrt(["plan", "--json"]).args(flags));
    let (host, process) = (plan["host"].as_u64().unwrap(), plan["process"].as_u64().unwrap());
    assert_eq!(plan["devices"][0]["total"].as_u64(), Some(process - host));
    let out = succeed(llmrt(["run", "-v", "-n", "4", "-p", "Once"]).args(flags));
    let stderr = text(&out.stderr);
    let peak = stderr.lines().find_map(|line| line.strip_prefix("memory of this process: "));
    let peak = peak.and_then(|line| line.split_once("at most ")?.1.strip_suffix(" MiB")?.parse::<f64>().ok());
    let (peak, planned) = (peak.unwrap_or_else(|| panic!("{stderr}")), process as f64 / f64::from(1 << 20));
    assert!((planned / peak - 1.0).abs() < 0.05, "{planned:.1} MiB planned, {peak} MiB used");
    assert!(stdout(["plan"]).contains("\nhost ") && stdout(["plan"]).contains("\nprocess "));
}

#[test]
fn a_plan_that_does_not_fit_is_an_error() {
    let out = llmrt(["plan", "--json", "-c", "2147482624"]).output().unwrap();
    assert_eq!(out.status.code(), Some(6), "{}", text(&out.stderr));
    assert!(text(&out.stderr).contains("more than is free; lower -c"), "{}", text(&out.stderr));
    let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(plan["fits"], false);
}

#[test]
fn a_weight_that_is_no_number_is_found_and_named() {
    let (_dir, model) = checkpoint();
    let inspect = |flags: &[&str]| -> std::process::Command {
        let mut command = llmrt(["inspect"]);
        command.args(flags).arg("-m").arg(&model);
        command
    };
    succeed(&mut inspect(&["--check-tensors"]));
    let mut bytes = std::fs::read(&model).unwrap();
    bytes[28..32].copy_from_slice(&f32::NAN.to_le_bytes()); // the first weight, after seven numbers
    std::fs::write(&model, bytes).unwrap();
    succeed(&mut inspect(&[]));
    let stderr = fail(&mut inspect(&["--check-tensors"]), 3);
    assert!(stderr.contains("token_embd.weight") && stderr.contains("row 0, element 0"), "{stderr}");
}
