//! BPE: words become symbols of one byte, or of one character, then the merge of the lowest rank goes first.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use crate::bytes::{bytes_of_piece, char_of_byte, hex_piece};
use crate::error::{Error, Result};
use crate::limits::{MAX_WORD, Output, reserve};
use crate::merge::merge;
use crate::pretokenizer::{Pretokenizer, Rule, Spelling, WholeWords};
use crate::spm::{SPACE, escaped};
use crate::tokenizer::Index;

/// Merges over symbols. A symbol below `n_tokens` is a token; the ones above are pieces that merges name or make
/// though the vocabulary lacks them, and from `UNKNOWN` on characters that neither has.
#[derive(Debug)]
pub(crate) struct Bpe {
    pretokenizer: Pretokenizer,
    whole_words: WholeWords,
    spelling: Spelling,
    /// By byte, 256 of them.
    symbol_of_byte: Vec<u32>,
    /// (left, right) to (rank, joined).
    merges: HashMap<(u32, u32), (u32, u32)>,
    n_tokens: u32,
    /// Pieces that are no tokens, from symbol `n_tokens` on.
    beyond: HashMap<String, u32>,
    pieces_beyond: Vec<String>,
    /// Bytes of text that one token covers at most.
    longest: usize,
}

/// `UNKNOWN` + c: the character c, of which no piece is made.
const UNKNOWN: u32 = 1 << 31;

impl Bpe {
    /// `merges` are "left right", best first; of two equal ones the first counts.
    pub fn new(rule: &Rule, n_tokens: u32, merges: &[String], index: &Index) -> Result<Self> {
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
        let longest = |piece: &str| match rule.spelling {
            Spelling::Bytes => piece.chars().count(),
            Spelling::Spaced | Spelling::Plain => piece.len(),
        };
        Ok(Self {
            pretokenizer: Pretokenizer::new(rule),
            whole_words: rule.whole_words,
            spelling: rule.spelling,
            symbol_of_byte,
            merges: table,
            n_tokens,
            beyond: symbols.beyond,
            pieces_beyond: symbols.pieces_beyond,
            longest: index.keys().map(|piece| longest(piece)).max().unwrap_or(1),
        })
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, index: &Index, output: &mut Output) -> Result<()> {
        let text = match self.spelling {
            Spelling::Spaced => Cow::Owned(escaped(text, false)?),
            Spelling::Bytes | Spelling::Plain => Cow::Borrowed(text),
        };
        self.pretokenizer.each_word(&text, &mut |word| self.encode_word(word, index, output))
    }

    fn encode_word(&self, word: &str, index: &Index, output: &mut Output) -> Result<()> {
        output.check_room(word.len() / self.longest)?;
        if let Some(id) = self.whole_word(word, index) {
            return output.push(id);
        }
        let rule =
            |left, right| self.merges.get(&(left, right)).map(|(rank, joined)| (Reverse(*rank), *joined));
        let visit = |symbol, output: &mut Output| match symbol < self.n_tokens {
            true => output.push(symbol),
            false => self.spell(symbol, index, output),
        };
        if self.spelling == Spelling::Bytes {
            let symbols = word.as_bytes().iter().map(|b| self.symbol_of_byte[*b as usize]);
            return merge(symbols, rule, output, visit);
        }
        let n_chars = word.chars().count();
        if n_chars > MAX_WORD {
            return Err(Error::LongWord { found: n_chars, most: MAX_WORD });
        }
        let mut symbols = Vec::new();
        reserve(&mut symbols, n_chars)?;
        symbols.extend(word.chars().map(|c| self.symbol_of_char(c, index)));
        merge(symbols.into_iter(), rule, output, visit)
    }

    /// The token of a word that is not merged.
    fn whole_word(&self, word: &str, index: &Index) -> Option<u32> {
        let counts = match self.whole_words {
            WholeWords::No => false,
            WholeWords::Newlines => word.bytes().all(|b| b == b'\n'),
            WholeWords::All => true,
        };
        if !counts || word.len() > self.longest {
            return None;
        }
        match self.spelling {
            Spelling::Bytes => {
                index.get(word.bytes().map(char_of_byte).collect::<String>().as_str()).copied()
            }
            Spelling::Spaced | Spelling::Plain => index.get(word).copied(),
        }
    }

    fn symbol_of_char(&self, c: char, index: &Index) -> u32 {
        let mut buffer = [0; 4];
        let piece: &str = c.encode_utf8(&mut buffer);
        index.get(piece).or_else(|| self.beyond.get(piece)).copied().unwrap_or(UNKNOWN + c as u32)
    }

    /// The text of a piece that is not a control token.
    pub fn text_of_piece(&self, piece: &str) -> Vec<u8> {
        match self.spelling {
            Spelling::Bytes => bytes_of_piece(piece),
            Spelling::Spaced => piece.replace(SPACE, " ").into_bytes(),
            Spelling::Plain => piece.as_bytes().to_vec(),
        }
    }

    /// A symbol that is no token falls apart into its bytes. Those that the vocabulary lacks are left out, as some
    /// published vocabularies lack a few.
    fn spell(&self, symbol: u32, index: &Index, output: &mut Output) -> Result<()> {
        let unknown = symbol.checked_sub(UNKNOWN).and_then(char::from_u32).map(String::from);
        let piece = unknown
            .as_deref()
            .or_else(|| self.pieces_beyond.get((symbol - self.n_tokens) as usize).map(String::as_str));
        let mut push = |id: Option<&u32>| id.map_or(Ok(()), |id| output.push(*id));
        for c in piece.unwrap_or_default().chars() {
            let mut buffer = [0; 4];
            let spelled: &str = c.encode_utf8(&mut buffer);
            match index.get(spelled) {
                None if self.spelling != Spelling::Bytes => {
                    spelled.bytes().try_for_each(|byte| push(index.get(hex_piece(byte).as_str())))?
                }
                found => push(found)?,
            }
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
