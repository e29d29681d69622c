//! The conversations that are rendered, as bodies of `POST /apply-template`.

use serde_json::{Value, json};

/// A conversation by name.
pub struct Conversation {
    pub name: &'static str,
    pub body: Value,
}

/// One of each kind: with and without a system message, tools, calls, reasoning, an answer to come.
pub fn conversations() -> Vec<Conversation> {
    let system = || json!({ "role": "system", "content": "You answer in one sentence." });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let answer = |text: &str| json!({ "role": "assistant", "content": text });
    let thought = |mut message: Value| {
        message["reasoning_content"] = json!("This needs the weather.\nI look it up.");
        message
    };
    let call = || calls(&[("call00001", "weather", r#"{"city":"Zürich","days":2,"units":["C","\"F\""]}"#)]);
    let two = || {
        calls(&[
            ("call00001", "weather", r#"{"city":"Paris"}"#),
            ("call00002", "weather", r#"{"city":"Rome","days":1}"#),
        ])
    };
    let result = |id: &str, text: &str| json!({ "role": "tool", "tool_call_id": id, "name": "weather", "content": text });
    let with_tools = |messages: Value| json!({ "messages": messages, "tools": tools() });
    let question = || user("What is the weather in Zürich?");

    let all = [
        ("user", json!({ "messages": [user("Hello!")] })),
        ("system", json!({ "messages": [system(), user("Hello!")] })),
        (
            "turns",
            json!({ "messages": [system(), user("Hi"), answer("Hello. "), user("2 < 3 & 4 > 3?"), answer("Yes."), user(" Why?\n")] }),
        ),
        ("closed", json!({ "messages": [user("Hi"), answer("Hello.")], "add_generation_prompt": false })),
        ("tools", with_tools(json!([system(), question()]))),
        ("tools alone", with_tools(json!([question()]))),
        (
            "call",
            with_tools(json!([system(), question(), call(), result("call00001", r#"{"sky": "clear"}"#)])),
        ),
        (
            "answered call",
            with_tools(json!([
                question(),
                call(),
                result("call00001", "clear"),
                answer("It is clear."),
                user("Thanks")
            ])),
        ),
        (
            "two calls",
            with_tools(json!([question(), two(), result("call00001", "clear"), result("call00002", "rain")])),
        ),
        ("reasoning", json!({ "messages": [question(), thought(answer("It is clear.")), user("Thanks")] })),
        (
            "reasoning before a call",
            with_tools(json!([question(), thought(call()), result("call00001", "clear")])),
        ),
        (
            "no thinking",
            json!({ "messages": [user("Hello!")], "chat_template_kwargs": { "enable_thinking": false } }),
        ),
    ];
    all.into_iter().map(|(name, body)| Conversation { name, body: with_thinking(body) }).collect()
}

/// With what llama.cpp's server sets if nothing is given, and `llmrt serve` leaves to the template.
fn with_thinking(mut body: Value) -> Value {
    if body.get("chat_template_kwargs").is_none() {
        body["chat_template_kwargs"] = json!({ "enable_thinking": true });
    }
    body
}

/// A message of the assistant that calls functions, each by id, name and arguments.
fn calls(calls: &[(&str, &str, &str)]) -> Value {
    let call = |(id, name, arguments): &(&str, &str, &str)| json!({ "id": id, "type": "function", "function": { "name": name, "arguments": arguments } });
    json!({ "role": "assistant", "content": "", "tool_calls": calls.iter().map(call).collect::<Vec<_>>() })
}

fn tools() -> Value {
    let weather = json!({
        "name": "weather",
        "description": "The weather of the next days.\nIn \"one\" city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": { "type": "string", "description": "The city's name" },
                "days": { "type": "integer", "description": "How many", "default": 1 },
                "units": { "type": "array", "items": { "type": "string", "enum": ["C", "F"] } },
            },
            "required": ["city"],
        },
    });
    let time = json!({
        "name": "time",
        "description": "The time.",
        "parameters": { "type": "object", "properties": {} },
    });
    [weather, time].into_iter().map(|function| json!({ "type": "function", "function": function })).collect()
}
