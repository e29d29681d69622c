//! A rendered chat: its text, and where control tokens cannot start because the text came from a message.

use crate::special::Parse;

/// A text for [`crate::Tokenizer::encode_prompt`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Prompt {
    text: String,
    /// Byte positions, ascending.
    literal: Vec<usize>,
}

impl Prompt {
    pub(crate) fn new(text: String, literal: Vec<usize>) -> Self {
        Self { text, literal }
    }

    /// The text as the template writes it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What comes after `start`, if the text starts so.
    pub fn strip_prefix(&self, start: &str) -> Option<Prompt> {
        let text = self.text.strip_prefix(start)?.to_string();
        let literal = self.literal.iter().filter_map(|at| at.checked_sub(start.len())).collect();
        Some(Prompt { text, literal })
    }

    pub(crate) fn is_literal(&self, at: usize) -> bool {
        self.literal.binary_search(&at).is_ok()
    }

    pub(crate) fn parse(&self) -> Parse<'_> {
        Parse { control: true, literal: &self.literal }
    }
}

/// A text without messages: every control token in it counts.
impl From<&str> for Prompt {
    fn from(text: &str) -> Self {
        Self::new(text.to_string(), Vec::new())
    }
}
