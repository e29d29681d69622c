//! What is counted and returned of the work of requests.

use super::client::Server;
use llmrt_tests::build::plugin;
use llmrt_tests::fixtures::root;
use serde_json::{Value, json};

const PROMPT: &str = "Once upon a time";

#[test]
fn every_form_of_answer_has_a_receipt_on_request() {
    let server = Server::start(&[]);
    let chat = json!([{ "role": "user", "content": "a cat" }]);
    let requests = [
        ("/v1/completions", json!({ "prompt": PROMPT, "max_tokens": 4 }), "/usage/receipt"),
        ("/v1/chat/completions", json!({ "messages": chat, "max_tokens": 4 }), "/usage/receipt"),
        ("/v1/responses", json!({ "input": "a cat", "max_output_tokens": 4 }), "/usage/receipt"),
        ("/v1/messages", json!({ "messages": chat, "max_tokens": 4 }), "/usage/receipt"),
        ("/api/generate", json!({ "model": "stories", "prompt": "x", "stream": false }), "/receipt"),
    ];
    for (path, mut body, pointer) in requests {
        assert_eq!(server.post(path, &body.to_string()).json().pointer(pointer), None, "{path}");
        body["receipt"] = true.into();
        let answer = server.post(path, &body.to_string()).json();
        let receipt = answer.pointer(pointer).unwrap_or_else(|| panic!("{path}: {answer}"));
        check(receipt, path);
    }
    let body = json!({ "prompt": PROMPT, "max_tokens": 4, "stream": true, "receipt": true });
    let events = server.post("/v1/completions", &body.to_string()).events();
    check(&events.last().expect("events")["usage"]["receipt"], "a stream");
    let refused = server.post("/v1/completions", r#"{"prompt": "a", "receipt": 3}"#);
    assert_eq!((refused.status, &refused.json()["error"]["param"]), (400, &json!("receipt")));
}

/// Steps of the CPU alone: nothing fell back.
fn check(receipt: &Value, of: &str) {
    let devices = receipt["devices"].as_array().unwrap_or_else(|| panic!("{of}: {receipt}"));
    assert!(!devices.is_empty(), "{of}: {receipt}");
    assert!(devices.iter().all(|device| device["n_nodes"].as_u64() > Some(0)), "{of}: {receipt}");
    assert!(receipt["n_steps"].as_u64() >= Some(4), "{of}: {receipt}");
    assert_eq!(
        (&receipt["fallbacks"], &receipt["n_preemptions"]),
        (&json!([]), &json!(0)),
        "{of}: {receipt}"
    );
}

#[test]
fn a_receipt_and_the_metrics_have_fallbacks_by_device() {
    // The simulated card lacks an op, which the CPU executes in its place.
    let file = plugin("sim").display().to_string();
    let option = "sim.ops=* -rope";
    let server = Server::start(&["--plugin", &file, "--backend", "sim:sim", "--plugin-option", option]);
    let body = json!({ "prompt": PROMPT, "max_tokens": 3, "receipt": true });
    let answer = server.post("/v1/completions", &body.to_string()).json();
    let fallbacks = answer["usage"]["receipt"]["fallbacks"].as_array().expect("fallbacks");
    assert!(fallbacks.iter().any(|f| f["op"] == "rope" && f["n_nodes"].as_u64() > Some(0)), "{answer}");
    let metrics = server.get("/metrics").body;
    let of_cpu = |line: &&str| line.starts_with("llmrt:fallback_nodes_total{") && line.contains("\"cpu");
    let line = metrics.lines().find(of_cpu).unwrap_or_else(|| panic!("{metrics}"));
    assert!(!line.ends_with(" 0"), "{line}");
}

/// Half of a model's neurons are on a simulated card, and change places.
#[test]
fn props_and_the_metrics_have_the_neurons_of_each_device() {
    let file = plugin("sim").display().to_string();
    let model = format!("relu={}", root().join("tests/fixtures/trained/relu.powerinfer.gguf").display());
    let card = ["--plugin", &file, "--backend", "sim:sim", "--vram-budget", "0.002", "--sparse-adapt=256KiB"];
    let sizes = ["-b", "8", "-c", "128", "--parallel", "1"];
    let server = Server::start(&[&[&*model][..], &card, &sizes].concat());
    let body = json!({ "prompt": PROMPT, "max_tokens": 60, "ignore_eos": true });
    assert_eq!(server.post("/v1/completions", &body.to_string()).status, 200);
    let devices = server.get("/props").json()["placement"]["devices"].clone();
    let n = |row: usize, key: &str| devices[row][key].as_u64().unwrap_or_else(|| panic!("{devices}"));
    assert!(n(0, "n_neurons") > 100 && n(1, "n_neurons") > 100, "{devices}");
    assert_eq!(n(0, "n_neurons") + n(1, "n_neurons"), 4 * 1024, "{devices}");
    let metrics = server.get("/metrics").body;
    for (row, device) in ["sim:sim", "cpu"].iter().enumerate() {
        for (name, key) in [("neurons", "n_neurons"), ("neuron_bytes", "neuron_bytes")] {
            let line = format!("llmrt:{name}{{model_name=\"relu\",device=\"{device}\"}} {}", n(row, key));
            assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
        }
    }
    let counted = |name: &str| server.metric(&format!("llmrt:{name}_total"));
    assert!(counted("moved_neurons") > 0.0 && counted("moved_neuron_bytes") > 0.0, "{metrics}");
    let (on_devices, all) = (counted("active_neurons_on_devices"), counted("active_neurons"));
    assert!(on_devices > 0.0 && on_devices < all, "{metrics}");
}

#[test]
fn tokens_are_counted_as_they_are_generated_and_ends_by_their_reason() {
    let server = Server::start(&["-c", "4096"]);
    let long = json!({ "prompt": PROMPT, "max_tokens": 3900, "ignore_eos": true, "stream": true });
    let stream = server.begin("/v1/completions", &long.to_string());
    while server.metric("vllm:generation_tokens_total") < 5.0 {
        assert_eq!(server.metric("vllm:num_requests_running"), 1.0);
    }
    drop(stream);
    server.wait_for("vllm:num_requests_running", 0.0);
    let ended = |reason: &str| {
        let text = server.get("/metrics").body;
        let is_it = |line: &&str| {
            line.starts_with("vllm:request_success_total{") && line.contains(&format!("\"{reason}\""))
        };
        let line = text.lines().find(is_it).unwrap_or_else(|| panic!("{reason}: {text}"));
        line.rsplit(' ').next().map(String::from)
    };
    assert_eq!((ended("abort").as_deref(), ended("length").as_deref()), (Some("1"), Some("0")));
    server.post("/v1/completions", &json!({ "prompt": PROMPT, "max_tokens": 2 }).to_string());
    assert_eq!(ended("length").as_deref(), Some("1"));
}

#[test]
fn presence_counts_the_text_and_repetition_the_prompt_too() {
    let server = Server::start(&[]);
    let text = |more: Value| {
        let mut body = json!({ "prompt": PROMPT, "max_tokens": 1, "temperature": 0 });
        more.as_object().into_iter().flatten().for_each(|(name, value)| body[name] = value.clone());
        server.post("/v1/completions", &body.to_string()).json()["choices"][0]["text"].clone()
    };
    let plain = text(json!({}));
    // The first token of a text follows no generated ones: only repetition can change it.
    assert_eq!(text(json!({ "presence_penalty": 2, "frequency_penalty": 2 })), plain);
    let next = plain.as_str().expect("a text");
    let with = |penalty| {
        let prompt = format!("{next} {next} {PROMPT}");
        text(json!({ "prompt": prompt, "repetition_penalty": penalty }))
    };
    assert_ne!(with(1.0), with(50.0));
}
