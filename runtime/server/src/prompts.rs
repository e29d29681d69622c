//! Prompts of requests as token ids: texts, ids, and messages in the words of the chat template.

use crate::answer::Parser;
use crate::error::ApiError;
use crate::fields::{Fields, read};
use crate::model::Model;
use llmrt::tokenizer::{EncodeOptions, Limits, RenderOptions};
use serde_json::{Map, Value, json};

/// A prompt, and what of it belongs to the answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Prompt {
    pub tokens: Vec<u32>,
    /// Its text as it was given or rendered; `None` where ids were given.
    pub text: Option<String>,
    /// What the template wrote that the answer begins with.
    pub opening: String,
}

/// Messages, and what a template is rendered with besides them.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    pub messages: Vec<Value>,
    /// Tools and variables of the template.
    pub extra: Map<String, Value>,
    /// Whether the prompt ends with the last message, without the opening of an answer.
    pub is_closed: bool,
}

/// Limits on a prompt: one that is somewhat too long is still counted, for the message.
fn limits(model: &Model) -> Limits<'static> {
    Limits { max_tokens: model.n_ctx.max(4096).saturating_mul(4), is_cancelled: &|| false }
}

impl Model {
    /// A text as it is. Control tokens in it count, as they do in vLLM and llama-server.
    pub(crate) fn encode_text(&self, text: &str) -> Result<Prompt, ApiError> {
        let options = EncodeOptions { add_special: true, parse_special: true };
        let mut tokens = self.tokenizer.encode_within(text, options, limits(self))?;
        if tokens.is_empty() {
            tokens.extend(self.tokenizer.bos().or(self.tokenizer.eos()));
        }
        self.checked(Prompt { tokens, text: Some(text.into()), opening: String::new() })
    }

    /// Ids as they are.
    pub(crate) fn prompt_of_ids(&self, tokens: Vec<u32>) -> Result<Prompt, ApiError> {
        self.checked(Prompt { tokens, ..Prompt::default() })
    }

    /// Messages in the words of the template, and what cuts the answer into its parts.
    pub(crate) fn encode_chat(&self, chat: &Chat, now: &str) -> Result<(Prompt, Parser), ApiError> {
        let (prompt, opening) = self.render(chat, now)?;
        let template = self.template.as_ref().map_or("", |template| template.jinja.source());
        let parser = Parser::new(template, prompt.text(), chat.extra.contains_key("tools"));
        let tokens = self.tokenizer.encode_prompt(&prompt, limits(self))?;
        let prompt = self.checked(Prompt { tokens, text: Some(prompt.text().into()), opening })?;
        Ok((prompt, parser))
    }

    /// Tokens of the prompt for messages, whether the context holds them or not.
    pub(crate) fn count_chat(&self, chat: &Chat, now: &str) -> Result<usize, ApiError> {
        let (prompt, _) = self.render(chat, now)?;
        Ok(self.tokenizer.encode_prompt(&prompt, limits(self))?.len())
    }

    /// The text of the prompt for messages, and of it what the answer begins with.
    pub(crate) fn render(
        &self,
        chat: &Chat,
        now: &str,
    ) -> Result<(llmrt::tokenizer::Prompt, String), ApiError> {
        let template = self.template.as_ref().ok_or_else(|| {
            ApiError::invalid("the model has no chat template: use /v1/completions, or start the server with --chat-template")
        })?;
        let options = RenderOptions {
            now: Some(now),
            add_generation_prompt: !chat.is_closed,
            extra: chat.extra.clone(),
            ..RenderOptions::for_answer(&self.tokenizer)
        };
        let messages = self.with_own(&chat.messages);
        let render = |options: &RenderOptions| {
            template.jinja.render_json_prompt(messages.clone(), options, &self.tokenizer, limits(self))
        };
        let prompt = render(&options)?;
        let mut opening = String::new();
        if template.shows_opening && !chat.is_closed {
            let bare = render(&RenderOptions { add_generation_prompt: false, ..options })?;
            opening += prompt.text().strip_prefix(bare.text()).unwrap_or_default();
        }
        Ok((prompt, opening))
    }

    /// The messages, after the model's own system message if they have none, and after its own messages.
    fn with_own(&self, messages: &[Value]) -> Vec<Value> {
        let has_system = messages.iter().any(|message| message["role"] == "system");
        let own = self.system.as_ref().filter(|_| !has_system);
        let own = own.map(|text| json!({ "role": "system", "content": text }));
        let n_first = messages.iter().take_while(|message| message["role"] == "system").count();
        let (first, rest) = messages.split_at(n_first);
        own.into_iter().chain(first.iter().chain(&self.messages).chain(rest).cloned()).collect()
    }

