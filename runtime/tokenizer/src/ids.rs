//! The special ids and what is put around a text: the keys of the file, else the usual rule of its model.

use crate::error::{Error, Result};
use crate::pretokenizer::Rule;
use crate::vocab::{ModelKind, Vocab};

/// Ids that are in range, and flags whose ids are there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ids {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub eot: Option<u32>,
    pub eom: Option<u32>,
    pub unk: Option<u32>,
    pub sep: Option<u32>,
    pub pad: Option<u32>,
    pub mask: Option<u32>,
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_sep: bool,
    pub add_space_prefix: bool,
}

impl Ids {
    /// `rule` is the pre-tokenizer of a BPE vocabulary.
    pub fn new(vocab: &Vocab, rule: Option<&Rule>) -> Result<Self> {
        let usual = Self::usual(vocab, rule);
        let id = |key: &'static str, given: Option<u32>, usual: Option<u32>| match given {
            Some(id) if id as usize >= vocab.tokens.len() => {
                Err(Error::SpecialOutOfRange { key, found: id, n_tokens: vocab.tokens.len() })
            }
            Some(id) => Ok(Some(id)),
            None => Ok(usual.filter(|id| (*id as usize) < vocab.tokens.len())),
        };
        let bos = id(BOS, vocab.bos.or(vocab.cls), usual.bos)?;
        let sep = id(SEP, vocab.sep, usual.sep)?;
        let ids = Self {
            bos,
            eos: id(EOS, vocab.eos, usual.eos)?,
            eot: id("tokenizer.ggml.eot_token_id", vocab.eot, None)?,
            eom: id("tokenizer.ggml.eom_token_id", vocab.eom, None)?,
            unk: id("tokenizer.ggml.unknown_token_id", vocab.unk, usual.unk)?,
            sep,
            pad: id("tokenizer.ggml.padding_token_id", vocab.pad, usual.pad)?,
            mask: id("tokenizer.ggml.mask_token_id", vocab.mask, usual.mask)?,
            add_bos: vocab.add_bos.unwrap_or(usual.add_bos && bos.is_some()),
            add_eos: vocab.add_eos.unwrap_or(false),
            add_sep: vocab.add_sep.unwrap_or(usual.add_sep && sep.is_some()),
            add_space_prefix: vocab.add_space_prefix.unwrap_or(usual.add_space_prefix),
        };
        ids.check_flags()?;
        Ok(ids)
    }

    fn usual(vocab: &Vocab, rule: Option<&Rule>) -> Self {
        match vocab.model {
            ModelKind::Spm => Self {
                bos: Some(1),
                eos: Some(2),
                unk: Some(0),
                add_bos: true,
                add_space_prefix: true,
                ..Self::default()
            },
            ModelKind::Wpm => Self {
                bos: Some(101),
                unk: Some(100),
                sep: Some(102),
                pad: Some(0),
                mask: Some(103),
                add_bos: true,
                add_sep: true,
                ..Self::default()
            },
            ModelKind::Bpe => {
                let falcon = (vocab.pre.as_deref() == Some("falcon")).then_some(11); // its files name none
                Self { bos: falcon, eos: falcon, add_bos: rule.is_some_and(|r| r.add_bos), ..Self::default() }
            }
        }
    }

    fn check_flags(&self) -> Result<()> {
        let missing = [
            (self.add_bos, self.bos, "tokenizer.ggml.add_bos_token", BOS),
            (self.add_eos, self.eos, "tokenizer.ggml.add_eos_token", EOS),
            (self.add_sep, self.sep, "tokenizer.ggml.add_sep_token", SEP),
        ];
        match missing.into_iter().find(|(flag, id, ..)| *flag && id.is_none()) {
            Some((_, _, flag, key)) => Err(Error::SpecialMissing { flag, key }),
            None => Ok(()),
        }
    }
}

const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const SEP: &str = "tokenizer.ggml.seperator_token_id";
