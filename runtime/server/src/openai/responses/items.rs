//! Items of a response's output, and the events with which they grow.

use crate::answer::{Part, ToolCall};
use crate::names;
use serde_json::{Value, json};

/// Items that are done, and the one that is open.
#[derive(Clone, Debug, Default)]
pub struct Items {
    done: Vec<Value>,
    open: Option<Open>,
}

#[derive(Clone, Debug)]
struct Open {
    id: String,
    is_reasoning: bool,
    text: String,
}

impl Open {
    /// The part of the item's content.
    fn content(&self, text: &str) -> Value {
        match self.is_reasoning {
            true => json!({ "type": "reasoning_text", "text": text }),
            false => json!({ "type": "output_text", "text": text, "annotations": [] }),
        }
    }

    fn item(&self, status: &str, content: Vec<Value>) -> Value {
        match self.is_reasoning {
            true => json!({ "type": "reasoning", "id": self.id, "summary": [], "content": content }),
            false => json!({
                "type": "message", "id": self.id, "status": status, "role": "assistant", "content": content,
            }),
        }
    }

    /// An event about its text.
    fn event(&self, index: usize, what: &str, field: &str, value: Value) -> Value {
        let kind = if self.is_reasoning { "reasoning_text" } else { "output_text" };
        let name = match what {
            "delta" | "done" => format!("response.{kind}.{what}"),
            "part_done" => "response.content_part.done".into(),
            _ => "response.content_part.added".into(),
        };
        let mut event =
            json!({ "type": name, "item_id": self.id, "output_index": index, "content_index": 0 });
        event[field] = value;
        event
    }
}

impl Items {
    /// The events of a part.
    pub fn part(&mut self, part: Part) -> Vec<Value> {
        match part {
            Part::Text(text) => self.text(&text, false),
            Part::Reasoning(text) => self.text(&text, true),
            Part::Tool(call) => {
                let mut events = self.end();
                events.extend(self.call(&call));
                events
            }
        }
    }

    /// Items that are done.
    pub fn done(&self) -> Vec<Value> {
        self.done.clone()
    }

    fn text(&mut self, text: &str, is_reasoning: bool) -> Vec<Value> {
        let mut events = Vec::new();
        if self.open.as_ref().is_none_or(|open| open.is_reasoning != is_reasoning) {
            events.extend(self.end());
            let id = names::id(if is_reasoning { "rs_" } else { "msg_" });
            let open = Open { id, is_reasoning, text: String::new() };
            events.push(self.added("added", open.item("in_progress", Vec::new())));
            events.push(open.event(self.done.len(), "added", "part", open.content("")));
            self.open = Some(open);
        }
        let index = self.done.len();
        if let Some(open) = &mut self.open {
            open.text.push_str(text);
            events.push(open.event(index, "delta", "delta", text.into()));
        }
        events
    }

    /// Ends the item that is open.
    pub fn end(&mut self) -> Vec<Value> {
        let Some(open) = self.open.take() else { return Vec::new() };
        let (index, content) = (self.done.len(), open.content(&open.text));
        let item = open.item("completed", vec![content.clone()]);
        let events = vec![
            open.event(index, "done", "text", open.text.as_str().into()),
            open.event(index, "part_done", "part", content),
            self.added("done", item.clone()),
        ];
        self.done.push(item);
        events
    }

    fn call(&mut self, call: &ToolCall) -> Vec<Value> {
        let (id, arguments) = (names::id("fc_"), call.arguments.to_string());
        let item = |status: &str, arguments: &str| {
            json!({
                "type": "function_call", "id": id, "call_id": call.id, "name": call.name,
                "arguments": arguments, "status": status,
            })
        };
        let event = |what: &str, field: &str| {
            let name = format!("response.function_call_arguments.{what}");
            let mut event = json!({ "type": name, "item_id": id, "output_index": self.done.len() });
            event[field] = arguments.as_str().into();
            event
        };
        let done = item("completed", &arguments);
        let events = vec![
            self.added("added", item("in_progress", "")),
            event("delta", "delta"),
            event("done", "arguments"),
            self.added("done", done.clone()),
        ];
        self.done.push(done);
        events
    }

    fn added(&self, what: &str, item: Value) -> Value {
        let name = format!("response.output_item.{what}");
        json!({ "type": name, "output_index": self.done.len(), "item": item })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_added_grow_and_are_done() {
        let mut items = Items::default();
        let call = ToolCall { id: "c".into(), name: "f".into(), arguments: json!({ "x": 1 }) };
        let parts =
            [Part::Reasoning("hm".into()), Part::Text("a".into()), Part::Text("b".into()), Part::Tool(call)];
        let mut events: Vec<Value> = parts.into_iter().flat_map(|part| items.part(part)).collect();
        events.extend(items.end());
        let names: Vec<String> = events
            .iter()
            .map(|e| {
                format!(
                    "{} {}",
                    e["type"].as_str().unwrap().trim_start_matches("response."),
                    e["output_index"]
                )
            })
            .collect();
        let text = |kind: &str, n: usize, n_deltas: usize| {
            let mut names = vec![format!("output_item.added {n}"), format!("content_part.added {n}")];
            names.extend((0..n_deltas).map(|_| format!("{kind}.delta {n}")));
            names.extend(["done", "x"].map(|what| match what {
                "done" => format!("{kind}.done {n}"),
                _ => format!("content_part.done {n}"),
            }));
            names.push(format!("output_item.done {n}"));
            names
        };
        let call = [
            "output_item.added",
            "function_call_arguments.delta",
            "function_call_arguments.done",
            "output_item.done",
        ];
        let call = call.map(|name| format!("{name} 2")).to_vec();
        assert_eq!(names, [text("reasoning_text", 0, 1), text("output_text", 1, 2), call].concat());
        let done = items.done();
        assert_eq!(done[1]["content"][0]["text"], "ab");
        assert_eq!((&done[2]["arguments"], &done[2]["call_id"]), (&json!(r#"{"x":1}"#), &json!("c")));
    }
}
