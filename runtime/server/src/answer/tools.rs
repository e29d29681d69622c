//! Calls of tools as models write them.

use crate::names;
use serde_json::{Value, json};

/// How a family of models writes a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": …}</tool_call>`: Hermes, Qwen.
    Tagged,
    /// `{"name": …, "parameters": …}` and nothing else: Llama 3.
    Json,
}

impl ToolFormat {
    /// The format that a chat template describes to its model.
    pub fn of(template: &str) -> Option<ToolFormat> {
        if template.contains("<tool_call>") {
            return Some(ToolFormat::Tagged);
        }
        template.contains("\"parameters\"").then_some(ToolFormat::Json)
    }
}

/// A call of a tool.
#[derive(Clone, PartialEq, Debug)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// A JSON object.
    pub arguments: Value,
}

impl ToolCall {
    /// One call, or a list of them.
    pub fn parse(text: &str) -> Option<Vec<ToolCall>> {
        match serde_json::from_str(text.trim()).ok()? {
            Value::Array(calls) if !calls.is_empty() => calls.iter().map(ToolCall::of_json).collect(),
            call => Some(vec![ToolCall::of_json(&call)?]),
        }
    }

    fn of_json(value: &Value) -> Option<ToolCall> {
        let name = value.get("name")?.as_str()?.to_string();
        let arguments = value.get("arguments").or_else(|| value.get("parameters"));
        let arguments = match arguments {
            // Some models quote the object.
            Some(Value::String(text)) => serde_json::from_str(text).ok()?,
            Some(value) => value.clone(),
            None => json!({}),
        };
        arguments.is_object().then(|| ToolCall { id: names::id("call_"), name, arguments })
    }

    /// As OpenAI writes it: arguments are text.
    pub fn openai(&self) -> Value {
        let function = json!({ "name": self.name, "arguments": self.arguments.to_string() });
        json!({ "id": self.id, "type": "function", "function": function })
    }

    /// As Ollama writes it: arguments are an object.
    pub fn ollama(&self) -> Value {
        json!({ "function": { "name": self.name, "arguments": self.arguments } })
    }
}
