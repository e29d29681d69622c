//! Byte-level BPE: words become symbols of one byte each, then the merge of the lowest rank goes first.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::bytes::char_of_byte;
use crate::error::{Error, Result};
use crate::limits::Output;
use crate::merge::merge;
use crate::pretokenizer::{Pretokenizer, Rule};
use crate::tokenizer::Index;

/// Merges over symbols. A symbol below `n_tokens` is a token; the ones above are pieces that merges name or make
/// though the vocabulary lacks them.
#[derive(Debug)]
pub(crate) struct Bpe {
    pretokenizer: Pretokenizer,
    ignore_merges: bool,
    /// By byte, 256 of them.
    symbol_of_byte: Vec<u32>,
    /// (left, right) to (rank, joined).
    merges: HashMap<(u32, u32), (u32, u32)>,
    n_tokens: u32,
    pieces_beyond: Vec<String>,
    /// Bytes of text that one token covers at most.
    longest: usize,
    unk: Option<u32>,
}

impl Bpe {
    /// `merges` are "left right", best first; of two equal ones the first counts.
    pub fn new(
        rule: &Rule,
        n_tokens: u32,
        merges: &[String],
        index: &Index,
        unk: Option<u32>,
    ) -> Result<Self> {
        let mut symbols = Symbols { index, n_tokens, beyond: HashMap::new(), pieces_beyond: Vec::new() };
        let mut table = HashMap::with_capacity(merges.len());
        for (rank, text) in merges.iter().enumerate() {
            let (left, right) =
                halves(text).ok_or_else(|| Error::BadMerge { index: rank, found: text.clone() })?;
            let joined = symbols.of(&format!("{left}{right}"));
            let pair = (symbols.of(left), symbols.of(right));
            table.entry(pair).or_insert((rank as u32, joined));
        }
        let symbol_of_byte =
            (0..=255).map(|b| symbols.of(char_of_byte(b).encode_utf8(&mut [0; 4]))).collect();
        Ok(Self {
            pretokenizer: Pretokenizer::new(rule),
            ignore_merges: rule.ignore_merges,
            symbol_of_byte,
            merges: table,
            n_tokens,
            pieces_beyond: symbols.pieces_beyond,
            longest: index.keys().map(|piece| piece.chars().count()).max().unwrap_or(1),
            unk,
        })
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, index: &Index, output: &mut Output) -> Result<()> {
        self.pretokenizer.each_word(text, &mut |word| self.encode_word(word, index, output))
    }

    fn encode_word(&self, word: &str, index: &Index, output: &mut Output) -> Result<()> {
        output.check_room(word.len() / self.longest)?;
        if self.ignore_merges && word.len() <= self.longest {
            let spelled: String = word.bytes().map(char_of_byte).collect();
            if let Some(id) = index.get(spelled.as_str()) {
                return output.push(*id);
            }
        }
        let symbols = word.as_bytes().iter().map(|b| self.symbol_of_byte[*b as usize]);
        let rule =
            |left, right| self.merges.get(&(left, right)).map(|(rank, joined)| (Reverse(*rank), *joined));
        merge(symbols, rule, output, |symbol, output| match symbol < self.n_tokens {
            true => output.push(symbol),
            false => self.spell(symbol, index, output),
        })
    }

    /// A symbol that is no token falls apart into its characters.
    fn spell(&self, symbol: u32, index: &Index, output: &mut Output) -> Result<()> {
        let piece = self.pieces_beyond.get((symbol - self.n_tokens) as usize).map_or("", String::as_str);
        for c in piece.chars() {
            let id = index.get(&*c.encode_utf8(&mut [0; 4])).copied().or(self.unk);
            output
                .push(id.ok_or_else(|| Error::NoTokenFor { what: format!("{c:?}, a byte of the text") })?)?;
        }
        Ok(())
    }
}

/// The two pieces of a merge; the left one may itself start with a space.
fn halves(merge: &str) -> Option<(&str, &str)> {
    let space = merge.bytes().skip(1).position(|b| b == b' ')? + 1;
    let (left, right) = (&merge[..space], &merge[space + 1..]);
    (!right.is_empty()).then_some((left, right))
}

/// Gives every piece a number: its token id, or one above all of them.
struct Symbols<'a> {
    index: &'a Index,
    n_tokens: u32,
    beyond: HashMap<String, u32>,
    pieces_beyond: Vec<String>,
}

impl Symbols<'_> {
    fn of(&mut self, piece: &str) -> u32 {
        if let Some(known) = self.index.get(piece).or_else(|| self.beyond.get(piece)) {
            return *known;
        }
        let symbol = self.n_tokens + self.pieces_beyond.len() as u32;
        self.beyond.insert(piece.to_string(), symbol);
        self.pieces_beyond.push(piece.to_string());
        symbol
    }
}
