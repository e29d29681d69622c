//! `run --json`, `--logprobs` and `--batch-file`.

use super::{json, stdout, text};
use llmrt_tests::build::{fail, llmrt, succeed};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;

const GREEDY: [&str; 5] = ["run", "--temp", "0", "-n", "12"];

#[test]
fn json_has_the_text_that_run_prints() {
    let plain = stdout(GREEDY.iter().chain(&["-p", "Once upon a time"]));
    let result = json(llmrt(GREEDY).args(["--json", "-p", "Once upon a time"]));
    assert_eq!(result["text"].as_str().unwrap().to_string() + "\n", plain);
    assert_eq!((&result["finish_reason"], &result["n_generated"]), (&"length".into(), &12.into()));
    assert_eq!(result["tokens"].as_array().unwrap().len(), 12);
    assert!(result["timings"]["prompt_s"].as_f64() > Some(0.0) && result["logprobs"].is_null());
    let word = plain.split_whitespace().nth(2).unwrap();
    let stopped = json(llmrt(GREEDY).args(["--json", "-p", "Once upon a time", "--stop", word]));
    assert_eq!((&stopped["finish_reason"], &stopped["stop"]), (&"stop".into(), &word.into()));
}

#[test]
fn tokens_and_log_probabilities_are_those_of_the_text_without_a_stop_string() {
    let run = |more: &[&str]| {
        json(llmrt(GREEDY).args(["--json", "--logprobs", "0", "-p", "Once upon a time"]).args(more))
    };
    let all = run(&[]);
    let (all_tokens, all_text) = (all["tokens"].as_array().unwrap(), all["text"].as_str().unwrap());
    // Two words, so that several tokens belong to the stop string; then a string that begins inside a token.
    let words: Vec<_> = all_text.split_whitespace().collect();
    let inside = &words.iter().find(|word| word.len() > 4).expect("a long word")[2..];
    for stop in [format!("{} {}", words[2], words[3]), inside.to_string(), all_text[..3].to_string()] {
        let stopped = run(&["--stop", &stop]);
        let tokens = stopped["tokens"].as_array().unwrap();
        assert_eq!(tokens[..], all_tokens[..tokens.len()]);
        assert_eq!(
            (&stopped["n_generated"], stopped["logprobs"].as_array().unwrap().len()),
            (&tokens.len().into(), tokens.len())
        );
        let pieces = stopped["logprobs"].as_array().unwrap().iter().map(|row| row["token"].as_str().unwrap());
        let (text, pieces): (_, String) = (stopped["text"].as_str().unwrap(), pieces.collect());
        let (text, pieces) = (text.trim_start(), pieces.trim_start());
        assert!(pieces.starts_with(text), "{stop:?}: {pieces:?} is not of {text:?}");
        let last = stopped["logprobs"]
            .as_array()
            .unwrap()
            .last()
            .map_or(0, |row| row["token"].as_str().unwrap().len());
        assert!(pieces.len() < text.len() + last.max(1), "{stop:?}: {pieces:?} is more than {text:?}");
    }
}

#[test]
fn with_ignore_eos_a_text_goes_on_after_its_end() {
    let ended = ["--temp", "0", "-n", "5", "-p", "Once", "--logit-bias", "2+1000"];
    let result = |flags: &[&str]| json(llmrt(["run", "--json"]).args(ended).args(flags));
    assert_eq!(result(&[])["n_generated"], 0);
    let result = result(&["--ignore-eos"]);
    assert_eq!(
        (&result["tokens"], &result["finish_reason"]),
        (&serde_json::json!([2, 2, 2, 2, 2]), &"length".into())
    );
    let plain = succeed(llmrt(["run", "--ignore-eos"]).args(ended));
    assert!(text(&plain.stderr).contains("generated 5 tokens"), "{}", text(&plain.stderr));
}

