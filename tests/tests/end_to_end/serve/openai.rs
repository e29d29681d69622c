//! The routes of OpenAI, with vLLM's extras.

use super::client::Server;
use llmrt_tests::build::{llmrt, succeed};
use serde_json::{Value, json};

/// The text of a choice, streamed.
fn streamed(events: &[Value], index: usize, pointer: &str) -> String {
    let choices = events.iter().flat_map(|event| event["choices"].as_array().cloned().unwrap_or_default());
    let texts = choices.filter(|choice| choice["index"] == index);
    texts.filter_map(|choice| choice.pointer(pointer)?.as_str().map(String::from)).collect()
}

#[test]
fn a_completion_is_the_text_of_run_streamed_or_not() {
    let out = succeed(&mut llmrt(["run", "--raw", "--temp", "0", "-n", "24", "-p", "Once upon a time"]));
    let expected = String::from_utf8_lossy(&out.stdout).trim_end_matches('\n').to_string();
    let server = Server::start(&[]);
    let body = |stream: bool| {
        json!({
            "model": "stories", "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0,
            "stream": stream, "stream_options": { "include_usage": true },
        })
        .to_string()
    };
    let answer = server.post("/v1/completions", &body(false)).json();
    assert_eq!(answer["choices"][0]["text"], expected.as_str());
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 24);

    let stream = server.post("/v1/completions", &body(true));
    assert!(stream.headers.contains("content-type: text/event-stream"), "{}", stream.headers);
    let events = stream.events();
    assert_eq!(streamed(&events, 0, "/text"), expected);
    let usage = &events.last().unwrap()["usage"];
    assert_eq!(usage["total_tokens"], answer["usage"]["total_tokens"]);
    assert_eq!(events[0]["usage"], Value::Null);
    server.wait_for("vllm:num_requests_running", 0.0);
    assert!(server.metric("vllm:generation_tokens_total") >= 48.0);
    assert!(server.metric("vllm:time_to_first_token_seconds_count") >= 2.0);
}