    fn checked(&self, prompt: Prompt) -> Result<Prompt, ApiError> {
        let (n, n_ctx) = (prompt.tokens.len(), self.n_ctx);
        match n {
            0 => Err(ApiError::param("prompt", "the prompt is empty: expected at least one token")),
            n if n < n_ctx => Ok(prompt),
            _ => Err(ApiError {
                code: Some("context_length_exceeded"),
                ..ApiError::invalid(format!(
                    "the prompt has {n} tokens and the context holds {n_ctx}: shorten it, or start the server with a larger --ctx"
                ))
            }),
        }
    }
}

impl Chat {
    /// The messages of OpenAI's or Ollama's request.
    pub fn read(fields: &Fields) -> Result<Chat, ApiError> {
        let messages: Vec<Value> = fields.require("messages")?;
        if messages.is_empty() {
            return Err(ApiError::param("messages", "`messages` is empty: expected at least one"));
        }
        let messages = messages.iter().enumerate().map(|(i, m)| message(i, m)).collect::<Result<_, _>>()?;
        let mut extra = fields.get_or("chat_template_kwargs", Map::new())?;
        let tools: Vec<Value> = fields.get_or("tools", Vec::new())?;
        if !tools.is_empty() && tools_are_allowed(fields)? {
            extra.insert("tools".into(), tools.into());
        }
        Ok(Chat { messages, extra, is_closed: !fields.get_or("add_generation_prompt", true)? })
    }
}

/// `tool_choice`: `none`, `auto`, and nothing that would need a grammar.
fn tools_are_allowed(fields: &Fields) -> Result<bool, ApiError> {
    match fields.value("tool_choice") {
        None => Ok(true),
        Some(Value::String(choice)) if choice == "auto" => Ok(true),
        Some(Value::String(choice)) if choice == "none" => Ok(false),
        Some(_) => {
            let remedy = "only \"none\" and \"auto\" are, since grammars are not supported";
            Err(ApiError::unsupported("tool_choice", remedy))
        }
    }
}

/// A message as templates read it: contents of parts become text, arguments of tool calls become objects.
fn message(i: usize, value: &Value) -> Result<Value, ApiError> {
    let at = |field: &str| format!("messages[{i}]{field}");
    let mut message: Map<String, Value> = read(&at(""), value)?;
    let role: String = read(&at(".role"), message.get("role").unwrap_or(&Value::Null))?;
    // What models of this kind call it.
    if role == "developer" {
        message.insert("role".into(), "system".into());
    }
    let text = match message.get("content") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| part_text(&at(".content"), part))
            .collect::<Result<Vec<_>, _>>()?
            .join("\n"),
        Some(other) => read(&at(".content"), other)?,
    };
    message.insert("content".into(), text.into());
    if message.get("images").is_some_and(|images| images.as_array().is_none_or(|list| !list.is_empty())) {
        return Err(ApiError::unsupported(&at(".images"), "send text"));
    }
    if let Some(calls) = message.get_mut("tool_calls").and_then(Value::as_array_mut) {
        calls.iter_mut().for_each(parse_arguments);
    }
    Ok(message.into())
}

fn part_text(name: &str, part: &Value) -> Result<String, ApiError> {
    match part.get("type").and_then(Value::as_str) {
        Some("text" | "input_text" | "output_text") => read(name, part.get("text").unwrap_or(&Value::Null)),
        other => {
            let message = format!("`{name}` has a part of type {other:?}: expected parts of type text");
            Err(ApiError { code: Some("unsupported_parameter"), ..ApiError::param(name, message) })
        }
    }
}

/// OpenAI's clients send arguments as text; templates read them as objects.
fn parse_arguments(call: &mut Value) {
    let Some(arguments) = call.pointer_mut("/function/arguments") else { return };
    let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    if let Some(object) = parsed.filter(Value::is_object) {
        *arguments = object;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(text: &str) -> Result<Chat, ApiError> {
        Chat::read(&Fields::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn parts_become_text_and_arguments_objects() {
        let chat = chat(
            r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\":1}"}}]}]}"#,
        )
        .unwrap();
        assert_eq!(chat.messages[0]["content"], "a\nb");
        assert_eq!(chat.messages[1]["content"], "");
        assert_eq!(chat.messages[1]["tool_calls"][0]["function"]["arguments"]["x"], 1);
    }

    #[test]
    fn what_is_not_supported_is_named() {
        let refused = |text: &str| chat(text).unwrap_err();
        assert!(refused(r#"{"messages": []}"#).message.contains("is empty"));
        assert_eq!(refused(r#"{"messages": [{"content": "x"}]}"#).param.as_deref(), Some("messages[0].role"));
        let image = r#"{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}"#;
        assert!(refused(image).message.contains("image_url"));
        let tools = |choice: &str| {
            format!(
                r#"{{"messages": [{{"role": "user", "content": "x"}}], "tools": [{{}}], "tool_choice": {choice}}}"#
            )
        };
        assert!(chat(&tools("\"auto\"")).unwrap().extra.contains_key("tools"));
        assert!(!chat(&tools("\"none\"")).unwrap().extra.contains_key("tools"));
        assert_eq!(refused(&tools("\"required\"")).param.as_deref(), Some("tool_choice"));
    }
}
