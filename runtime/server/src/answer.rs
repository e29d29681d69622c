//! The parts of an answer: reasoning between `<think>` and `</think>`, calls of tools in the plain JSON formats of Hermes, Qwen
//! and Llama 3, and text. The result does not depend on how the text was cut into pieces.

mod markers;
mod tools;

use markers::{Found, find};
pub use tools::ToolCall;
use tools::ToolFormat;

/// A part of an answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Part {
    Text(String),
    Reasoning(String),
    Tool(ToolCall),
}

/// All parts of an answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parts {
    pub text: String,
    pub reasoning: String,
    pub calls: Vec<ToolCall>,
}

impl Parts {
    /// Of a whole answer.
    pub fn of(mut parser: Parser, answer: &str) -> Parts {
        let mut all = Parts::default();
        for part in parser.push(answer).into_iter().chain(parser.finish()) {
            match part {
                Part::Text(text) => all.text += &text,
                Part::Reasoning(text) => all.reasoning += &text,
                Part::Tool(call) => all.calls.push(call),
            }
        }
        all
    }
}

/// Cuts an answer into parts while it is generated.
#[derive(Clone, Debug)]
pub struct Parser {
    section: Section,
    has_reasoning: bool,
    tools: Option<ToolFormat>,
    /// Text that may be the beginning of a marker, or of a call.
    held: String,
    /// Whether white space is dropped before the next text.
    trims: bool,
    n_calls: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Section {
    Text,
    Reasoning,
    Tool,
    /// The whole answer may be a call.
    Json,
}

const THINK: &str = "<think>";
const END_THINK: &str = "</think>";
const CALL: &str = "<tool_call>";
const END_CALL: &str = "</tool_call>";

impl Parser {
    /// For answers to `prompt` in the words of `template`, which shows the markers of the model's family.
    pub fn new(template: &str, prompt: &str, has_tools: bool) -> Parser {
        let has_reasoning = template.contains(END_THINK);
        let tools = ToolFormat::of(template).filter(|_| has_tools);
        let section = match tools {
            // The template has begun the reasoning.
            _ if has_reasoning && prompt.trim_end().ends_with(THINK) => Section::Reasoning,
            Some(ToolFormat::Json) => Section::Json,
            _ => Section::Text,
        };
        Parser {
            section,
            has_reasoning,
            tools,
            held: String::new(),
            trims: section == Section::Reasoning,
            n_calls: 0,
        }
    }

    /// The parts that are complete now that this text has come.
    pub fn push(&mut self, text: &str) -> Vec<Part> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.advance(&mut parts) {}
        parts
    }

    /// The rest, now that no more comes.
    pub fn finish(&mut self) -> Vec<Part> {
        let rest = std::mem::take(&mut self.held);
        let mut parts = Vec::new();
        match self.section {
            Section::Tool => self.emit_call(&rest, CALL, "", &mut parts),
            Section::Json => self.emit_call(&rest, "", "", &mut parts),
            _ => self.emit(rest, &mut parts),
        }
        parts
    }

    /// How many calls there were.
    pub fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Handles the next marker; `false` where more text is needed.
    fn advance(&mut self, parts: &mut Vec<Part>) -> bool {
        let markers: &[&str] = match (self.section, self.has_reasoning, self.tools) {
            (Section::Json, ..) => return self.leave_json(),
            (Section::Reasoning, ..) => &[END_THINK],
            (Section::Tool, ..) => &[END_CALL],
            (Section::Text, true, Some(ToolFormat::Tagged)) => &[THINK, CALL],
            (Section::Text, true, _) => &[THINK],
            (Section::Text, false, Some(ToolFormat::Tagged)) => &[CALL],
            (Section::Text, false, _) => &[],
        };
        let Found { before, marker, after } = find(&self.held, markers);
        let (before, after) = (before.to_string(), after.to_string());
        if self.section == Section::Tool {
            // A call is whole or nothing.
            let Some(marker) = marker else { return false };
            self.held = after;
            self.emit_call(&before, CALL, marker, parts);
        } else {
            self.held = after;
            self.emit(before, parts);
        }
        let Some(marker) = marker else { return false };
        self.section = match marker {
            THINK => Section::Reasoning,
            CALL => Section::Tool,
            _ => Section::Text,
        };
        self.trims = true;
        true
    }