#[test]
fn a_chat_renders_the_template_and_streams_the_same_text() {
    let server = Server::start(&[]);
    let body = |stream: bool| {
        json!({
            "messages": [{ "role": "user", "content": [{ "type": "text", "text": "a brave dragon" }] }],
            "max_tokens": 12, "temperature": 0, "stream": stream, "logprobs": true, "top_logprobs": 2,
        })
        .to_string()
    };
    let answer = server.post("/v1/chat/completions", &body(false)).json();
    let text = answer["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(text.starts_with("Once upon a time, there was a brave dragon named"), "{text}");
    let logprobs = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(logprobs.len(), 12);
    assert_eq!(logprobs[0]["top_logprobs"].as_array().unwrap().len(), 2);
    assert_eq!(logprobs[0]["token"], logprobs[0]["top_logprobs"][0]["token"], "temperature 0");

    let events = server.post("/v1/chat/completions", &body(true)).events();
    assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(streamed(&events, 0, "/delta/content"), text);
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    let template = server.post("/apply-template", &body(false)).json();
    assert_eq!(template["prompt"], "Once upon a time, there was a brave dragon named");
}

#[test]
fn several_texts_of_several_prompts_and_beams() {
    let server = Server::start(&[]);
    let post = |body: Value| server.post("/v1/completions", &body.to_string()).json();
    let answer = post(json!({ "prompt": ["Once", "The fox"], "n": 2, "max_tokens": 3, "seed": 7 }));
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.iter().map(|c| c["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let again = post(json!({ "prompt": ["Once", "The fox"], "n": 2, "max_tokens": 3, "seed": 7 }));
    assert_eq!(again["choices"], answer["choices"], "a seed repeats the texts");

    let beams = post(json!({ "prompt": "Once", "n": 2, "use_beam_search": true, "max_tokens": 4 }));
    assert_eq!(beams["choices"].as_array().unwrap().len(), 2);
    let best = post(json!({ "prompt": "Once", "best_of": 3, "max_tokens": 4 }));
    assert_eq!(best["choices"].as_array().unwrap().len(), 1);
}

#[test]
fn token_ids_echo_and_stops() {
    let server = Server::start(&[]);
    let post = |body: Value| server.post("/v1/completions", &body.to_string()).json();
    let ids = server.post("/tokenize", r#"{"content": "Once upon a time", "add_special": true}"#).json();
    let text = server.post("/detokenize", &ids.to_string()).json();
    assert!(text["content"].as_str().unwrap().ends_with("Once upon a time"), "{text}");
    let by_ids = post(json!({ "prompt": ids["tokens"], "temperature": 0, "max_tokens": 8 }));
    let by_text =
        post(json!({ "prompt": "Once upon a time", "temperature": 0, "max_tokens": 8, "echo": true }));
    let continued = by_ids["choices"][0]["text"].as_str().unwrap();
    assert_eq!(by_text["choices"][0]["text"], format!("Once upon a time{continued}"));

    let stop = continued.split_whitespace().nth(1).unwrap();
    let stopped = post(json!({ "prompt": ids["tokens"], "temperature": 0, "max_tokens": 8, "stop": stop }));
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    assert_eq!(stopped["choices"][0]["text"].as_str().unwrap(), continued.split(stop).next().unwrap());

    let scored = post(json!({ "prompt": "Once upon", "max_tokens": 0, "echo": true, "logprobs": 1 }));
    let logprobs = &scored["choices"][0]["logprobs"];
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    assert!(logprobs["token_logprobs"][1].as_f64().unwrap() < 0.0);
}

#[test]
fn errors_have_openais_form_and_name_the_field() {
    let server = Server::start(&[]);
    let refused = |path: &str, body: &str, status: u16, param: Value| {
        let answer = server.post(path, body);
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
        let error = answer.json()["error"].clone();
        assert_eq!(error["param"], param, "{body}: {error}");
        error["message"].as_str().unwrap().to_string()
    };
    let completions = "/v1/completions";
    let message = refused(completions, r#"{"prompt": "a", "model": "x"}"#, 404, json!("model"));
    assert!(message.contains("there is `stories`"), "{message}");
    refused(completions, "{", 400, Value::Null);
    refused(completions, "{}", 400, json!("prompt"));
    refused(completions, r#"{"prompt": "a", "temperature": "hot"}"#, 400, json!("temperature"));
    refused(completions, r#"{"prompt": "a", "top_p": 2}"#, 400, json!("top_p"));
    refused(completions, r#"{"prompt": [1, 99999999]}"#, 400, json!("prompt"));
    refused(completions, r#"{"prompt": "a", "n": 99}"#, 400, json!("n"));
    refused(completions, r#"{"prompt": "a", "suffix": "b"}"#, 400, json!("suffix"));
    let format =
        r#"{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_object"}}"#;
    let message = refused("/v1/chat/completions", format, 400, json!("response_format"));
    assert!(message.contains("grammars are not supported"), "{message}");
    let long = json!({ "prompt": "a fox ran ".repeat(400) }).to_string();
    let message = refused(completions, &long, 400, Value::Null);
    assert!(message.contains("the context holds"), "{message}");
    assert_eq!(server.get("/nope").status, 404);
    assert_eq!(server.get(completions).status, 405);
    assert_eq!(server.get("/v1/models/stories").json()["id"], "stories");
    assert_eq!(server.get("/v1/models/x").status, 404);
    refused("/v1/embeddings", "{}", 400, json!("input"));
    refused("/v1/embeddings", r#"{"input": "a", "dimensions": 9999}"#, 400, json!("dimensions"));
    let message = refused("/v1/rerank", r#"{"query": "a", "documents": ["b"]}"#, 400, Value::Null);
    assert!(message.contains("load a reranker"), "{message}");
    assert_eq!(server.post(completions, r#"{"prompt": "a", "max_tokens": 1}"#).status, 200, "still alive");
}

#[test]
fn texts_become_vectors_beside_texts_that_are_generated() {
    let server = Server::start(&["--parallel", "4"]);
    let embed = |body: Value| server.post("/v1/embeddings", &body.to_string()).json();
    let one = embed(json!({ "input": "an old owl" }));
    assert_eq!((&one["object"], &one["data"][0]["object"]), (&json!("list"), &json!("embedding")));
    let several = embed(json!({ "input": ["a fox", "an old owl"] }));
    assert_eq!(several["data"][1]["embedding"], one["data"][0]["embedding"]);
    assert_eq!(several["data"][1]["index"], 1);
    assert!(several["usage"]["prompt_tokens"].as_u64() > one["usage"]["prompt_tokens"].as_u64());
    let short = embed(json!({ "input": "an old owl", "dimensions": 8 }));
    assert_eq!(short["data"][0]["embedding"].as_array().unwrap().len(), 8);
    let base64 = embed(json!({ "input": "an old owl", "encoding_format": "base64" }));
    let n = one["data"][0]["embedding"].as_array().unwrap().len();
    assert_eq!(base64["data"][0]["embedding"].as_str().unwrap().len(), (4 * n).div_ceil(3) * 4);
    // Texts and vectors share steps.
    let completion = json!({ "prompt": "Once upon a time", "max_tokens": 24, "temperature": 0 }).to_string();
    let alone = server.post("/v1/completions", &completion).json()["choices"][0]["text"].clone();
    std::thread::scope(|scope| {
        let generated = scope.spawn(|| server.post("/v1/completions", &completion).json());
        for _ in 0..4 {
            assert_eq!(embed(json!({ "input": "an old owl" }))["data"], one["data"]);
        }
        assert_eq!(generated.join().unwrap()["choices"][0]["text"], alone);
    });
}

/// What of an event is the same when the stream is repeated.
fn content(event: &Value) -> Value {
    let mut event = event.clone();
    for name in ["id", "created"] {
        event.as_object_mut().unwrap().remove(name);
    }
    event
}

#[test]
fn a_stream_is_resumed_after_tokens_that_are_known() {
    let server = Server::start(&[]);
    let completion = json!({
        "prompt": "Once upon a time", "max_tokens": 24, "seed": 7, "stop": ["zzz"], "frequency_penalty": 0.5,
    });
    let chat =
        json!({ "messages": [{ "role": "user", "content": "a brave dragon" }], "max_tokens": 16, "seed": 3 });
    for (path, mut body) in [("/v1/completions", completion), ("/v1/chat/completions", chat)] {
        body["return_token_ids"] = true.into();
        let whole = server.post(path, &body.to_string()).json();
        body["stream"] = true.into();
        let events = server.post(path, &body.to_string()).events();
        let ids: Vec<u64> = events
            .iter()
            .filter_map(|event| event["choices"][0]["token_ids"].as_array())
            .flat_map(|ids| ids.iter().filter_map(Value::as_u64))
            .collect();
        assert_eq!(json!(ids), whole["choices"][0]["token_ids"], "{path}");
        let prompt = whole.get("prompt_token_ids").or(whole["choices"][0].get("prompt_token_ids"));
        assert!(prompt.unwrap().as_array().unwrap().len() > 3, "{path}");
        for n_known in [1, 9, ids.len()] {
            body["resume_token_ids"] = json!(ids[..n_known]);
            let resumed = server.post(path, &body.to_string()).events();
            let contents = |events: &[Value]| events.iter().map(content).collect::<Vec<_>>();
            assert_eq!(contents(&resumed), contents(&events), "{path}, {n_known} known tokens");
        }
        body["n"] = 2.into();
        let refused = server.post(path, &body.to_string());
        assert_eq!(refused.json()["error"]["param"], "resume_token_ids");
    }
}
