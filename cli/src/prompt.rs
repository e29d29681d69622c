//! Messages as token ids, in the words of a chat template.

use crate::clock;
use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::output::note;
use llmrt_engine::TokenId;
use llmrt_tokenizer::{ChatTemplate, Limits, Message, RenderOptions, Tokenizer};

/// A template that renders nothing for a conversation.
pub const EMPTY_TEMPLATE: &str = "the chat template (tokenizer.chat_template) renders no text for this prompt: give the \
                                  prompt without it (--raw), or set another with --chat-template";

/// The ids of a user's message, with the system message before it if there is one, up to where the answer begins.
pub fn of_message(
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
    system: Option<&str>,
    text: &str,
    limits: Limits<'_>,
) -> Result<Vec<TokenId>> {
    let mut messages: Vec<_> = system.iter().map(|text| Message::new("system", *text)).collect();
    messages.push(Message::new("user", text));
    let now = clock::now();
    let options = render_options(tokenizer, &now);
    // A template that computes without writing does not look at the token.
    let prompt =
        interrupt::ending_at_once(|| template.render_prompt(&messages, &options, tokenizer, limits))?;
    if prompt.text().trim().is_empty() {
        return Err(Error::new(Exit::File, EMPTY_TEMPLATE));
    }
    Ok(tokenizer.encode_prompt(&prompt, limits)?)
}

/// A warning.
pub const SYSTEM_LEFT_OUT: &str = "warning: the chat template has no system role and leaves the system message out: put \
                                   it into the prompt";

/// Warns of a system message that the template leaves out. One that it refuses is an error where it is rendered.
pub fn check_system(tokenizer: &Tokenizer, template: &ChatTemplate, system: Option<&str>) {
    if system.is_some_and(|system| leaves_system_out(tokenizer, template, system).unwrap_or(false)) {
        note(SYSTEM_LEFT_OUT);
    }
}

/// Whether a template renders the same without the system message; an error where it refuses it.
pub fn leaves_system_out(tokenizer: &Tokenizer, template: &ChatTemplate, system: &str) -> Result<bool> {
    let now = clock::now();
    let options = render_options(tokenizer, &now);
    let messages = [Message::new("system", system), Message::new("user", "hello")];
    let render = |messages: &[Message]| {
        interrupt::ending_at_once(|| {
            template.render_prompt(messages, &options, tokenizer, interrupt::UNTIL_INTERRUPTED)
        })
    };
    let without = render(&messages[1..])?;
    Ok(render(&messages)?.text() == without.text())
}

/// What a template is rendered with.
pub fn render_options<'a>(tokenizer: &'a Tokenizer, now: &'a str) -> RenderOptions<'a> {
    RenderOptions { now: Some(now), ..RenderOptions::for_answer(tokenizer) }
}
