//! The routes of Ollama.

use super::client::Server;
use serde_json::{Value, json};

#[test]
fn a_story_streams_in_lines_and_ends_with_times() {
    let server = Server::start(&[]);
    let body = |stream: bool| {
        json!({
            "model": "stories:latest", "prompt": "Once upon a time", "raw": true, "stream": stream,
            "options": { "num_predict": 8, "temperature": 0, "num_gpu": 1 },
        })
        .to_string()
    };
    let lines = server.post("/api/generate", &body(true)).lines();
    let (last, parts) = lines.split_last().unwrap();
    let text: String = parts.iter().map(|part| part["response"].as_str().unwrap()).collect();
    assert_eq!((&last["done"], &last["done_reason"]), (&json!(true), &json!("length")));
    assert_eq!((&last["eval_count"], &last["prompt_eval_count"]), (&json!(8), &json!(5)));
    for time in ["total_duration", "load_duration", "prompt_eval_duration", "eval_duration"] {
        assert!(last[time].is_u64(), "{last}");
    }
    let whole = server.post("/api/generate", &body(false)).json();
    assert_eq!(whole["response"], text);
}

#[test]
fn a_chat_has_messages_and_an_empty_one_loads_or_unloads() {
    let server = Server::start(&[]);
    let post = |body: Value| server.post("/api/chat", &body.to_string());
    let messages = json!([{ "role": "user", "content": "an old owl" }]);
    let options = json!({ "num_predict": 4, "temperature": 0 });
    let chat = json!({ "model": "stories", "messages": messages, "options": options });
    let lines = post(chat).lines();
    let text: String = lines.iter().map(|line| line["message"]["content"].as_str().unwrap()).collect();
    assert!(text.starts_with("Once upon a time, there was an old owl named"), "{text}");

    let loaded = || server.get("/api/ps").json()["models"].as_array().unwrap().len();
    let unload = post(json!({ "model": "stories", "keep_alive": 0 })).json();
    assert_eq!((unload["done_reason"].clone(), loaded()), (json!("unload"), 0));
    let load = post(json!({ "model": "stories", "keep_alive": "5m" })).json();
    assert_eq!((load["done_reason"].clone(), loaded()), (json!("load"), 1));
}

#[test]
fn models_are_listed_and_errors_have_ollamas_form() {
    let server = Server::start(&[]);
    assert_eq!(server.get("/").body, "llmrt is running");
    assert_eq!(server.send("HEAD", "/", "", "").status, 200);
    assert!(server.get("/api/version").json()["version"].is_string());
    let tags = server.get("/api/tags").json();
    assert_eq!(tags["models"][0]["name"], "stories:latest");
    assert_eq!(tags["models"][0]["details"]["format"], "gguf");
    let show = server.post("/api/show", r#"{"model": "stories"}"#).json();
    assert_eq!(show["capabilities"][0], "completion");
    let refused = |path: &str, body: &str, status: u16, expected: &str| {
        let answer = server.post(path, body);
        assert_eq!(answer.status, status, "{}", answer.body);
        let message = answer.json()["error"].as_str().unwrap().to_string();
        assert!(message.contains(expected), "{message}");
    };
    refused("/api/generate", r#"{"model": "x", "prompt": "a"}"#, 404, "does not exist");
    refused("/api/generate", r#"{"model": "stories", "prompt": "a", "format": "json"}"#, 400, "grammars");
    let large = r#"{"model": "stories", "prompt": "a", "options": {"num_ctx": 99999}}"#;
    refused("/api/generate", large, 400, "--ctx 99999");
    refused("/api/embed", "{}", 400, "`model` is missing");
    refused("/api/pull", "{}", 400, "`model` is missing");
    refused("/api/create", r#"{"model": "x", "from": "/etc/passwd", "stream": false}"#, 400, "/etc/passwd");
}

#[test]
fn texts_become_vectors_in_both_forms() {
    let server = Server::start(&[]);
    let post = |path: &str, body: Value| server.post(path, &body.to_string()).json();
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
    };
    let answer = post("/api/embed", json!({ "model": "stories", "input": ["an old owl", "a fox"] }));
    let vectors: Vec<Vec<f64>> = answer["embeddings"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!(vectors.len(), 2);
    let length = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(vectors.iter().all(|v| (length(v) - 1.0).abs() < 1e-6));
    assert!(answer["prompt_eval_count"].as_u64().unwrap() > 4 && answer["total_duration"].is_u64());
    let old =
        numbers(&post("/api/embeddings", json!({ "model": "stories", "prompt": "a fox" }))["embedding"]);
    let near = |(a, b): (&f64, &f64)| (a / length(&old) - b).abs() < 1e-6;
    assert!(old.iter().zip(&vectors[1]).all(near) && old.len() == vectors[1].len());
    assert_eq!(post("/api/embed", json!({ "model": "stories", "input": [] }))["embeddings"], json!([]));
    // Texts that are too long are cut.
    let long = json!({ "model": "stories", "input": "a fox ran ".repeat(400) });
    assert_eq!(post("/api/embed", long)["prompt_eval_count"], 384);
}
