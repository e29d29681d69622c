//! SentencePiece-like BPE: characters merge into the pair with the best score; what is no token falls back to bytes.

use std::collections::HashSet;

use crate::bytes::hex_piece;
use crate::error::{Error, Result};
use crate::merge::{Score, merge};
use crate::tokenizer::Index;

/// How vocabularies write a space.
pub(crate) const SPACE: &str = "\u{2581}";

/// The scores, and the token of each byte.
#[derive(Debug)]
pub(crate) struct Spm {
    scores: Vec<f32>,
    id_of_byte: Vec<Option<u32>>,
    longest: usize,
    /// Characters that stand side by side in some token. Between two others nothing ever merges.
    neighbours: HashSet<(char, char)>,
    unk: Option<u32>,
}

/// A piece of the text: where it starts and its length in bytes.
type Span = (usize, usize);

impl Spm {
    /// `scores` holds one number per token, or nothing when all are equal.
    pub fn new(scores: Vec<f32>, index: &Index, unk: Option<u32>) -> Self {
        let id_of_byte = |byte: u8| {
            let literal = char::from(byte);
            let by_char = || byte.is_ascii().then(|| index.get(&*literal.encode_utf8(&mut [0; 4]))).flatten();
            index.get(hex_piece(byte).as_str()).or_else(by_char).copied()
        };
        Self {
            scores,
            id_of_byte: (0..=255).map(id_of_byte).collect(),
            longest: index.keys().map(|piece| piece.len()).max().unwrap_or(0),
            neighbours: index.keys().flat_map(|piece| piece.chars().zip(piece.chars().skip(1))).collect(),
            unk,
        }
    }

    /// Appends the ids of `text`, with a space in front of it if `space_prefix`.
    pub fn encode(&self, text: &str, space_prefix: bool, index: &Index, ids: &mut Vec<u32>) -> Result<()> {
        let escaped = if space_prefix { format!(" {text}") } else { text.to_string() }.replace(' ', SPACE);
        let mut run: Vec<Span> = Vec::new();
        let mut last = None;
        for (at, c) in escaped.char_indices() {
            if last.is_some_and(|last| !self.neighbours.contains(&(last, c))) {
                self.encode_run(&escaped, &run, index, ids)?;
                run.clear();
            }
            run.push((at, c.len_utf8()));
            last = Some(c);
        }
        self.encode_run(&escaped, &run, index, ids)
    }

    /// Merges the characters of `run` and appends the ids of what they become.
    fn encode_run(&self, text: &str, run: &[Span], index: &Index, ids: &mut Vec<u32>) -> Result<()> {
        let id_of = |(start, len): Span| index.get(&text[start..start + len]).copied();
        let pieces = merge(run, |left, right| {
            let joined = (left.0, left.1 + right.1);
            let id = if joined.1 <= self.longest { id_of(joined)? } else { return None };
            Some((Score(self.scores.get(id as usize).copied().unwrap_or(0.0)), joined))
        });
        for piece in pieces {
            match id_of(piece) {
                Some(id) => ids.push(id),
                None => self.fall_back(&text.as_bytes()[piece.0..piece.0 + piece.1], ids)?,
            }
        }
        Ok(())
    }

    fn fall_back(&self, bytes: &[u8], ids: &mut Vec<u32>) -> Result<()> {
        for byte in bytes {
            let id = self.id_of_byte[*byte as usize].or(self.unk);
            ids.push(id.ok_or_else(|| Error::NoTokenFor { what: format!("the byte {}", hex_piece(*byte)) })?);
        }
        Ok(())
    }
}
