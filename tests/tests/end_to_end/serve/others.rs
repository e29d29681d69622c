//! Anthropic's messages, OpenAI's responses, and the tools of a chat.

use super::client::{Answer, Server};
use serde_json::{Value, json};

/// A template that writes the last message and nothing else.
const CHAT: &str = "{{ messages[-1].content }}";

/// The data of named events.
fn events(answer: &Answer) -> Vec<Value> {
    let data = answer.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|text| serde_json::from_str(text).expect("an event is JSON")).collect()
}

fn texts(events: &[Value], kind: &str, pointer: &str) -> String {
    let of_kind = events.iter().filter(|event| event["type"] == kind);
    of_kind.filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

#[test]
fn anthropics_messages_stream_the_text_of_the_whole_answer() {
    let server = Server::start(&["--chat-template", CHAT]);
    let body = |stream: bool| {
        let messages = json!([{ "role": "user", "content": "Once upon a time" }]);
        json!({ "model": "stories", "max_tokens": 8, "temperature": 0, "messages": messages, "stream": stream })
            .to_string()
    };
    let whole = server.post("/v1/messages", &body(false)).json();
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&json!("message"), &json!("max_tokens")));
    assert_eq!(whole["usage"]["output_tokens"], 8);
    let counted = server.post("/v1/messages/count_tokens", &body(false)).json();
    assert_eq!(counted["input_tokens"], 5);
    let text = whole["content"][0]["text"].as_str().unwrap();
    let events = events(&server.post("/v1/messages", &body(true)));
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["message_start", "content_block_start", "content_block_delta"]);
    assert_eq!(kinds[kinds.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    assert_eq!(texts(&events, "content_block_delta", "/delta/text"), text);
    let refused = server.post("/v1/messages", r#"{"messages": []}"#);
    assert_eq!((refused.status, refused.json()["type"].clone()), (400, json!("error")));
}

#[test]
fn responses_stream_the_text_of_the_whole_answer() {
    let server = Server::start(&["--chat-template", CHAT]);
    let body = |stream: bool| {
        json!({ "input": "Once upon a time", "max_output_tokens": 8, "temperature": 0, "stream": stream })
            .to_string()
    };
    let whole = server.post("/v1/responses", &body(false)).json();
    assert_eq!((&whole["object"], &whole["status"]), (&json!("response"), &json!("incomplete")));
    let text = whole["output"][0]["content"][0]["text"].as_str().unwrap();
    let events = events(&server.post("/v1/responses", &body(true)));
    assert_eq!(events[0]["type"], "response.created");
    assert_eq!(texts(&events, "response.output_text.delta", "/delta"), text);
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], text);
    let numbers: Vec<u64> = events.iter().map(|e| e["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..events.len() as u64).collect::<Vec<_>>());
    let stored = server.post("/v1/responses", r#"{"input": "a", "previous_response_id": "r"}"#);
    assert_eq!(stored.status, 400);
}

#[test]
fn tools_are_passed_to_the_template() {
    let template = "{% for tool in tools %}{{ tool.function.name }} {% endfor %}{{ messages[-1].content }}";
    let server = Server::start(&["--chat-template", template]);
    let rendered = |more: Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/apply-template", &body.to_string()).json()["prompt"].clone()
    };
    let tools = json!([{ "type": "function", "function": { "name": "add" } }]);
    assert_eq!(rendered(json!({ "tools": tools })), "add hi");
    assert_eq!(rendered(json!({ "tools": tools, "tool_choice": "none" })), "hi");
    assert_eq!(rendered(json!({})), "hi");
}

#[test]
fn a_prompt_may_end_without_the_opening_of_an_answer() {
    let template = "{{ messages[0].content }}{% if add_generation_prompt %}:{% endif %}";
    let server = Server::start(&["--chat-template", template]);
    let rendered = |more: Value| {
        let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        server.post("/apply-template", &body.to_string()).json()["prompt"].clone()
    };
    assert_eq!(
        (rendered(json!({})), rendered(json!({ "add_generation_prompt": false }))),
        (json!("hi:"), json!("hi"))
    );
}
