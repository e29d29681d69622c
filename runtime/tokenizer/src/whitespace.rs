//! BPE that forgets spaces: each word between them is encoded by itself.

use crate::bpe::Bpe;
use crate::error::Result;
use crate::limits::Output;
use crate::tokenizer::Index;
use crate::wpm::lower;

/// BPE, and whether it lowers the case first.
#[derive(Debug)]
pub(crate) struct Whitespace {
    bpe: Bpe,
    lowercase: bool,
}

impl Whitespace {
    pub fn new(bpe: Bpe, lowercase: bool) -> Self {
        Self { bpe, lowercase }
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, index: &Index, output: &mut Output) -> Result<()> {
        text.split_whitespace().try_for_each(|word| match self.lowercase {
            true => self.bpe.encode(&word.chars().map(lower).collect::<String>(), index, output),
            false => self.bpe.encode(word, index, output),
        })
    }

    /// The text of a piece that is not a control token.
    pub fn text_of_piece(&self, piece: &str) -> Vec<u8> {
        self.bpe.text_of_piece(piece)
    }
}
