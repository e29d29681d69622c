//! SentencePiece's unigram model: of all ways to cut the normalised text into tokens, the likeliest (Kudo 2018,
//! <https://arxiv.org/abs/1804.10959>).

mod charsmap;

use crate::error::{Error, Result};
use crate::limits::{Output, out_of_memory, reserve};
use crate::prefixes::Prefixes;
use crate::spm::SPACE;
use crate::vocab::{TokenKind, Vocab};
use charsmap::CharsMap;

/// The tokens with their log probabilities, and how text is normalised.
#[derive(Debug)]
pub(crate) struct Ugm {
    charsmap: CharsMap,
    /// Normal, user-defined and unused tokens.
    tokens: Prefixes,
    user_defined: Prefixes,
    /// By id: log probabilities, 0 for user-defined tokens.
    scores: Vec<f64>,
    unknown_score: f64,
    unk: Option<u32>,
    add_space_prefix: bool,
    merges_spaces: bool,
}

/// How much less likely than the least likely token a character is that has none.
const UNKNOWN_PENALTY: f32 = 10.0;

/// The likeliest way from the start of the text to some place: its last token, and the place where that starts.
#[derive(Clone, Copy)]
struct Best {
    /// `None`: the unknown token.
    id: Option<u32>,
    start: usize,
    score: f64,
}

impl Ugm {
    /// `add_space_prefix` and the unknown token are those of the file, or the usual ones.
    pub fn new(vocab: &Vocab, kinds: &[TokenKind], add_space_prefix: bool, unk: Option<u32>) -> Result<Self> {
        let of_kind = |counted: &'static [TokenKind]| {
            let all = (0..).zip(vocab.tokens.iter().zip(kinds));
            let counted = all.filter(|(_, (_, kind))| counted.contains(kind));
            counted.map(|(id, (text, _))| (Box::from(text.as_bytes()), id))
        };
        let score = |id: usize| vocab.scores.get(id).copied().unwrap_or(0.0);
        let normal = kinds.iter().enumerate().filter(|(_, kind)| **kind == TokenKind::Normal);
        let lowest = normal.map(|(id, _)| score(id)).fold(f32::MAX, f32::min);
        let score_of_kind = |(id, kind): (usize, &TokenKind)| match kind {
            TokenKind::UserDefined => 0.0,
            _ => f64::from(score(id)),
        };
        Ok(Self {
            charsmap: CharsMap::new(&vocab.charsmap)?,
            tokens: Prefixes::new(of_kind(&[TokenKind::Normal, TokenKind::UserDefined, TokenKind::Unused])),
            user_defined: Prefixes::new(of_kind(&[TokenKind::UserDefined])),
            scores: kinds.iter().enumerate().map(score_of_kind).collect(),
            unknown_score: f64::from(lowest - UNKNOWN_PENALTY),
            unk,
            add_space_prefix,
            merges_spaces: vocab.remove_extra_whitespaces.unwrap_or(false),
        })
    }

    /// Appends the ids of `text`.
    pub fn encode(&self, text: &str, output: &mut Output) -> Result<()> {
        let text = self.normalised(text.as_bytes(), output)?;
        let best = self.likeliest(&text, output)?;
        let mut ids = Vec::new();
        let mut at = text.len();
        let mut after_unknown = false;
        while at > 0 {
            let Best { id, start, .. } = best[at];
            if id.is_some() || !after_unknown {
                reserve(&mut ids, 1)?;
                ids.push(id.or(self.unk).ok_or_else(|| self.no_token(&text[start..at]))?);
            }
            after_unknown = id.is_none();
            at = start;
        }
        ids.into_iter().rev().try_for_each(|id| output.push(id))
    }

    fn no_token(&self, bytes: &[u8]) -> Error {
        Error::NoTokenFor { what: format!("{:?}", String::from_utf8_lossy(bytes)) }
    }

    /// For each place where a character ends, the likeliest way there. Of equally likely ones the first counts, that
    /// is the one whose last token starts first.
    fn likeliest(&self, text: &[u8], output: &mut Output) -> Result<Vec<Best>> {
        let mut best = Vec::new();
        reserve(&mut best, text.len() + 1)?;
        best.resize(text.len() + 1, Best { id: None, start: 0, score: -f64::MAX });
        best[0].score = 0.0;
        let mut at = 0;
        while at < text.len() {
            output.step()?;
            let score = best[at].score;
            let len_of_char = charsmap::len_of_char(text[at]).min(text.len() - at);
            let mut offer = |len: usize, id: Option<u32>, score: f64| {
                let place = &mut best[at + len];
                if score > place.score {
                    *place = Best { id, start: at, score };
                }
            };
            let mut has_token = false;
            for (len, id) in self.tokens.of(&text[at..]) {
                has_token |= len == len_of_char;
                let id_or_unknown = Some(id).filter(|id| Some(*id) != self.unk);
                offer(len, id_or_unknown, score + self.scores[id as usize]);
            }
            if !has_token {
                offer(len_of_char, None, score + self.unknown_score);
            }
            at += len_of_char;
        }
        Ok(best)
    }

    /// `text` by the map of characters, with the vocabulary's spaces. What starts a user-defined token stays as it is.
    fn normalised(&self, text: &[u8], output: &mut Output) -> Result<Vec<u8>> {
        let mut normalised = Normalised { bytes: Vec::new(), in_word: false, has_prefix: false, ugm: self };
        let mut rest = text;
        while !rest.is_empty() {
            output.step()?;
            let n_shared = self.user_defined.n_shared(rest);
            let (replacement, n_read) = match n_shared {
                0 => self.charsmap.replace(rest)?,
                n => (&rest[..n], n),
            };
            replacement.iter().try_for_each(|byte| normalised.push(*byte))?;
            rest = &rest[n_read..];
        }
        Ok(normalised.bytes)
    }
}

/// A text that is normalised byte by byte.
struct Normalised<'u> {
    bytes: Vec<u8>,
    in_word: bool,
    has_prefix: bool,
    ugm: &'u Ugm,
}

impl Normalised<'_> {
    fn push(&mut self, byte: u8) -> Result<()> {
        let starts_word = byte != b' ' && !self.in_word;
        let is_first = self.ugm.add_space_prefix && !self.has_prefix;
        self.in_word = byte != b' ';
        if starts_word && (is_first || self.ugm.merges_spaces) {
            self.extend(SPACE.as_bytes())?;
            self.has_prefix = true;
        }
        match byte {
            b' ' if self.ugm.merges_spaces => Ok(()),
            b' ' => self.extend(SPACE.as_bytes()),
            other => self.extend(&[other]),
        }
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<()> {
        let n = self.bytes.len() + bytes.len();
        self.bytes.try_reserve(bytes.len()).map_err(|_| out_of_memory::<u8>(n))?;
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}