    /// An answer that does not begin as JSON is text.
    fn leave_json(&mut self) -> bool {
        let begin = self.held.trim_start();
        if begin.is_empty() || begin.starts_with('{') || begin.starts_with('[') {
            return false;
        }
        self.section = Section::Text;
        true
    }

    fn emit(&mut self, text: String, parts: &mut Vec<Part>) {
        let text = if self.trims { text.trim_start().to_string() } else { text };
        if text.is_empty() {
            return;
        }
        self.trims = false;
        parts.push(if self.section == Section::Reasoning { Part::Reasoning(text) } else { Part::Text(text) });
    }

    /// A call, or the text as it was where it is none.
    fn emit_call(&mut self, text: &str, before: &str, after: &str, parts: &mut Vec<Part>) {
        match ToolCall::parse(text) {
            Some(calls) => {
                self.n_calls += calls.len();
                parts.extend(calls.into_iter().map(Part::Tool));
            }
            None => {
                self.section = Section::Text;
                self.emit(format!("{before}{text}{after}"), parts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN: &str = "<tool_call> </think>";
    const LLAMA: &str = r#"{"name": function name, "parameters": dictionary}"#;

    /// `text`, `(reasoning)`, `name{arguments}`; the same for every way to cut the answer.
    fn check(template: &str, prompt: &str, answer: &str, expected: &str) {
        for n in [1, 2, 3, 7, 1000] {
            let mut parser = Parser::new(template, prompt, true);
            let chars: Vec<char> = answer.chars().collect();
            let mut parts: Vec<Part> = Vec::new();
            for piece in chars.chunks(n) {
                parts.extend(parser.push(&piece.iter().collect::<String>()));
            }
            parts.extend(parser.finish());
            assert_eq!(written(&parts), expected, "in pieces of {n}");
        }
    }

    fn written(parts: &[Part]) -> String {
        let mut text = String::new();
        for part in parts {
            match part {
                Part::Text(t) => text += t,
                Part::Reasoning(t) => text += &format!("({t})"),
                Part::Tool(call) => text += &format!("{}{}", call.name, call.arguments),
            }
        }
        text.replace(")(", "")
    }

    #[test]
    fn reasoning_is_split_from_the_answer() {
        check(QWEN, "", "<think>\nhm a < b\n</think>\n\nyes", "(hm a < b\n)yes");
        check(QWEN, "<|assistant|><think>\n", "hm</think>yes", "(hm)yes");
        check(QWEN, "", "no thoughts <b>", "no thoughts <b>");
        check(QWEN, "", "<think>never ends", "(never ends)");
        check("plain", "", "<think>a</think>b", "<think>a</think>b");
    }

    #[test]
    fn calls_between_tags_are_parsed_and_others_stay_text() {
        let call = r#"<tool_call>
{"name": "add", "arguments": {"a": 1}}
</tool_call>"#;
        check(QWEN, "", call, r#"add{"a":1}"#);
        check(QWEN, "", &format!("Sure. {call}\n{call}"), r#"Sure. add{"a":1}add{"a":1}"#);
        check(QWEN, "", "<tool_call>no</tool_call>", "<tool_call>no</tool_call>");
        check(QWEN, "", "<tool_call>{\"name\"", "<tool_call>{\"name\"");
        check(QWEN, "", &format!("<think>x</think>{call}"), r#"(x)add{"a":1}"#);
    }

    #[test]
    fn an_answer_that_is_a_call_as_a_whole_is_parsed() {
        check(LLAMA, "", r#"{"name": "add", "parameters": {"a": 1}}"#, r#"add{"a":1}"#);
        check(LLAMA, "", "{ not JSON", "{ not JSON");
        check(LLAMA, "", "Hello {}", "Hello {}");
    }

    #[test]
    fn without_tools_there_are_no_calls() {
        let mut parser = Parser::new(QWEN, "", false);
        let text = r#"<tool_call>{"name": "a", "arguments": {}}</tool_call>"#;
        assert_eq!(parser.push(text), [Part::Text(text.into())]);
    }
}
