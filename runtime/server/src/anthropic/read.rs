//! Anthropic's request as a request of the engine and a chat in OpenAI's form, which templates read.

use crate::error::ApiError;
use crate::fields::{Fields, read};
use crate::prompts::Chat;
use crate::sampling;
use llmrt::engine::Request;
use serde_json::{Map, Value, json};

/// The request and its messages.
pub fn call(fields: &Fields) -> Result<(Request, Chat), ApiError> {
    let mut openai = Map::new();
    for name in ["temperature", "top_p", "top_k"] {
        fields.value(name).into_iter().for_each(|value| drop(openai.insert(name.into(), value.clone())));
    }
    let mut request = sampling::request(&Fields(openai))?;
    request.max_tokens = Some(fields.require("max_tokens")?);
    request.stop = fields.get_or("stop_sequences", Vec::new())?;
    Ok((request, chat(fields)?))
}

/// The messages, with the tools.
pub fn chat(fields: &Fields) -> Result<Chat, ApiError> {
    let mut messages = Vec::new();
    if let Some(system) = fields.value("system") {
        messages.push(json!({ "role": "system", "content": text("system", system)? }));
    }
    for (i, value) in fields.require::<Vec<Value>>("messages")?.iter().enumerate() {
        messages.extend(message(&format!("messages[{i}]"), value)?);
    }
    let mut openai = Map::new();
    openai.insert("messages".into(), messages.into());
    openai.insert("tools".into(), tools(fields)?.into());
    openai.insert("tool_choice".into(), tool_choice(fields)?);
    let mut chat = Chat::read(&Fields(openai))?;
    if let Some(thinking) = fields.value("thinking") {
        let is_enabled = thinking.get("type").and_then(Value::as_str) != Some("disabled");
        chat.extra.insert("enable_thinking".into(), is_enabled.into());
    }
    Ok(chat)
}

/// A message, which may be several in OpenAI's form: results of tools have a role of their own there.
fn message(name: &str, value: &Value) -> Result<Vec<Value>, ApiError> {
    let role: String = read(&format!("{name}.role"), value.get("role").unwrap_or(&Value::Null))?;
    let name = format!("{name}.content");
    let blocks = match value.get("content") {
        Some(Value::Array(blocks)) => blocks,
        other => {
            let content: String = read(&name, other.unwrap_or(&Value::Null))?;
            return Ok(vec![json!({ "role": role, "content": content })]);
        }
    };
    let (mut messages, mut texts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for block in blocks {
        match block.get("type").and_then(Value::as_str) {
            Some("text") => texts.push(text(&name, &json!([block]))?),
            Some("thinking" | "redacted_thinking") => {}
            Some("tool_use") => calls.push(json!({
                "id": block["id"], "type": "function",
                "function": { "name": block["name"], "arguments": block["input"] },
            })),
            Some("tool_result") => messages.push(json!({
                "role": "tool", "tool_call_id": block["tool_use_id"],
                "content": text(&name, block.get("content").unwrap_or(&json!("")))?,
            })),
            other => {
                return Err(ApiError::unsupported(
                    &name,
                    &format!("there is a block of type {other:?}; send text"),
                ));
            }
        }
    }
    if !texts.is_empty() || !calls.is_empty() {
        let mut message = json!({ "role": role, "content": texts.join("\n") });
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        messages.push(message);
    }
    Ok(messages)
}

/// A text, or blocks of text.
fn text(name: &str, value: &Value) -> Result<String, ApiError> {
    let Value::Array(blocks) = value else { return read(name, value) };
    let of = |block: &Value| match block.get("type").and_then(Value::as_str) {
        Some("text") => read::<String>(name, block.get("text").unwrap_or(&Value::Null)),
        other => Err(ApiError::unsupported(name, &format!("there is a block of type {other:?}; send text"))),
    };
    Ok(blocks.iter().map(of).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

/// Tools in OpenAI's form.
fn tools(fields: &Fields) -> Result<Vec<Value>, ApiError> {
    let tools: Vec<Value> = fields.get_or("tools", Vec::new())?;
    let of = |tool: &Value| {
        let schema = tool.get("input_schema").ok_or_else(|| {
            ApiError::unsupported("tools", "a tool has no input_schema; tools that servers run are not there")
        })?;
        let function = json!({
            "name": tool["name"], "description": tool.get("description").unwrap_or(&json!("")), "parameters": schema,
        });
        Ok(json!({ "type": "function", "function": function }))
    };
    tools.iter().map(of).collect()
}

/// `tool_choice` in OpenAI's form.
fn tool_choice(fields: &Fields) -> Result<Value, ApiError> {
    let Some(choice) = fields.value("tool_choice") else { return Ok(Value::Null) };
    Ok(match choice.get("type").and_then(Value::as_str) {
        Some("auto") => "auto".into(),
        Some("none") => "none".into(),
        _ => "required".into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<(Request, Chat), ApiError> {
        call(&Fields::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn blocks_become_messages_that_templates_read() {
        let text = r#"{"max_tokens": 5, "stop_sequences": ["x"], "top_k": 3,
            "system": [{"type": "text", "text": "s"}],
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [{"type": "text", "text": "b"}, {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "2"}, {"type": "text", "text": "c"}]}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}]}"#;
        let (request, chat) = of(text).unwrap();
        assert_eq!((request.max_tokens, request.stop), (Some(5), vec!["x".to_string()]));
        let roles: Vec<&str> = chat.messages.iter().map(|m| m["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "user"]);
        assert_eq!(chat.messages[2]["tool_calls"][0]["function"]["arguments"]["x"], 1);
        assert_eq!(chat.messages[3]["content"], "2");
        assert_eq!(chat.extra["tools"][0]["function"]["name"], "f");
    }

    #[test]
    fn what_is_missing_or_not_supported_is_named() {
        let refused = |text: &str| of(text).unwrap_err().param.unwrap();
        assert_eq!(refused(r#"{"messages": [{"role": "user", "content": "a"}]}"#), "max_tokens");
        let image = r#"{"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "image"}]}]}"#;
        assert_eq!(refused(image), "messages[0].content");
        let any = r#"{"max_tokens": 1, "messages": [{"role": "user", "content": "a"}],
            "tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "any"}}"#;
        assert_eq!(refused(any), "tool_choice");
    }
}