#[test]
fn log_probabilities_are_of_all_tokens_and_the_greedy_token_is_the_likeliest() {
    let result = json(llmrt(GREEDY).args(["--json", "--logprobs", "3", "-p", "Once"]));
    let rows = result["logprobs"].as_array().unwrap();
    assert_eq!(rows.len(), result["tokens"].as_array().unwrap().len());
    for (row, id) in rows.iter().zip(result["tokens"].as_array().unwrap()) {
        let top = row["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &row["id"], &top[0]["id"]), (3, id, id));
        assert_eq!(row["logprob"], top[0]["logprob"]);
        let p: Vec<f64> = top.iter().map(|t| t["logprob"].as_f64().unwrap().exp()).collect();
        assert!(p[0] >= p[1] && p[1] >= p[2] && p.iter().sum::<f64>() <= 1.0 + 1e-6, "{p:?}");
    }
    let all =
        json(&mut llmrt(["run", "--temp", "0", "-n", "1", "--json", "--logprobs", "100", "-p", "Once"]));
    let sum: f64 = all["logprobs"][0]["top_logprobs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|t| t["logprob"].as_f64().unwrap().exp())
        .sum();
    assert!(sum > 0.5 && sum <= 1.0 + 1e-6, "{sum}");
}

#[test]
fn each_prompt_of_a_file_gets_the_text_that_it_gets_alone_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts");
    let prompts: Vec<String> = (0..11).map(|i| format!("The cat number {i} had a")).collect();
    std::fs::write(&file, prompts.join("\n\n") + "\n").unwrap();
    let batch = ["--batch-file", file.to_str().unwrap()];
    for flags in [&["--temp", "0"][..], &["--temp", "1", "-s", "7"]] {
        let run = [&["run", "-n", "9"][..], flags].concat();
        let out = text(&succeed(llmrt(&run).args(batch).arg("--json")).stdout);
        let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), prompts.len());
        for (i, (line, prompt)) in lines.iter().zip(&prompts).enumerate() {
            assert_eq!((&line["index"], &line["prompt"]), (&i.into(), &prompt.as_str().into()));
        }
        for i in [0, 4, 10] {
            let alone = stdout(run.iter().copied().chain(["-p", prompts[i].as_str()]));
            assert_eq!(lines[i]["text"].as_str().unwrap().to_string() + "\n", alone, "prompt {i}, {flags:?}");
        }
        let plain = text(&succeed(llmrt(&run).args(batch)).stdout);
        let answer =
            |(i, line): (usize, &Value)| format!("==> {} <==\n{}\n", i + 1, line["text"].as_str().unwrap());
        let answers: Vec<String> = lines.iter().enumerate().map(answer).collect();
        assert_eq!(plain, answers.join("\n"));
    }
}

/// 8 prompts are computed together; the ninth finds the blocks of the first that ended.
#[test]
fn prompts_with_the_same_beginning_compute_it_once_and_get_the_text_that_they_get_alone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts");
    let beginning =
        "Once there was a little girl who lived near the sea with her mother and a small brown dog. "
            .repeat(2);
    let prompts: Vec<String> = (0..12).map(|i| format!("{beginning}On day {i} she")).collect();
    std::fs::write(&file, prompts.join("\n")).unwrap();
    let run = ["run", "-n", "9", "--temp", "0"];
    let out = text(&succeed(llmrt(run).arg("--json").arg("--batch-file").arg(&file)).stdout);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let counts = |key: &str| -> Vec<u64> { lines.iter().map(|line| line[key].as_u64().unwrap()).collect() };
    let (n_prompt, n_cached) = (counts("n_prompt"), counts("n_cached"));
    assert_eq!(n_cached[..8], [0; 8]);
    for i in 8..12 {
        assert!(n_cached[i] > n_prompt[i] / 2 && n_cached[i] < n_prompt[i], "{n_cached:?} of {n_prompt:?}");
        let alone = stdout(run.into_iter().chain(["-p", prompts[i].as_str()]));
        assert_eq!(lines[i]["text"].as_str().unwrap().to_string() + "\n", alone, "prompt {i}");
    }
}

#[test]
fn ctrl_c_counts_the_tokens_that_were_computed_and_shows_no_text_that_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts");
    let prompt = "fox ".repeat(8000);
    std::fs::write(&file, &prompt).unwrap();
    // Steps of one token each take long enough in any build.
    let interrupted = |flags: &[&str], seconds| {
        let mut run = llmrt(["run", "-c", "32768", "-b", "1"]);
        let child = run.args(flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        succeed(Command::new("kill").args(["-INT", &child.id().to_string()]));
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(130), "{}", text(&out.stderr));
        (text(&out.stdout), text(&out.stderr))
    };
    let file = file.to_str().unwrap();
    // A busy machine takes longer until the first step.
    let first = [1, 4, 16, 64].into_iter().find_map(|seconds| {
        let (stdout, stderr) = interrupted(&["--json", "-f", file], seconds);
        let result: Value = serde_json::from_str(&stdout).unwrap_or_else(|e| panic!("{e}: {stdout}{stderr}"));
        (result["n_prompt"] != 0).then_some((result, stderr))
    });
    let (result, stderr) = first.expect("a step within a minute");
    let n_prompt = result["n_prompt"].as_u64().unwrap();
    assert!((1..8000).contains(&n_prompt) && result["finish_reason"] == "cancelled", "{result}");
    let counts = format!(": {n_prompt} prompt tokens, 0 generated tokens, ");
    assert!(stderr.contains(&counts), "{stderr}");
    let (stdout, stderr) = interrupted(&["--batch-file", file], 1);
    assert_eq!(stdout, "", "{stderr}");
}

#[test]
fn batches_that_make_no_sense_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts");
    std::fs::write(&file, "\n \n").unwrap();
    let file = file.to_str().unwrap();
    assert!(fail(&mut llmrt(["run", "--batch-file", file]), 3).contains("has no prompt"));
    assert!(fail(&mut llmrt(["run", "--batch-file", file, "-p", "x"]), 2).contains("another prompt"));
    assert!(fail(&mut llmrt(["run", "--logprobs", "3", "-p", "x"]), 2).contains("--json"));
    assert!(fail(&mut llmrt(["run", "--json", "--logprobs", "101", "-p", "x"]), 2).contains("0 to 100"));
}

