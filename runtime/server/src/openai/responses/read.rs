//! The items of a request as a request of the engine and a chat, which templates read.

use crate::error::ApiError;
use crate::fields::{Fields, read};
use crate::prompts::Chat;
use crate::sampling::{self, NO_GRAMMARS};
use llmrt::engine::Request;
use serde_json::{Map, Value, json};

/// Fields that would change the response and are not supported.
const REFUSED: [(&str, &str); 5] = [
    ("previous_response_id", "responses are not stored; send the conversation as `input`"),
    ("conversation", "conversations are not stored; send the messages as `input`"),
    ("background", "wait for the response, or stream it"),
    ("prompt", "send `instructions` and `input`"),
    ("max_tool_calls", "leave it out"),
];

/// The request and its messages.
pub fn call(fields: &Fields) -> Result<(Request, Chat), ApiError> {
    fields.refuse(&REFUSED)?;
    if let Some(format) = fields.value("text").and_then(|text| text.get("format"))
        && format.get("type").and_then(Value::as_str) != Some("text")
    {
        return Err(ApiError::unsupported("text.format", NO_GRAMMARS));
    }
    let mut openai = fields.0.clone();
    // Names of this route, which mean something else elsewhere.
    for name in ["n", "stop", "prompt_logprobs", "stream", "tools", "messages"] {
        openai.remove(name);
    }
    let mut request = sampling::request(&Fields(openai.clone()))?;
    request.max_tokens = sampling::max_tokens(fields, &["max_output_tokens"], None)?;
    openai.insert("messages".into(), messages(fields)?.into());
    openai.insert("tools".into(), tools(fields)?.into());
    let mut chat = Chat::read(&Fields(openai))?;
    if let Some(effort) = fields.value("reasoning").and_then(|reasoning| reasoning.get("effort")) {
        chat.extra.insert("reasoning_effort".into(), effort.clone());
    }
    Ok((request, chat))
}

fn messages(fields: &Fields) -> Result<Vec<Value>, ApiError> {
    let system = fields.get::<String>("instructions")?;
    let mut messages: Vec<Value> =
        system.into_iter().map(|text| json!({ "role": "system", "content": text })).collect();
    match fields.value("input") {
        Some(Value::Array(items)) => {
            for (i, item) in items.iter().enumerate() {
                add(&format!("input[{i}]"), item, &mut messages)?;
            }
        }
        _ => messages.push(json!({ "role": "user", "content": fields.require::<String>("input")? })),
    }
    Ok(messages)
}

/// An item, as a message of its own or as a part of the one before it.
fn add(name: &str, item: &Value, messages: &mut Vec<Value>) -> Result<(), ApiError> {
    match item.get("type").and_then(Value::as_str) {
        None | Some("message") => {
            let message: Map<String, Value> = read(name, item)?;
            let field = |name: &str| message.get(name).cloned().unwrap_or(Value::Null);
            messages.push(json!({ "role": field("role"), "content": field("content") }));
        }
        Some("function_call") => {
            let function = json!({ "name": item["name"], "arguments": item["arguments"] });
            let call = json!({ "id": item["call_id"], "type": "function", "function": function });
            match messages.last_mut().filter(|last| last["role"] == "assistant") {
                Some(last) => match last.get_mut("tool_calls").and_then(Value::as_array_mut) {
                    Some(calls) => calls.push(call),
                    None => last["tool_calls"] = json!([call]),
                },
                None => messages.push(json!({ "role": "assistant", "content": "", "tool_calls": [call] })),
            }
        }
        Some("function_call_output") => messages.push(json!({
            "role": "tool", "tool_call_id": item["call_id"], "content": item["output"],
        })),
        Some("reasoning") => {}
        Some(other) => {
            return Err(ApiError::unsupported(name, &format!("there is an item of type {other}; send text")));
        }
    }
    Ok(())
}

/// Tools with `function`, as chats have them.
fn tools(fields: &Fields) -> Result<Vec<Value>, ApiError> {
    let tools: Vec<Value> = fields.get_or("tools", Vec::new())?;
    let of = |tool: &Value| match tool.get("type").and_then(Value::as_str) {
        Some("function") => {
            let mut function = read::<Map<String, Value>>("tools", tool)?;
            function.remove("type");
            Ok(json!({ "type": "function", "function": function }))
        }
        other => {
            let remedy = format!("there is a tool of type {other:?}; only functions are called");
            Err(ApiError::unsupported("tools", &remedy))
        }
    };
    tools.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(Request, Chat), ApiError> {
        call(&Fields::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn items_become_messages_that_templates_read() {
        let text = r#"{"instructions": "s", "max_output_tokens": 5, "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"x\": 1}"},
            {"type": "function_call_output", "call_id": "1", "output": "2"}],
            "tools": [{"type": "function", "name": "f", "parameters": {}}]}"#;
        let (request, chat) = of(text).unwrap();
        assert_eq!(request.max_tokens, Some(5));
        let roles: Vec<&str> = chat.messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool"]);
        assert_eq!(chat.messages[1]["content"], "a");
        assert_eq!(chat.messages[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
        assert_eq!(chat.extra["tools"][0]["function"]["name"], "f");
        assert_eq!(of(r#"{"input": "hi"}"#).unwrap().1.messages[0]["content"], "hi");
    }

    #[test]
    fn what_needs_a_memory_or_a_grammar_is_refused() {
        let refused = |text: &str| of(text).unwrap_err().param.unwrap();
        assert_eq!(refused(r#"{"input": "a", "previous_response_id": "r"}"#), "previous_response_id");
        assert_eq!(refused(r#"{"input": "a", "text": {"format": {"type": "json_schema"}}}"#), "text.format");
        assert_eq!(refused(r#"{"input": "a", "tools": [{"type": "web_search"}]}"#), "tools");
        assert_eq!(refused("{}"), "input");
    }
}
