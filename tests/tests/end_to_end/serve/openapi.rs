//! The published document beside the router, and errors in the form of their route.

use super::client::Server;
use serde_json::{Value, json};

#[test]
fn every_documented_operation_has_a_route() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start_with(&[], &[("LLMRT_MODELS", dir.path())]);
    let document = server.get("/openapi.json");
    assert!(document.headers.contains("content-type: application/json"), "{}", document.headers);
    let document = document.json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, item) in document["paths"].as_object().expect("paths") {
        let place = path.replace("{digest}", &format!("sha256-{}", "0".repeat(64)));
        let place = place.replace("{id}", "stories").replace("{file}", "main.js");
        for (method, operation) in item.as_object().expect("an item") {
            let answer = server.send(&method.to_uppercase(), &place, "", "");
            let is_routed = answer.status != 405 && !answer.body.contains("there is no ");
            assert!(is_routed || method == "head", "{method} {path}: {} {}", answer.status, answer.body);
            let known = operation["responses"].get(answer.status.to_string());
            assert!(known.is_some(), "{method} {path}: {} is not documented: {}", answer.status, answer.body);
        }
    }
}

/// The error of a request, without its texts.
fn form(server: &Server, method: &str, path: &str) -> (u16, Value) {
    let answer = server.send(method, path, "", "");
    let mut body = answer.json();
    for at in ["/error/message", "/error"] {
        if let Some(text) = body.pointer_mut(at).filter(|value| value.is_string()) {
            assert!(!text.as_str().unwrap_or_default().is_empty(), "{path}");
            *text = "…".into();
        }
    }
    (answer.status, body)
}

#[test]
fn errors_of_the_router_have_the_form_of_their_route() {
    let server = Server::start(&[]);
    let openai = |kind: &str, code: Value| json!({ "error": { "message": "…", "type": kind, "param": null, "code": code } });
    let invalid = || openai("invalid_request_error", Value::Null);
    let ollama = || json!({ "error": "…" });
    let anthropic = json!({ "type": "error", "error": { "type": "invalid_request_error", "message": "…" } });
    assert_eq!(form(&server, "PUT", "/v1/completions"), (405, invalid()));
    assert_eq!(form(&server, "PUT", "/assets/main.js"), (405, invalid()));
    assert_eq!(form(&server, "GET", "/assets/none.js"), (404, invalid()));
    assert_eq!(form(&server, "GET", "/v1/models/%ff"), (400, invalid()));
    assert_eq!(form(&server, "GET", "/none"), (404, openai("invalid_request_error", "not_found".into())));
    assert_eq!(form(&server, "GET", "/api/generate"), (405, ollama()));
    assert_eq!(form(&server, "POST", "/api/blobs/%ff"), (400, ollama()));
    assert_eq!(form(&server, "GET", "/api/none"), (404, ollama()));
    assert_eq!(form(&server, "GET", "/v1/messages"), (405, anthropic));

    let server = Server::start(&["--api-key", "k"]);
    assert_eq!(form(&server, "GET", "/api/tags"), (401, ollama()));
    assert_eq!(
        form(&server, "GET", "/v1/models"),
        (401, openai("authentication_error", "invalid_api_key".into()))
    );
}

#[test]
fn values_at_the_edges_are_refused_or_harmless() {
    let server = Server::start(&["-c", "256"]);
    let empty = server.post("/v1/completions", r#"{"prompt": "a", "bad_words": [""]}"#);
    assert_eq!((empty.status, &empty.json()["error"]["param"]), (400, &json!("bad_words")), "{}", empty.body);
    // Longer than dates are.
    let body = r#"{"model": "stories", "keep_alive": "18446744073709549568"}"#;
    assert_eq!(server.post("/api/generate", body).status, 200);
    assert_eq!(server.get("/api/ps").status, 200);
    let short = "POST /v1/completions HTTP/1.0\r\ncontent-length: 9\r\n\r\n{\"";
    let answer = server.exchange(short);
    assert!(answer.starts_with("HTTP/1.0 400") && answer.contains("the body ended early"), "{answer}");
}
