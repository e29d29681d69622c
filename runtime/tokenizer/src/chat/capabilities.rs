//! What a template takes of the forms that messages have, found by rendering small chats, and messages in these forms.

use serde_json::{Value as Json, json};

use crate::error::Result;

/// A word that no template writes by itself.
const MARK: &str = "llmrt-mark";

/// Which forms a template takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Capabilities {
    /// Whether it writes system messages. If not, they go in front of the next message's text.
    pub system: bool,
    /// Whether it writes a content that is a text. If not, contents are lists of parts.
    texts: bool,
    /// Whether it writes arguments of calls that are objects. If not, they are JSON as text.
    objects: bool,
    /// Whether it writes `thinking` rather than `reasoning_content` (gpt-oss).
    thinking: bool,
}

impl Capabilities {
    /// Those of the template that `render` renders, with tools. What it writes in neither form stays as it is.
    pub fn of(render: impl Fn(Vec<Json>) -> Result<String>) -> Capabilities {
        let writes = |messages: Vec<Json>| render(messages).is_ok_and(|text| text.contains(MARK));
        let prefers = |form: Vec<Json>, other: Vec<Json>| writes(form) || !writes(other);
        let user = |content: Json| json!({ "role": "user", "content": content });
        let texts = prefers(vec![user(json!(MARK))], vec![user(parts(MARK))]);
        let content = |text: &str| if texts { json!(text) } else { parts(text) };
        let system = json!({ "role": "system", "content": content(MARK) });
        let call = |arguments: Json| {
            let function = json!({ "name": "f", "arguments": arguments });
            let call = json!({ "id": "call00001", "type": "function", "function": function });
            json!({ "role": "assistant", "content": content(""), "tool_calls": [call] })
        };
        let result =
            || json!({ "role": "tool", "tool_call_id": "call00001", "name": "f", "content": content("!") });
        let thought = |name: &str| {
            let mut call = call(json!({ "a": 1 }));
            call[name] = MARK.into();
            writes(vec![user(content("?")), call, result()])
        };
        let with_call = |arguments: Json| {
            vec![
                user(content("?")),
                call(arguments),
                result(),
                json!({ "role": "assistant", "content": content(".") }),
                user(content("?")),
            ]
        };
        Capabilities {
            system: prefers(vec![system, user(content("?"))], vec![user(content(MARK))]),
            texts,
            thinking: thought("thinking") && !thought("reasoning_content"),
            objects: prefers(
                with_call(json!({ "a": MARK })),
                with_call(json!({ "a": MARK }).to_string().into()),
            ),
        }
    }

    /// Messages in the forms that the template takes.
    pub fn apply(self, mut messages: Vec<Json>) -> Vec<Json> {
        if !self.system {
            messages = without_system(messages);
        }
        for message in &mut messages {
            if self.thinking {
                rename_reasoning(message);
            }
            if let (false, Some(content)) = (self.texts, message.get_mut("content"))
                && let Some(text) = content.as_str()
            {
                *content = parts(text);
            }
            let calls = message.get_mut("tool_calls").and_then(Json::as_array_mut);
            for call in calls.filter(|_| !self.objects).into_iter().flatten() {
                if let Some(arguments) = call.pointer_mut("/function/arguments")
                    && arguments.is_object()
                {
                    *arguments = arguments.to_string().into();
                }
            }
        }
        messages
    }
}

/// `reasoning_content` as `thinking`. A message that calls functions has that or a content, not both.
fn rename_reasoning(message: &mut Json) {
    let has_text = message["content"].as_str().is_some_and(|text| !text.is_empty());
    let Some(fields) = message.as_object_mut() else { return };
    if !(has_text && fields.contains_key("tool_calls") || fields.contains_key("thinking"))
        && let Some(reasoning) = fields.remove("reasoning_content")
    {
        fields.insert("thinking".into(), reasoning);
    }
}

/// A content of one part.
fn parts(text: &str) -> Json {
    json!([{ "type": "text", "text": text }])
}

/// The first message's text in front of the second's, if that is a text and the first is of the system.
fn without_system(mut messages: Vec<Json>) -> Vec<Json> {
    let text = |i: usize| messages.get(i).and_then(|message| message["content"].as_str());
    let (Some(first), Some(second)) = (text(0), text(1)) else { return messages };
    if messages[0]["role"] == "system" {
        messages[1]["content"] = format!("{first}\n{second}").into();
        messages.remove(0);
    }
    messages
}