#[test]
fn a_prompt_that_is_too_long_for_the_context_leaves_the_others_their_answers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts");
    let long = "a fox and a dog ".repeat(20);
    std::fs::write(&file, format!("{long}\nOnce\n{long}\nThe dog\n")).unwrap();
    // One at a time: what is refused takes no place.
    for parallel in ["1", "8"] {
        let mut command =
            llmrt(["run", "--temp", "0", "-n", "3", "-c", "16", "--json", "--parallel", parallel]);
        let out = command.arg("--batch-file").arg(&file).output().unwrap();
        let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&out.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!((out.status.code(), lines.len()), (Some(2), 4), "{out:?}");
        assert!([0, 2].iter().all(|&i| lines[i]["error"].is_string() && lines[i]["index"] == i), "{lines:?}");
        assert!([1, 3].iter().all(|&i| lines[i]["n_generated"] == 3), "{lines:?}");
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(stderr.contains("prompt 1: ") && stderr.contains("prompt 3: "), "{stderr}");
    }
}

/// Each by a KV cache that holds fewer than all, chunks of another size, or another order: the same texts.
#[test]
fn a_small_kv_cache_changes_no_text() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts.txt");
    let prompt = |i| format!("Once upon a time, there was a little girl named Lily number {i} who\n");
    std::fs::write(&file, (0..12).map(prompt).collect::<String>()).unwrap();
    let run = |flags: &str| {
        let mut command = llmrt(["run", "--temp", "0", "-n", "30", "-c", "128", "--batch-file"]);
        command.arg(&file).args(flags.split_whitespace());
        String::from_utf8(succeed(&mut command).stdout).unwrap()
    };
    let expected = run("--parallel 1");
    for flags in [
        "--parallel 12 --kv-memory 300KiB",
        "--parallel 12 --kv-memory 400KiB --swap-space 4MiB --preemption swap",
        "--parallel 5 --kv-memory 300KiB --scheduling prefill-first",
        "--parallel 12 --memory-utilization 0.9 -b 16",
    ] {
        assert_eq!(run(flags), expected, "{flags}");
    }
    let refused = |flags: &str, code| {
        fail(llmrt(["run", "-c", "128", "--batch-file"]).arg(&file).args(flags.split_whitespace()), code)
    };
    assert!(refused("--kv-memory 100KiB", 6).contains("the memory for the KV cache holds "));
    assert!(refused("--preemption swap", 2).contains("there is no swap space"));
    let plan = |flags: &str| succeed(llmrt(["plan", "-c", "128"]).args(flags.split_whitespace())).stdout;
    let text = String::from_utf8(plan("-s 12 --kv-memory 300KiB --swap-space 1TiB")).unwrap();
    assert!(text.contains("at full length; swap space 2") && !text.contains("TiB"), "{text}");
}

#[test]
fn a_prompt_that_can_never_run_leaves_the_others_their_answers() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts.txt");
    std::fs::write(&file, format!("Once upon\n{}\nThe dog\n", "word ".repeat(90))).unwrap();
    let mut command = llmrt(["run", "--temp", "0", "-n", "3", "-b", "16", "--scheduling", "prefill-first"]);
    let out = command.args(["--json", "--batch-file"]).arg(&file).output().unwrap();
    let lines: Vec<serde_json::Value> = String::from_utf8_lossy(&out.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!((out.status.code(), lines.len()), (Some(2), 3), "{out:?}");
    assert!(lines[1]["error"].as_str().unwrap().contains("tokens in a step") && lines[1]["index"] == 1);
    assert!([0, 2].iter().all(|&i| lines[i]["n_generated"] == 3), "{lines:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("prompt 2: "), "{out:?}");
}

/// The line of `-v` has the blocks of `plan`, and counts what lost its blocks.
#[test]
fn verbose_runs_show_blocks_and_preemptions() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prompts.txt");
    std::fs::write(&file, "Once upon a time\n".repeat(12)).unwrap();
    let flags = ["-c", "128", "--parallel", "12", "--kv-memory", "300KiB"];
    let mut plan = llmrt(["plan", "--json"]);
    let plan: serde_json::Value = serde_json::from_slice(&succeed(plan.args(flags)).stdout).unwrap();
    let line = |flags: &[&str]| {
        let mut command = llmrt(["run", "-v", "--temp", "0", "-n", "60", "--ignore-eos", "--batch-file"]);
        let out = succeed(command.arg(&file).args(flags));
        let text = String::from_utf8(out.stderr).unwrap();
        text.lines()
            .find(|line| line.starts_with("KV cache of "))
            .unwrap_or_else(|| panic!("{text}"))
            .to_string()
    };
    let small = line(&flags);
    let (n_blocks, n_tokens) = (&plan["kv_blocks"], &plan["kv_tokens"]);
    assert!(small.starts_with(&format!("KV cache of {n_blocks} blocks, {n_tokens} tokens: ")), "{small}");
    assert!(!small.ends_with(" 0 preemptions"), "{small}");
    let large = line(&["-c", "128", "--parallel", "12"]);
    assert!(large.ends_with(" in use, 0 preemptions"), "{large}");
}
