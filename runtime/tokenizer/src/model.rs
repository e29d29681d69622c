//! What a tokenizer does by its model: how text becomes ids, and what a token writes.

use std::borrow::Cow;

use crate::bpe::Bpe;
use crate::bytes::byte_of_hex_piece;
use crate::dna::Dna;
use crate::error::Result;
use crate::ids::Ids;
use crate::limits::Output;
use crate::llama2c::Llama2c;
use crate::plamo2::Plamo2;
use crate::pretokenizer::Rule;
use crate::rwkv::{self, Rwkv};
use crate::spm::{SPACE, Spm};
use crate::tokenizer::Index;
use crate::ugm::Ugm;
use crate::vocab::{ModelKind, TokenKind, Vocab};
use crate::whitespace::Whitespace;
use crate::wpm::Wpm;

/// A model of a vocabulary, or llama2.c's.
#[derive(Debug)]
pub(crate) enum Model {
    Spm(Spm),
    Bpe(Bpe),
    Dna(Dna),
    Whitespace(Whitespace),
    Wpm(Wpm),
    Ugm(Ugm),
    Rwkv(Rwkv),
    Plamo2(Plamo2),
    Llama2c(Llama2c),
}

impl Model {
    /// `rule` is the pre-tokenizer of a BPE vocabulary. RWKV and PLaMo-2 find control tokens only where special tokens
    /// are parsed.
    pub fn new(
        vocab: &Vocab,
        kinds: &[TokenKind],
        rule: Option<&Rule>,
        index: &Index,
        ids: &Ids,
    ) -> Result<Self> {
        if let Some(rule) = rule {
            let bpe = Bpe::new(rule, vocab.tokens.len() as u32, &vocab.merges, index)?;
            let lowercase = || vocab.lowercase.unwrap_or(vocab.pre.as_deref() != Some("whitespace"));
            return Ok(match vocab.model {
                ModelKind::Dna => Self::Dna(Dna::new(bpe, index)),
                ModelKind::Whitespace => Self::Whitespace(Whitespace::new(bpe, lowercase())),
                _ => Self::Bpe(bpe),
            });
        }
        let pieces = || vocab.tokens.iter().map(String::as_str).zip(0..);
        let is_text = |id: u32| !matches!(kinds[id as usize], TokenKind::Control | TokenKind::Unknown);
        let is_byte = |id: u32| kinds[id as usize] == TokenKind::Byte;
        Ok(match vocab.model {
            ModelKind::Wpm => {
                let lowercase = vocab.lowercase.unwrap_or(true);
                Self::Wpm(Wpm::new(index, lowercase, vocab.strip_accents.unwrap_or(lowercase), ids.unk))
            }
            ModelKind::Ugm => Self::Ugm(Ugm::new(vocab, kinds, ids.add_space_prefix, ids.unk)?),
            ModelKind::Rwkv => Self::Rwkv(Rwkv::new(pieces().filter(|p| is_text(p.1)), ids.unk)?),
            ModelKind::Plamo2 => Self::Plamo2(Plamo2::new(
                pieces().filter(|p| is_text(p.1) && !is_byte(p.1)),
                pieces().filter(|p| is_byte(p.1)),
                &vocab.scores,
            )?),
            _ => Self::Spm(Spm::new(vocab.scores.clone(), index, ids.unk)),
        })
    }

    /// Appends the ids of `text`, which has no special tokens; `after_special`: it starts a sequence or follows one.
    pub fn encode(
        &self,
        text: &str,
        after_special: bool,
        ids: &Ids,
        index: &Index,
        output: &mut Output,
    ) -> Result<()> {
        match self {
            Self::Spm(spm) => spm.encode(text, ids.add_space_prefix && after_special, index, output),
            Self::Bpe(bpe) => bpe.encode(text, index, output),
            Self::Dna(dna) => dna.encode(text, index, output),
            Self::Whitespace(whitespace) => whitespace.encode(text, index, output),
            Self::Wpm(wpm) => wpm.encode(text, index, output),
            Self::Ugm(ugm) => ugm.encode(text, output),
            Self::Rwkv(rwkv) => rwkv.encode(text, output),
            Self::Plamo2(plamo2) => plamo2.encode(text, output),
            Self::Llama2c(llama2c) => llama2c.encode(text, output),
        }
    }

    /// The bytes that token `id`, spelled `piece`, writes.
    pub fn token_bytes<'p>(&self, piece: &'p str, id: u32, kind: TokenKind) -> Result<Cow<'p, [u8]>> {
        let literal = || Cow::Borrowed(piece.as_bytes());
        Ok(match (self, kind) {
            (Self::Llama2c(llama2c), _) => llama2c.bytes(id).into(),
            (_, TokenKind::Control | TokenKind::Unknown) => literal(),
            (Self::Rwkv(_), _) => rwkv::unescaped(piece, id)?.into(),
            (_, TokenKind::UserDefined) => literal(),
            (_, TokenKind::Byte) => {
                byte_of_hex_piece(piece.as_bytes()).map_or_else(literal, |b| vec![b].into())
            }
            (Self::Bpe(bpe), _) => bpe.text_of_piece(piece).into(),
            (Self::Dna(dna), _) => dna.text_of_piece(piece, id).into(),
            (Self::Whitespace(whitespace), _) => whitespace.text_of_piece(piece).into(),
            (Self::Spm(_) | Self::Wpm(_) | Self::Ugm(_), _) if piece.contains(SPACE) => {
                piece.replace(SPACE, " ").into_bytes().into()
            }
            _ => literal(),
        })
    }
}
