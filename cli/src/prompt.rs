//! Messages as token ids, in the words of a chat template.

use crate::clock;
use crate::error::{Error, Exit, Result};
use crate::interrupt;
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

/// What a template is rendered with.
pub fn render_options<'a>(tokenizer: &'a Tokenizer, now: &'a str) -> RenderOptions<'a> {
    let piece = |id: Option<TokenId>| id.and_then(|id| tokenizer.piece(id)).unwrap_or_default();
    RenderOptions {
        add_generation_prompt: true,
        bos: piece(tokenizer.bos()),
        eos: piece(tokenizer.eos()),
        now: Some(now),
        ..RenderOptions::default()
    }
}
