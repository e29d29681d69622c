//! Ids of requests, the log, and what `/props` has of a model.

use super::client::Server;
use llmrt_tests::build::plugin;
use llmrt_tests::fixtures::root;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

const BODY: &str = r#"{"prompt": "a secret prompt", "max_tokens": 5, "ignore_eos": true, "stream": true}"#;

/// The log's lines, once one contains the text: it is written after the answer.
fn lines(log: &Path, text: &str) -> Vec<String> {
    let started = Instant::now();
    loop {
        let written = std::fs::read_to_string(log).expect("a log");
        if written.lines().any(|line| line.contains(text)) {
            return written.lines().map(String::from).collect();
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{text} is not in\n{written}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn every_answer_has_the_id_of_its_request() {
    let server = Server::start(&["--api-key", "secret"]);
    let key = "authorization: Bearer secret\r\n";
    for (path, status) in [("/health", 200), ("/v1/models", 401), ("/nope", 401)] {
        let answer = server.send("GET", path, "x-request-id: mine-1\r\n", "");
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.headers.contains("x-request-id: mine-1"), "{}", answer.headers);
    }
    let stream = server.send("POST", "/v1/completions", &format!("{key}x-request-id: mine-2\r\n"), BODY);
    assert!(stream.headers.contains("x-request-id: mine-2"), "{}", stream.headers);
    let made = server.send("GET", "/health", &format!("x-request-id: {}\r\n", "x".repeat(129)), "");
    assert!(made.headers.contains("x-request-id: req-"), "{}", made.headers);
    assert!(server.get("/health").headers.contains("x-request-id: req-"));
}

#[test]
fn a_line_of_json_per_request_has_its_numbers_and_no_text_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let server = Server::start_logged(&["--log-format", "json", "--log-level", "info"], &log);
    server.send("POST", "/v1/completions", "x-request-id: mine\r\n", BODY);
    server.get("/v1/models/none?key=secret");
    let lines = lines(&log, "/v1/models/none");
    let line = |text: &str| -> Value {
        let line = lines.iter().find(|line| line.contains(text)).expect("the line");
        serde_json::from_str(line).expect("JSON")
    };
    let answered = line("mine");
    assert_eq!((&answered["level"], &answered["message"]), (&json!("INFO"), &json!("answered")));
    let span = &answered["span"];
    assert_eq!(span["path"], "/v1/completions");
    assert_eq!((&span["method"], &span["model"]), (&json!("POST"), &json!("stories")));
    assert_eq!((&span["status"], &span["output_tokens"]), (&json!(200), &json!(5)));
    assert!(span["prompt_tokens"].as_u64().unwrap() > 1, "{span}");
    assert!(span["ttft_ms"].as_f64().unwrap() <= span["duration_ms"].as_f64().unwrap(), "{span}");
    assert_eq!(line("/v1/models/none")["span"]["status"], 404);
    let all = lines.join("\n");
    assert!(!all.contains("secret"), "{all}");
}

#[test]
fn a_client_that_goes_away_is_logged_with_its_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let server = Server::start_logged(&["-c", "4096", "-v"], &log);
    let long = r#"{"prompt": "Once", "max_tokens": 3900, "ignore_eos": true, "stream": true}"#;
    drop(server.begin("/v1/completions", long));
    let lines = lines(&log, "the client went away");
    let line = lines.iter().find(|line| line.contains("the client went away")).unwrap();
    assert!(line.contains("output_tokens=") && !line.contains("output_tokens=0"), "{line}");
}

#[test]
fn the_log_is_quiet_by_default_and_no_line_can_be_forged() {
    let dir = tempfile::tempdir().unwrap();
    let (quiet, log) = (dir.path().join("quiet"), dir.path().join("log"));
    let server = Server::start_logged(&[], &quiet);
    assert_eq!(server.get("/health").status, 200);
    assert_eq!(server.get("/nope").status, 404);
    drop(server);
    assert_eq!(std::fs::read_to_string(&quiet).unwrap(), "");
    let server = Server::start_logged(&["--log-level", "info"], &log);
    server.send("GET", "/\u{9b}2Jx", "x-request-id: a \" INFO b\r\n", "");
    server.get("/last");
    let lines = lines(&log, "/last");
    let is_whole = |line: &String| line.contains("request{id=") && !line.chars().any(char::is_control);
    assert!(lines.iter().all(is_whole), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains(r#"id="a \" INFO b""#)), "{lines:?}");
}

#[test]
fn warnings_of_a_runner_go_to_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let fault = plugin("fault");
    let device = ["--plugin", fault.to_str().unwrap(), "--backend", "fault:sim"];
    let rules = ["fault.wrap=sim", "fault.rule=compute[mul_mat]@9:error:device"];
    let options = rules.iter().flat_map(|rule| ["--plugin-option", rule]);
    let flags: Vec<&str> = device.into_iter().chain(options).chain(["--log-format", "json"]).collect();
    let server = Server::start_logged(&flags, &log);
    let answer =
        server.post("/v1/completions", r#"{"prompt": "Once", "max_tokens": 50, "ignore_eos": true}"#);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let lines = lines(&log, "is not used any more");
    let line: Value = serde_json::from_str(lines.last().unwrap()).expect("JSON");
    assert_eq!(line["level"], "WARN", "{line}");
    let devices = server.get("/props").json()["placement"]["devices"].clone();
    assert_eq!(devices.as_array().unwrap().len(), 1, "{devices}");
    assert_eq!(devices[0]["device"], "cpu");
}

#[test]
fn props_describe_a_model_without_loading_it() {
    let file = root().join("cli/assets/stories.gguf");
    let [first, second] = ["stories", "a b"].map(|name| format!("{name}={}", file.display()));
    let server = Server::start(&[&first, &second]);
    let first = server.get("/props").json();
    assert_eq!((&first["model_alias"], &first["is_loaded"]), (&json!("stories"), &json!(true)));
    let second = server.get("/props?model=a%20b").json();
    assert_eq!((&second["model_alias"], &second["is_loaded"]), (&json!("a b"), &json!(false)), "{second}");
    assert_eq!((&second["placement"], &second["total_slots"]), (&Value::Null, &json!(8)));
    let loaded = server.get("/api/ps").json();
    assert_eq!(loaded["models"].as_array().unwrap().len(), 1, "{loaded}");
    assert_eq!(server.get("/props?model=none").status, 404);
    assert_eq!(server.post("/v1/completions", r#"{"prompt": "Once", "max_tokens": 2}"#).status, 200);
    let placed = server.get("/props?model=stories").json()["placement"].clone();
    assert_eq!(placed["devices"][0]["device"], "cpu");
    assert!(placed["devices"][0]["n_nodes"].as_u64().unwrap() > 10, "{placed}");
    assert_eq!(placed["fallbacks"], json!([]));
}
