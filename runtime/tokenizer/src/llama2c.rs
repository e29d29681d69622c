//! llama2.c's `tokenizer.bin`: pieces with scores; characters merge into the best-scored neighbour pair.

use std::collections::HashMap;

use crate::bytes::byte_of_hex_piece;
use crate::error::{Error, Result};
use crate::limits::{Output, reserve};
use crate::merge::{Score, merge};

/// Starts a sequence in every llama2.c vocabulary, and so ends the one before.
pub(crate) const BOS: u32 = 1;
/// Byte b has the id `FIRST_BYTE + b`.
const FIRST_BYTE: u32 = 3;
/// A pair must score above this to be merged.
const LOWEST_SCORE: f32 = -1e10;

/// Score and bytes of each token, and the way back.
#[derive(Debug)]
pub(crate) struct Llama2c {
    pieces: Vec<(f32, Vec<u8>)>,
    index: HashMap<Vec<u8>, u32>,
    longest: usize,
}

impl Llama2c {
    /// Of two equal pieces the first one counts.
    pub fn new(pieces: Vec<(f32, Vec<u8>)>) -> Self {
        let mut index = HashMap::with_capacity(pieces.len());
        for (id, (_, bytes)) in pieces.iter().enumerate() {
            index.entry(bytes.clone()).or_insert(id as u32);
        }
        let longest = pieces.iter().map(|p| p.1.len()).max().unwrap_or(0);
        Self { pieces, index, longest }
    }

    /// Appends the ids of `text`: a space in front of it, then its characters, merged.
    pub fn encode(&self, text: &str, output: &mut Output) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut symbols = Vec::new();
        reserve(&mut symbols, text.len() + 1)?;
        let mut buffer = [0; 4];
        for c in std::iter::once(' ').chain(text.chars()) {
            let bytes = c.encode_utf8(&mut buffer).as_bytes();
            match self.index.get(bytes) {
                Some(id) => symbols.push(*id),
                None => symbols.extend(bytes.iter().map(|b| FIRST_BYTE + u32::from(*b))),
            }
        }
        if let Some(id) = symbols.iter().find(|id| self.piece(**id).is_none()) {
            return Err(Error::NoTokenFor { what: format!("the byte {:#04x}", id - FIRST_BYTE) });
        }
        merge(symbols.into_iter(), |left, right| self.join(left, right), output, |id, output| output.push(id))
    }

    fn join(&self, left: u32, right: u32) -> Option<(Score, u32)> {
        let (left, right) = (&self.piece(left)?.1, &self.piece(right)?.1);
        if left.len() + right.len() > self.longest {
            return None;
        }
        let id = *self.index.get(&[left.as_slice(), right].concat())?;
        let score = self.piece(id)?.0;
        (score > LOWEST_SCORE).then_some((Score(score), id))
    }

    /// What the token writes: a piece spelled in hex is its byte.
    pub fn bytes(&self, id: u32) -> Vec<u8> {
        let piece = self.piece(id).map_or(&[][..], |piece| &piece.1);
        byte_of_hex_piece(piece).map_or_else(|| piece.to_vec(), |byte| vec![byte])
    }

    fn piece(&self, id: u32) -> Option<&(f32, Vec<u8>)> {
        self.pieces.get(id as usize)
    }
}

/// llama2.c prints no single byte that is neither printable ASCII nor space.
pub(crate) fn is_printed(bytes: &[u8]) -> bool {
    match bytes {
        [] => false,
        [byte] => matches!(byte, 0x20..=0x7E | b'\t'..=b'\r'),
        _ => true,
    }
}
