//! Ids to text, one at a time, without ever giving half a character.

use std::borrow::Cow;
use std::ops::Deref;

use crate::error::Result;
use crate::llama2c::{BOS, is_printed};
use crate::model::Model;
use crate::tokenizer::Tokenizer;
use crate::vocab::TokenKind;

/// Turns a stream of ids into a stream of text. Bytes that are not yet a whole character wait for the next token. It holds
/// its tokenizer by reference, or shares it.
#[derive(Clone, Debug)]
pub struct Decoder<T> {
    tokenizer: T,
    render_special: bool,
    /// The next text has the space in front that encoding put there.
    drops_space: bool,
    waiting: Vec<u8>,
}

impl<T: Deref<Target = Tokenizer>> Decoder<T> {
    /// No text yet; with `render_special`, control tokens become text too.
    pub fn new(tokenizer: T, render_special: bool) -> Self {
        let drops_space = match tokenizer.model() {
            Model::Spm(_) | Model::Ugm(_) => tokenizer.add_space_prefix(),
            Model::Bpe(_) | Model::Dna(_) | Model::Whitespace(_) | Model::Rwkv(_) | Model::Plamo2(_) => false,
            Model::Wpm(_) | Model::Llama2c(_) => true,
        };
        Self { tokenizer, render_special, drops_space, waiting: Vec::new() }
    }

    /// Keeps a space in front of the first token: the ids go on a text instead of starting one.
    pub fn continuing(mut self) -> Self {
        self.drops_space = false;
        self
    }

    /// The text that is complete now that `id` has come; empty while a character is still half.
    pub fn push(&mut self, id: u32) -> Result<String> {
        let mut waiting = std::mem::take(&mut self.waiting);
        let bytes = self.bytes(id)?;
        let n_dropped = usize::from(self.drops_space && bytes.starts_with(b" "));
        waiting.extend_from_slice(&bytes[n_dropped..]);
        self.waiting = waiting;
        if !self.is_hidden(id) {
            self.drops_space = false;
        }
        if matches!(self.tokenizer.model(), Model::Llama2c(_)) {
            self.drops_space = id == BOS;
        }
        Ok(self.take_whole_characters())
    }

    /// The rest: bytes that never became a character, as replacement characters.
    pub fn flush(&mut self) -> String {
        let rest = std::mem::take(&mut self.waiting);
        String::from_utf8_lossy(&rest).into_owned()
    }

    fn bytes(&self, id: u32) -> Result<Cow<'_, [u8]>> {
        let bytes = self.tokenizer.token_bytes(id)?;
        let unprinted = matches!(self.tokenizer.model(), Model::Llama2c(_)) && !is_printed(&bytes);
        Ok(if unprinted || self.is_hidden(id) { Cow::Borrowed(&[]) } else { bytes })
    }

    fn is_hidden(&self, id: u32) -> bool {
        match self.tokenizer.kind(id) {
            Some(TokenKind::Control | TokenKind::Unknown | TokenKind::Unused | TokenKind::Undefined) => {
                !self.render_special
            }
            _ => false,
        }
    }

    fn take_whole_characters(&mut self) -> String {
        let mut text = String::new();
        let mut whole = 0;
        for chunk in self.waiting.utf8_chunks() {
            text.push_str(chunk.valid());
            whole += chunk.valid().len();
            if chunk.invalid().is_empty() {
                break;
            }
            let is_last = whole + chunk.invalid().len() == self.waiting.len();
            if is_last && may_become_character(chunk.invalid()) {
                break;
            }
            text.push(char::REPLACEMENT_CHARACTER);
            whole += chunk.invalid().len();
        }
        self.waiting.drain(..whole);
        text
    }
}

/// Whether `bytes`, which are no character, are the start of one.
fn may_become_character(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}
