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

/// Notes that a system message has no place of its own in a template.
pub fn check_system(template: &ChatTemplate, system: Option<&str>) {
    if system.is_some() && !template.has_system_role() {
        note(
            "note: the chat template has no system role: the system message goes in front of the first message",
        );
    }
}

/// What a template is rendered with.
pub fn render_options<'a>(tokenizer: &'a Tokenizer, now: &'a str) -> RenderOptions<'a> {
    RenderOptions { now: Some(now), ..RenderOptions::for_answer(tokenizer) }
}
