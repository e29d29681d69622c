//! Chat templates: the Jinja template of a model file turns messages into the prompt the model was trained on.

mod capabilities;

mod literal;

mod limits;

mod lists;

mod tag;

mod filters;

mod work;

mod quiet;

use std::error::Error as _;
use std::panic::AssertUnwindSafe;
use std::sync::OnceLock;

use llmrt_gguf::Metadata;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, ErrorKind, Value};
use regex_automata::meta::Regex;
use serde_json::{Map, Value as Json, json};

use crate::clock;
use crate::error::{Error, Result};
use crate::limits::Limits;
use crate::prompt::Prompt;
use crate::tokenizer::Tokenizer;
use capabilities::Capabilities;
use literal::Inputs;

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    source: String,
    capabilities: OnceLock<Capabilities>,
}

/// One message of a chat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The author: `system`, `user`, `assistant`, `tool`.
    pub role: String,
    /// The text.
    pub content: String,
}

/// What a template is rendered with besides the messages.
#[derive(Clone, Default, Debug)]
pub struct RenderOptions<'a> {
    /// End with the opening of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Text of the `bos` token; the template decides whether and where to write it.
    pub bos: &'a str,
    /// Text of the `eos` token.
    pub eos: &'a str,
    /// Local time as `YYYY-MM-DDTHH:MM:SS`, for templates that write the date. Without it `strftime_now`, `date_string` and
    /// `datetime` are not defined, and templates use a date of their own.
    pub now: Option<&'a str>,
    /// Further variables: `tools`, `documents`, `enable_thinking`.
    pub extra: Map<String, Json>,
}

impl<'a> RenderOptions<'a> {
    /// For an answer, with the special tokens of the model.
    pub fn for_answer(tokenizer: &'a Tokenizer) -> RenderOptions<'a> {
        let piece = |id: Option<u32>| id.and_then(|id| tokenizer.piece(id)).unwrap_or_default();
        RenderOptions {
            add_generation_prompt: true,
            bos: piece(tokenizer.bos()),
            eos: piece(tokenizer.eos()),
            ..RenderOptions::default()
        }
    }
}

/// How many instructions one rendering may take. Templates that people use need a few thousand.
const FUEL: u64 = 5_000_000;

/// How deep loops and macros may call each other; a macro counts as five.
const RECURSION: usize = 250;

/// The longest prompt a template may write, in bytes: four million tokens of English.
const MAX_PROMPT: usize = 16 << 20;

/// Small chats find out what a template takes, about so many.
const SMALL_CHATS: u64 = 10;

/// The longest prompt of them, in bytes.
const MAX_SMALL_CHAT: usize = 1 << 20;

/// What a template has written so far.
struct Output<'a> {
    text: Vec<u8>,
    max_bytes: usize,
    is_cancelled: &'a dyn Fn() -> bool,
    /// Why no more is taken.
    failure: Option<Error>,
}

