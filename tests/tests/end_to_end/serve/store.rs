//! Ollama's routes over a store of models.

use super::client::Server;
use llmrt_tests::build::{llmrt, succeed};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A store with the embedded model as `tales`.
fn store(dir: &Path) -> PathBuf {
    let models = dir.join("models");
    let gguf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/assets/stories.gguf");
    let modelfile = dir.join("Modelfile");
    let text = format!("FROM {}\nPARAMETER temperature 0\nPARAMETER num_predict 6\n", gguf.display());
    std::fs::write(&modelfile, text).expect("a file");
    let mut create = llmrt(["create", "tales", "-f"]);
    succeed(create.arg(&modelfile).env("LLMRT_MODELS", &models));
    models
}

/// A server over that store.
fn server(dir: &Path) -> Server {
    Server::start_with(&[], &[("LLMRT_MODELS", &store(dir))])
}

fn names(server: &Server) -> Vec<Value> {
    let tags = server.get("/api/tags").json();
    tags["models"].as_array().expect("models").iter().map(|model| model["name"].clone()).collect()
}

#[test]
fn a_stored_model_is_loaded_on_demand_with_its_parameters() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = server(dir.path());
    assert!(server.get("/api/ps").json()["models"].as_array().expect("models").is_empty());
    assert!(names(&server).contains(&json!("tales:latest")), "{:?}", names(&server));
    let body = json!({ "model": "tales", "prompt": "Once upon a time", "raw": true, "stream": false });
    let answer = server.post("/api/generate", &body.to_string()).json();
    assert_eq!((&answer["eval_count"], &answer["done_reason"]), (&json!(6), &json!("length")), "{answer}");
    assert_eq!(server.get("/api/ps").json()["models"][0]["name"], "tales:latest");
    // They are the defaults of the other routes too.
    let body = json!({ "model": "tales", "prompt": "Once" });
    assert_eq!(server.post("/v1/completions", &body.to_string()).json()["usage"]["completion_tokens"], 6);
    let body = json!({ "model": "tales", "prompt": "Once", "max_tokens": 2 });
    assert_eq!(server.post("/v1/completions", &body.to_string()).json()["usage"]["completion_tokens"], 2);
    let show = server.post("/api/show", r#"{"model": "tales"}"#).json();
    assert!(show["parameters"].as_str().expect("parameters").contains("num_predict"), "{show}");
}

#[test]
fn stored_models_that_are_named_are_models_of_the_command_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let store = store(dir.path());
    let server = Server::start_with(&["tales", "-m", "sagas=tales"], &[("LLMRT_MODELS", &store)]);
    // Those of -m go first, and the first is loaded.
    assert_eq!(server.get("/api/ps").json()["models"][0]["name"], "sagas:latest");
    assert_eq!(names(&server), ["sagas:latest", "tales:latest"]);
    let n_tokens = |body: Value| {
        let answer = server.post("/v1/completions", &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()["usage"]["completion_tokens"].clone()
    };
    assert_eq!(n_tokens(json!({ "prompt": "Once" })), 6);
    assert_eq!(n_tokens(json!({ "prompt": "Once", "model": "tales" })), 6);
    let loaded = server.get("/api/ps").json()["models"].clone();
    assert_eq!(loaded.as_array().expect("models").len(), 2, "{loaded}");
    let mut wrong = llmrt(["serve", "fables"]);
    let out = wrong.env("LLMRT_MODELS", &store).output().expect("it starts");
    assert!(String::from_utf8_lossy(&out.stderr).contains("no such model in the store"), "{out:?}");
}

#[test]
fn models_are_copied_created_and_deleted() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = server(dir.path());
    let post = |path: &str, body: Value| {
        let answer = server.post(path, &body.to_string());
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    };
    post("/api/copy", json!({ "source": "tales", "destination": "fables" }));
    post(
        "/api/create",
        json!({ "model": "brief", "from": "tales", "parameters": { "num_predict": 2 }, "stream": false }),
    );
    for name in ["tales:latest", "fables:latest", "brief:latest"] {
        assert!(names(&server).contains(&json!(name)), "{name}: {:?}", names(&server));
    }
    let body = json!({ "model": "brief", "prompt": "Once", "raw": true, "stream": false });
    assert_eq!(server.post("/api/generate", &body.to_string()).json()["eval_count"], 2);
    let delete = server.send("DELETE", "/api/delete", "", r#"{"model": "tales"}"#);
    assert_eq!(delete.status, 200, "{}", delete.body);
    assert!(!names(&server).contains(&json!("tales:latest")));
    let gone = server.post("/api/generate", r#"{"model": "tales", "prompt": "a", "stream": false}"#);
    assert_eq!(gone.status, 404, "{}", gone.body);
    assert_eq!(server.send("DELETE", "/api/delete", "", r#"{"model": "../x"}"#).status, 400);
}

#[test]
fn stored_messages_come_after_the_system_message() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = server(dir.path());
    let template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let body = json!({
        "model": "shown", "from": "tales", "template": template, "system": "Be short.", "stream": false,
        "messages": [{ "role": "user", "content": "a cat" }, { "role": "assistant", "content": "It slept." }],
    });
    let created = server.post("/api/create", &body.to_string());
    assert_eq!(created.status, 200, "{}", created.body);
    let prompt = |messages: Value| {
        let body = json!({ "model": "shown", "messages": messages }).to_string();
        server.post("/apply-template", &body).json()["prompt"].as_str().expect("a prompt").to_string()
    };
    let question = json!({ "role": "user", "content": "a dog" });
    let own = "system: Be short.\nuser: a cat\nassistant: It slept.\nuser: a dog\n";
    assert_eq!(prompt(json!([question])), own);
    let given = prompt(json!([{ "role": "system", "content": "Be long." }, question]));
    assert_eq!(given, own.replace("short", "long"));
}

/// The server and the command line have one store, and neither keeps a copy of its list.
#[test]
fn changes_by_the_command_line_and_by_the_server_are_seen_at_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = server(dir.path());
    let shell = |line: &str| {
        let out = succeed(llmrt(line.split(' ')).env("LLMRT_MODELS", dir.path().join("models")));
        String::from_utf8(out.stdout).expect("UTF-8")
    };
    let generate =
        || server.post("/api/generate", r#"{"model": "fables", "prompt": "a", "stream": false}"#).status;
    assert_eq!(generate(), 404);
    shell("cp tales fables");
    assert!(names(&server).contains(&json!("fables:latest")), "{:?}", names(&server));
    assert_eq!(generate(), 200);
    shell("rm fables");
    assert!(!names(&server).contains(&json!("fables:latest")), "{:?}", names(&server));
    assert_eq!(generate(), 404);
    let copied = server.post("/api/copy", r#"{"source": "tales", "destination": "sagas"}"#);
    assert_eq!(copied.status, 200, "{}", copied.body);
    assert!(shell("list").contains("sagas"));
}
