//! SentencePiece-like BPE: characters merge into the pair with the best score; what is no token falls back to bytes.

use std::collections::HashSet;

use crate::bytes::hex_piece;
use crate::error::{Error, Result};
use crate::limits::{MAX_WORD, Output, out_of_memory, reserve};
use crate::merge::{Score, merge};
use crate::tokenizer::Index;

/// How vocabularies write a space.
pub(crate) const SPACE: &str = "\u{2581}";

/// The scores, and the token of each byte.
#[derive(Debug)]
pub(crate) struct Spm {
    scores: Vec<f32>,
    id_of_byte: Vec<Option<u32>>,
    /// Bytes of the longest token.
    longest: usize,
    /// Characters that stand side by side in some token. Between two others nothing ever merges.
    neighbours: HashSet<(char, char)>,
    unk: Option<u32>,
}

/// A piece of the text: where it starts and its length in bytes.
type Span = (u32, u32);

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
            longest: index.keys().map(|piece| piece.len()).max().unwrap_or(1),
            neighbours: index.keys().flat_map(|piece| piece.chars().zip(piece.chars().skip(1))).collect(),
            unk,
        }
    }

    /// Appends the ids of `text`, with a space in front of it if `space_prefix`.
    pub fn encode(&self, text: &str, space_prefix: bool, index: &Index, output: &mut Output) -> Result<()> {
        let escaped = escaped(text, space_prefix)?;
        let mut start = 0;
        let mut last = None;
        for (at, c) in escaped.char_indices() {
            if last.is_some_and(|last| !self.neighbours.contains(&(last, c))) {
                self.encode_run(&escaped[start..at], index, output)?;
                start = at;
            }
            last = Some(c);
        }
        self.encode_run(&escaped[start..], index, output)
    }

    /// Merges the characters of `run` and appends the ids of what they become.
    fn encode_run(&self, run: &str, index: &Index, output: &mut Output) -> Result<()> {
        output.check_room(run.len() / self.longest)?;
        let n_chars = run.chars().count();
        if n_chars > MAX_WORD {
            return Err(Error::LongWord { found: n_chars, most: MAX_WORD });
        }
        let mut chars: Vec<Span> = Vec::new();
        reserve(&mut chars, n_chars)?;
        chars.extend(run.char_indices().map(|(at, c)| (at as u32, c.len_utf8() as u32)));

        let text = |(start, len): Span| &run[start as usize..(start + len) as usize];
        let rule = |left: Span, right: Span| {
            let joined = (left.0, left.1 + right.1);
            let id = if joined.1 as usize <= self.longest { *index.get(text(joined))? } else { return None };
            Some((Score(self.scores.get(id as usize).copied().unwrap_or(0.0)), joined))
        };
        merge(chars.into_iter(), rule, output, |piece, output| match index.get(text(piece)) {
            Some(id) => output.push(*id),
            None => self.fall_back(text(piece).as_bytes(), output),
        })
    }

    fn fall_back(&self, bytes: &[u8], output: &mut Output) -> Result<()> {
        for byte in bytes {
            let id = self.id_of_byte[*byte as usize].or(self.unk);
            output.push(
                id.ok_or_else(|| Error::NoTokenFor { what: format!("the byte {}", hex_piece(*byte)) })?,
            )?;
        }
        Ok(())
    }
}

/// `text` with the vocabulary's spaces, one more in front if `space_prefix`.
pub(crate) fn escaped(text: &str, space_prefix: bool) -> Result<String> {
    let n_spaces = text.bytes().filter(|&b| b == b' ').count() + usize::from(space_prefix);
    let mut out = String::new();
    let n_bytes = text.len() + n_spaces * SPACE.len();
    out.try_reserve_exact(n_bytes).map_err(|_| out_of_memory::<u8>(n_bytes))?;
    if space_prefix {
        out.push_str(SPACE);
    }
    for (i, part) in text.split(' ').enumerate() {
        if i > 0 {
            out.push_str(SPACE);
        }
        out.push_str(part);
    }
    Ok(out)
}
