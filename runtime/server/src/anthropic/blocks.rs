//! Blocks of content, as a list and as events.

use crate::answer::{Part, Parts, ToolCall};
use serde_json::{Value, json};

/// The content of a whole answer.
pub fn whole(parts: &Parts) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !parts.reasoning.is_empty() {
        blocks.push(json!({ "type": "thinking", "thinking": parts.reasoning, "signature": "" }));
    }
    if !parts.text.is_empty() || parts.calls.is_empty() {
        blocks.push(json!({ "type": "text", "text": parts.text }));
    }
    blocks.extend(parts.calls.iter().map(|call| tool_use(call, call.arguments.clone())));
    blocks
}

fn tool_use(call: &ToolCall, input: Value) -> Value {
    json!({ "type": "tool_use", "id": call.id, "name": call.name, "input": input })
}

/// Which block is open while an answer is streamed.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    open: Option<Kind>,
    /// Number of the next block.
    n: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Text,
    Thinking,
    Tool,
}

impl Blocks {
    /// The events of a part.
    pub fn part(&mut self, part: Part) -> Vec<Value> {
        match part {
            Part::Text(text) => self.text(&text),
            Part::Reasoning(text) => {
                let block = json!({ "type": "thinking", "thinking": "", "signature": "" });
                let mut events = self.switch(Kind::Thinking, block);
                events.push(self.delta(json!({ "type": "thinking_delta", "thinking": text })));
                events
            }
            Part::Tool(call) => {
                let mut events = self.end();
                events.extend(self.switch(Kind::Tool, tool_use(&call, json!({}))));
                let partial = call.arguments.to_string();
                events.push(self.delta(json!({ "type": "input_json_delta", "partial_json": partial })));
                events.extend(self.end());
                events
            }
        }
    }

    /// The events of a text.
    pub fn text(&mut self, text: &str) -> Vec<Value> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut events = self.switch(Kind::Text, json!({ "type": "text", "text": "" }));
        events.push(self.delta(json!({ "type": "text_delta", "text": text })));
        events
    }

    /// Ends the block that is open.
    pub fn end(&mut self) -> Vec<Value> {
        let open = self.open.take();
        open.map(|_| json!({ "type": "content_block_stop", "index": self.n - 1 })).into_iter().collect()
    }

    /// Opens a block, unless one of the kind is open.
    fn switch(&mut self, kind: Kind, block: Value) -> Vec<Value> {
        if self.open == Some(kind) {
            return Vec::new();
        }
        let mut events = self.end();
        events.push(json!({ "type": "content_block_start", "index": self.n, "content_block": block }));
        self.open = Some(kind);
        self.n += 1;
        events
    }

    fn delta(&self, delta: Value) -> Value {
        json!({ "type": "content_block_delta", "index": self.n - 1, "delta": delta })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_begins_grows_and_ends() {
        let mut blocks = Blocks::default();
        let call = ToolCall { id: "c".into(), name: "f".into(), arguments: json!({ "x": 1 }) };
        let parts =
            [Part::Reasoning("hm".into()), Part::Text("a".into()), Part::Text("b".into()), Part::Tool(call)];
        let mut events: Vec<Value> = parts.into_iter().flat_map(|part| blocks.part(part)).collect();
        events.extend(blocks.end());
        let written: Vec<String> = events
            .iter()
            .map(|e| {
                format!("{} {}", e["type"].as_str().unwrap().trim_start_matches("content_block_"), e["index"])
            })
            .collect();
        assert_eq!(
            written.join(", "),
            "start 0, delta 0, stop 0, start 1, delta 1, delta 1, stop 1, start 2, delta 2, stop 2"
        );
        assert_eq!(events[8]["delta"]["partial_json"], r#"{"x":1}"#);
    }
}
