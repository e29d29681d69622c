//! `--model-draft` and `--spec-type`: guesses of next tokens change no text.

use crate::serve::client::Server;
use llmrt_tests::build::{fail, llmrt, succeed};
use llmrt_tests::fixtures::root;
use llmrt_tests::models::text as described;
use serde_json::json;
use std::path::PathBuf;

/// A model with the embedded one's vocabulary, of another activation, in PowerInfer's form.
fn relu() -> PathBuf {
    root().join("tests/fixtures/trained/relu.powerinfer.gguf")
}

const STORY: [&str; 6] = ["run", "-n", "150", "-p", "Once upon a time", "--seed=7"];

/// A text, and the line about guesses: how many were right, and how many there were.
fn text(flags: &[&str]) -> (String, Option<[usize; 2]>) {
    let out = succeed(&mut llmrt([&STORY, flags].concat()));
    let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
    let line = stderr.lines().find_map(|line| line.strip_prefix("drafts: "));
    let numbers = line.map(|line| {
        let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
        [numbers.next().unwrap(), numbers.next().unwrap()]
    });
    (String::from_utf8_lossy(&out.stdout).into_owned(), numbers)
}

#[test]
fn a_draft_model_guesses_most_of_a_text_and_changes_none_of_it() {
    let relu = relu().display().to_string();
    for sampling in ["--temp=0", "--temp=0.8"] {
        let (plain, none) = text(&[sampling]);
        assert_eq!(none, None);
        for flags in
            [&["--model-draft", &relu][..], &["--model-draft", &relu, "--draft-max=9", "--draft-p-min=0"]]
        {
            let (drafted, used) = text(&[&[sampling], flags].concat());
            assert_eq!(drafted, plain, "{sampling} {flags:?}");
            let [n_accepted, n_drafted] = used.unwrap();
            assert!(n_accepted > 60 && n_accepted < n_drafted, "{sampling} {flags:?}: {used:?}");
        }
        let (repeated, used) = text(&[sampling, "--spec-type=ngram", "--draft-max=4"]);
        assert_eq!(repeated, plain, "{sampling}");
        assert!(used.unwrap()[1] > 0, "{used:?}");
    }
}

#[test]
fn several_prompts_are_drafted_together() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = dir.path().join("prompts.txt");
    std::fs::write(&prompts, "Once upon a time\nThe dog\nOne day, a cat\nLily\n").unwrap();
    let (prompts, relu) = (prompts.display().to_string(), relu().display().to_string());
    let texts = |flags: &[&str]| {
        let args = ["run", "--batch-file", &prompts, "--parallel=3", "--seed=3", "-n", "60"];
        succeed(&mut llmrt([&args, flags].concat())).stdout
    };
    assert_eq!(texts(&["--model-draft", &relu]), texts(&[]));
}

#[test]
fn what_cannot_guess_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let other = llmrt_tests::models::TinyLlama::default().write(dir.path()).display().to_string();
    let ahead = described::descriptions().join("gemma4-assistant.txt");
    let ahead = described::write(&ahead, dir.path()).display().to_string();
    for (flags, code, expected) in [
        (&["--spec-type=draft"][..], 2, "--model-draft FILE"),
        (&["--spec-type=ngram", "--draft-max=0"], 2, "--draft-max 0"),
        (&["--spec-type=none", "--model-draft=x.gguf"], 2, "--model-draft x.gguf"),
        (&["--model-draft=x.gguf"], 3, "x.gguf: cannot open"),
        (&["--draft-p-min=2", "--spec-type=ngram"], 2, "expected a probability"),
        (&["--sampler=llama2c", "--spec-type=ngram"], 2, "--sampler llama2c guesses no next tokens"),
        (&["--model-draft", &other], 3, &other),
        (&["--model-draft", &ahead], 3, "predict ahead for gemma4 models"),
    ] {
        let stderr = fail(&mut llmrt([&STORY, flags].concat()), code);
        assert!(stderr.contains(expected), "{flags:?}: {stderr}");
    }
}

#[test]
fn one_of_several_models_goes_without_drafts_that_do_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let other = llmrt_tests::models::TinyLlama::default().write(dir.path()).display().to_string();
    let stories = root().join("cli/assets/stories.gguf").display().to_string();
    let (a, b) = (format!("a={stories}"), format!("b={other}"));
    let server = Server::start(&["--model-draft", &relu().display().to_string(), &a, &b]);
    for model in ["a", "b"] {
        let body =
            json!({ "model": model, "prompt": "Once upon a time", "max_tokens": 20, "temperature": 0 });
        let answer = server.post("/v1/completions", &body.to_string());
        assert_eq!(answer.status, 200, "{model}: {}", answer.body);
    }
    assert!(server.metric("vllm:spec_decode_num_draft_tokens_total") > 0.0);
}

#[test]
fn a_plan_has_the_memory_of_both_models() {
    let relu = relu().display().to_string();
    let plan = |flags: &[&str]| {
        let out = succeed(&mut llmrt([&["plan", "--json", "-c", "256"], flags].concat()));
        let plan: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
        ["weights", "kv", "compute"].map(|what| plan["devices"][0][what].as_u64().unwrap())
    };
    let (alone, other, both) = (plan(&[]), plan(&[&relu]), plan(&["--model-draft", &relu]));
    assert_eq!((both[0], both[1]), (alone[0] + other[0], alone[1] + other[1]));
    assert!(both[2] > alone[2] + other[2] / 2, "{both:?}: {alone:?} and {other:?}");
}

#[test]
fn a_server_drafts_and_counts() {
    let relu = relu().display().to_string();
    let answer = |server: &Server| {
        let body = json!({ "prompt": "Once upon a time", "max_tokens": 60, "seed": 5, "n": 2 });
        server.post("/v1/completions", &body.to_string()).json()["choices"].clone()
    };
    let plain = Server::start(&["-c", "512"]);
    assert_eq!(plain.metric("vllm:spec_decode_num_draft_tokens_total"), 0.0);
    let server = Server::start(&["-c", "512", "--model-draft", &relu]);
    assert_eq!(answer(&server), answer(&plain));
    let metric = |name: &str| server.metric(&format!("vllm:spec_decode_num_{name}_total"));
    let (drafts, tokens, accepted) = (metric("drafts"), metric("draft_tokens"), metric("accepted_tokens"));
    assert!(drafts > 5.0 && tokens > drafts && accepted > 40.0, "{drafts} {tokens} {accepted}");
}
