//! Clients that go away, too many of them, keys, time, and the end of the server.

use super::client::Server;
use llmrt_tests::build::{fail, llmrt};
use llmrt_tests::fixtures::root;
use std::io::Read;
use std::time::{Duration, Instant};

/// A text that takes long: its model goes far over the context that it was trained on.
const LONG: &str = r#"{"prompt": "Once", "max_tokens": 3900, "ignore_eos": true, "stream": true, "n": 2}"#;
const LONG_CONTEXT: [&str; 2] = ["-c", "4096"];

#[test]
fn a_client_that_is_gone_aborts_its_request() {
    let server = Server::start(&LONG_CONTEXT);
    let stream = server.begin("/v1/completions", LONG);
    assert_eq!(server.metric("vllm:num_requests_running"), 1.0);
    drop(stream);
    server.wait_for("vllm:num_requests_running", 0.0);
    assert_eq!(server.metric("vllm:e2e_request_latency_seconds_count"), 0.0, "it was not completed");
    assert_eq!(server.metric("vllm:kv_cache_usage_perc"), 0.0);
    // One that waits for the whole answer too.
    let whole = LONG.replace("\"stream\": true", "\"stream\": false");
    let stream = server.open("POST", "/v1/completions", "", &whole);
    server.wait_for("vllm:num_requests_running", 1.0);
    drop(stream);
    server.wait_for("vllm:num_requests_running", 0.0);
    assert_eq!(server.metric("vllm:e2e_request_latency_seconds_count"), 0.0, "it was not completed");
}

#[test]
fn a_full_queue_is_answered_with_when_to_try_again() {
    let server = Server::start(&["-c", "4096", "--parallel", "2", "--max-queue", "0"]);
    let one = LONG.replace("\"n\": 2", "\"n\": 1");
    let first = server.begin("/v1/completions", &one);
    let second = server.begin("/v1/completions", &one);
    let refused = server.post("/v1/completions", r#"{"prompt": "a", "max_tokens": 1}"#);
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.headers.contains("retry-after: 1"), "{}", refused.headers);
    drop((first, second));
    server.wait_for("vllm:num_requests_running", 0.0);
    let started = Instant::now();
    while server.post("/v1/completions", r#"{"prompt": "a", "max_tokens": 1}"#).status != 200 {
        assert!(started.elapsed() < Duration::from_secs(60));
    }
}

#[test]
fn sigterm_lets_running_requests_end() {
    let mut server = Server::start(&[]);
    let body = r#"{"prompt": "Once", "max_tokens": 300, "ignore_eos": true, "stream": true}"#;
    let mut stream = server.begin("/v1/completions", body);
    server.terminate();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("the rest of the stream");
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert!(rest.contains("\"finish_reason\":\"length\""), "{rest}");
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn the_grace_time_ends_and_so_does_a_request() {
    let mut server = Server::start(&["-c", "4096", "--grace", "1"]);
    let _stream = server.begin("/v1/completions", LONG);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));

    let server = Server::start(&["-c", "4096", "--request-timeout", "1"]);
    let whole = LONG.replace("\"stream\": true", "\"stream\": false");
    let answer = server.post("/v1/completions", &whole);
    assert_eq!(answer.status, 504, "{}", answer.body);
    server.wait_for("vllm:num_requests_running", 0.0);
}

#[test]
fn keys_bodies_and_origins_are_checked() {
    let server = Server::start(&["--api-key", "secret", "--max-body", "1000", "--cors", "http://a.example"]);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/v1/models").status, 401);
    let with = |headers: &str| server.send("GET", "/v1/models", headers, "");
    assert_eq!(with("authorization: Bearer wrong\r\n").status, 401);
    assert_eq!(with("authorization: Bearer secret\r\n").status, 200);
    let key = "authorization: Bearer secret\r\n";
    let refused = |path: &str| server.send("POST", path, "", "{}").json();
    assert!(refused("/api/chat")["error"].is_string(), "in the form of Ollama");
    assert_eq!(refused("/v1/messages")["error"]["type"], "authentication_error", "in the form of Anthropic");
    assert_eq!(refused("/v1/messages")["type"], "error");
    let large = format!("{{\"prompt\": \"{}\"}}", "a".repeat(2000));
    assert_eq!(server.send("POST", "/v1/completions", key, &large).status, 413);
    let allowed = with(&format!("{key}origin: http://a.example\r\n"));
    assert!(allowed.headers.contains("access-control-allow-origin: http://a.example"), "{}", allowed.headers);
    let other = with(&format!("{key}origin: http://b.example\r\n"));
    assert!(!other.headers.contains("access-control-allow-origin: http://b"), "{}", other.headers);
}

#[test]
fn a_model_that_does_not_load_fails_its_requests_only() {
    let good = root().join("cli/assets/stories.gguf");
    let dir = tempfile::tempdir().unwrap();
    let bad = dir.path().join("bad.gguf");
    std::fs::write(&bad, b"GGUF and then nothing").unwrap();
    let (good, bad) = (good.to_str().unwrap(), bad.to_str().unwrap());
    let (a, b) = (format!("a={good}"), format!("b={good}"));
    let server = Server::start(&[&a, &b, bad, "--max-loaded-models", "1"]);
    let post = |model: &str| {
        let body = format!("{{\"model\": \"{model}\", \"prompt\": \"Once\", \"max_tokens\": 2}}");
        server.post("/v1/completions", &body)
    };
    let failed = post("bad");
    assert_eq!(failed.status, 500, "{}", failed.body);
    assert!(failed.json()["error"]["message"].as_str().unwrap().contains("cannot be loaded"));
    let loaded = || server.get("/api/ps").json()["models"][0]["name"].clone();
    assert_eq!((post("a").status, loaded()), (200, "a:latest".into()));
    assert_eq!((post("b").status, loaded()), (200, "b:latest".into()), "the least recently used makes room");
    let message = fail(&mut llmrt(["serve", "--port", "0", bad]), 3);
    assert!(message.contains("bad"), "{message}");
    let message = fail(&mut llmrt(["serve", "--port", "0", "nope.gguf"]), 3);
    assert!(message.contains("there is no such file"), "{message}");
}