impl std::io::Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.failure = if self.text.len() + bytes.len() > self.max_bytes {
            Some(Error::LongPrompt { most: self.max_bytes })
        } else if self.text.try_reserve(bytes.len()).is_err() {
            Some(Error::OutOfMemory { bytes: self.text.len() + bytes.len() })
        } else {
            (self.is_cancelled)().then_some(Error::Cancelled)
        };
        if self.failure.is_some() {
            return Err(std::io::ErrorKind::Other.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Message {
    /// A message of `role` with `content`.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }

    fn to_json(&self) -> Json {
        json!({ "role": self.role, "content": self.content })
    }
}

impl ChatTemplate {
    /// The template of a GGUF file, if it has one.
    pub fn from_metadata(metadata: &Metadata) -> Result<Option<Self>> {
        metadata.optional::<&str>("tokenizer.chat_template")?.map(Self::new).transpose()
    }

    /// A further template of a GGUF file, such as `tool_use`, if it has one.
    pub fn named(metadata: &Metadata, name: &str) -> Result<Option<Self>> {
        metadata.optional::<&str>(&format!("tokenizer.chat_template.{name}"))?.map(Self::new).transpose()
    }

    /// Compiles a template; an error names its line. A template of a size that no file needs is refused: the engine
    /// would overflow its stack on it.
    pub fn new(source: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax =
            SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build().map_err(to_error)?;
        environment.set_syntax(syntax.clone());
        environment.set_auto_escape_callback(|_| AutoEscape::None);
        environment.set_recursion_limit(RECURSION);
        environment.set_formatter(|out, state, value| {
            work::charge_all(state, value)?;
            minijinja::escape_formatter(out, state, value)
        });
        filters::register(&mut environment);
        environment.add_function("raise_exception", raise_exception);
        let guarded = limits::guarded(&without_generation_tags(source), syntax)?;
        if guarded.changes_lists {
            filters::register_changing_lists(&mut environment);
        }
        environment.set_fuel(Some(FUEL.min((work::MAX_BYTES / guarded.longest_text.max(1)) as u64)));
        caught(|| environment.add_template_owned("chat", guarded.source))?;
        Ok(Self { environment, source: source.to_string(), capabilities: OnceLock::new() })
    }

    /// The text of the prompt for `messages`.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<String> {
        self.render_json(messages.iter().map(Message::to_json).collect(), options)
    }

    /// The text of the prompt for messages that have more than role and content: tool calls, parts, names.
    pub fn render_json(&self, messages: Vec<Json>, options: &RenderOptions) -> Result<String> {
        let inputs = self.inputs(messages, options);
        render_within(&self.environment, inputs, options, MAX_PROMPT, &|| false)
    }

    /// The prompt for `messages`, for a model with this tokenizer: a control token in a message is text, not a token.
    /// A prompt of more bytes than `limits.max_tokens` tokens cover is an error.
    pub fn render_prompt(
        &self,
        messages: &[Message],
        options: &RenderOptions,
        tokenizer: &Tokenizer,
        limits: Limits,
    ) -> Result<Prompt> {
        self.render_json_prompt(messages.iter().map(Message::to_json).collect(), options, tokenizer, limits)
    }

    /// [`ChatTemplate::render_prompt`] for messages that have more than role and content.
    pub fn render_json_prompt(
        &self,
        messages: Vec<Json>,
        options: &RenderOptions,
        tokenizer: &Tokenizer,
        limits: Limits,
    ) -> Result<Prompt> {
        let inputs = self.inputs(messages, options);
        let max_bytes = tokenizer.max_bytes(limits.max_tokens).min(MAX_PROMPT);
        let render = |inputs: Inputs, max_bytes| {
            render_within(&self.environment, inputs, options, max_bytes, limits.is_cancelled)
        };
        let text = render(inputs.clone(), max_bytes)?;
        // A mark has up to four bytes for a character of one.
        let literal = literal::positions(tokenizer.specials(), &inputs, &text, |i| render(i, 4 * max_bytes))?;
        Ok(Prompt::new(text, literal))
    }

    /// Whether it writes system messages; if not, they go in front of the first message.
    pub fn has_system_role(&self) -> bool {
        self.capabilities().system
    }

    /// Messages in the forms that the template takes.
    fn inputs(&self, messages: Vec<Json>, options: &RenderOptions) -> Inputs {
        Inputs { messages: self.capabilities().apply(messages), extra: options.extra.clone() }
    }

    /// The forms of messages that the template takes, found once.
    fn capabilities(&self) -> Capabilities {
        *self.capabilities.get_or_init(|| {
            let function = json!({
                "name": "f", "description": "f", "parameters": { "type": "object", "properties": {} },
            });
            let tools = json!([{ "type": "function", "function": function }]);
            let extra = Map::from_iter([("tools".to_string(), tools)]);
            let mut environment = self.environment.clone();
            environment.set_fuel(environment.fuel().map(|fuel| fuel / SMALL_CHATS));
            Capabilities::of(|messages| {
                let inputs = Inputs { messages, extra: extra.clone() };
                let options = RenderOptions { now: Some("2026-01-01T00:00:00"), ..RenderOptions::default() };
                render_within(&environment, inputs, &options, MAX_SMALL_CHAT, &|| false)
            })
        })
    }

    /// The template as the file has it.
    pub fn source(&self) -> &str {
        &self.source
    }
}

/// The prompt of a template, within its limits.
fn render_within(
    environment: &Environment,
    inputs: Inputs,
    options: &RenderOptions,
    max_bytes: usize,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<String> {
    if inputs.messages.is_empty() {
        return Err(Error::NoMessages);
    }
    let mut variables: Vec<(String, Value)> = vec![
        ("messages".into(), Value::from(Serde(inputs.messages))),
        ("add_generation_prompt".into(), options.add_generation_prompt.into()),
        ("bos_token".into(), options.bos.into()),
        ("eos_token".into(), options.eos.into()),
    ];
    if let Some(now) = options.now {
        variables.extend(clock::variables(now)?);
    }
    // What templates of functionary models read in place of `tools`: the same as text.
    if let Some(tools) = inputs.extra.get("tools").filter(|_| !inputs.extra.contains_key("functions")) {
        variables.push(("functions".into(), format!("{tools:#}").into()));
    }
    variables.extend(inputs.extra.into_iter().map(|(name, value)| (name, Value::from(Serde(value)))));
    let mut output = Output { text: Vec::new(), max_bytes, is_cancelled, failure: None };
    let render = || {
        let template = environment.get_template("chat")?;
        template.render_captured_to(Value::from_pairs(variables), &mut output).map(drop)
    };
    let result = caught(render);
    match output.failure {
        Some(failure) => Err(failure),
        None => result.map(|()| String::from_utf8_lossy(&output.text).into_owned()),
    }
}

/// `{% generation %}` only marks what to train on: it becomes a block that is always taken.
fn without_generation_tags(source: &str) -> String {
    let tag = Regex::new(r"\{%[-+]?\s*(end)?generation\s*[-+]?%\}").expect("a test compiles this pattern");
    let mut text = String::with_capacity(source.len());
    let mut done = 0;
    for found in tag.find_iter(source) {
        text.push_str(&source[done..found.start()]);
        let tag = &source[found.range()];
        text.push_str(&tag.replace("endgeneration", "endif").replace("generation", "if true"));
        done = found.end();
    }
    text + &source[done..]
}

/// Runs the template engine. Version 3.0.5 panics on a backward slice of an empty list, which templates of files do
/// (`messages[::-1]`); that must not end the process. Nothing the engine holds is changed by rendering.
fn caught<T>(run: impl FnOnce() -> std::result::Result<T, minijinja::Error>) -> Result<T> {
    match quiet::without_panic_message(|| std::panic::catch_unwind(AssertUnwindSafe(run))) {
        Ok(result) => result.map_err(to_error),
        Err(_) => Err(Error::TemplateEngine),
    }
}

/// Why a template refuses the messages.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refusal(String);

fn raise_exception(reason: String) -> std::result::Result<Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, reason.clone()).with_source(Refusal(reason)))
}

/// Keeps what and where, and none of the variables: those are people's prompts.
fn to_error(error: minijinja::Error) -> Error {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(Refusal(reason)) = inner.downcast_ref::<Refusal>() {
            return Error::Refused { reason: reason.clone() };
        }
        cause = inner.source();
    }
    let what = match error.kind() {
        ErrorKind::OutOfFuel => format!("takes more than {FUEL} steps"),
        kind => kind.to_string(),
    };
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    Error::Template { line: error.line().unwrap_or(0), reason: what + &detail }
}
