//! The special ids and what is put around a text: the keys of the file, else the usual rule of its model.

use crate::error::{Error, Result};
use crate::pretokenizer::{AddBos, Rule};
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
    /// They end a generation.
    pub fim: [Option<u32>; 3],
    pub add_bos: bool,
    pub add_eos: bool,
    pub add_sep: bool,
    pub add_space_prefix: bool,
}

impl Ids {
    pub fn new(vocab: &Vocab, rule: Option<&Rule>) -> Result<Self> {
        let usual = Self::usual(vocab);
        let id = |key: &'static str, given: Option<u32>, usual: Option<u32>| match given {
            Some(id) if id as usize >= vocab.tokens.len() => {
                Err(Error::SpecialOutOfRange { key, found: id, n_tokens: vocab.tokens.len() })
            }
            Some(id) => Ok(Some(id)),
            None => Ok(usual.filter(|id| (*id as usize) < vocab.tokens.len())),
        };
        let around = Around::new(vocab, rule);
        let bos = id(BOS, vocab.bos.or(vocab.cls), usual.bos)?;
        let eos = id(EOS, vocab.eos, usual.eos)?;
        let sep = id(SEP, vocab.sep, usual.sep)?;
        let ids = Self {
            bos,
            eos,
            eot: id("tokenizer.ggml.eot_token_id", vocab.eot, None)?,
            eom: id("tokenizer.ggml.eom_token_id", vocab.eom, None)?,
            unk: id("tokenizer.ggml.unknown_token_id", vocab.unk, usual.unk)?,
            sep,
            pad: id("tokenizer.ggml.padding_token_id", vocab.pad, usual.pad)?,
            mask: id("tokenizer.ggml.mask_token_id", vocab.mask, usual.mask)?,
            fim: [
                id("tokenizer.ggml.fim_pad_token_id", vocab.fim_pad, None)?,
                id("tokenizer.ggml.fim_rep_token_id", vocab.fim_rep, None)?,
                id("tokenizer.ggml.fim_sep_token_id", vocab.fim_sep, None)?,
            ],
            add_bos: around.bos.unwrap_or(bos.is_some()),
            add_eos: around.eos.unwrap_or(eos.is_some()),
            add_sep: around.sep && sep.is_some(),
            add_space_prefix: vocab.add_space_prefix.unwrap_or(usual.add_space_prefix),
        };
        ids.check_flags()?;
        Ok(ids)
    }

    fn usual(vocab: &Vocab) -> Self {
        match vocab.model {
            ModelKind::Spm => {
                Self { bos: Some(1), eos: Some(2), unk: Some(0), add_space_prefix: true, ..Self::default() }
            }
            ModelKind::Wpm => Self {
                bos: Some(101),
                unk: Some(100),
                sep: Some(102),
                pad: Some(0),
                mask: Some(103),
                ..Self::default()
            },
            ModelKind::Bpe | ModelKind::Dna | ModelKind::Whitespace => {
                let falcon = (vocab.pre.as_deref() == Some("falcon")).then_some(11); // its files name none
                Self { bos: falcon, eos: falcon, ..Self::default() }
            }
            ModelKind::Ugm => Self { eos: Some(1), unk: Some(2), pad: Some(0), ..Self::default() },
            ModelKind::Plamo2 => {
                Self { bos: Some(1), eos: Some(2), unk: Some(0), pad: Some(3), ..Self::default() }
            }
            ModelKind::Gemma4 | ModelKind::Rwkv => Self::default(),
        }
    }

    fn check_flags(&self) -> Result<()> {
        let missing = [
            (self.add_bos, self.bos, "tokenizer.ggml.add_bos_token", BOS),
            (self.add_eos, self.eos, "tokenizer.ggml.add_eos_token", EOS),
        ];
        match missing.into_iter().find(|(flag, id, ..)| *flag && id.is_none()) {
            Some((_, _, flag, key)) => Err(Error::SpecialMissing { flag, key }),
            None => Ok(()),
        }
    }
}

/// What is put around a text. `None`: the id, if there is one.
struct Around {
    bos: Option<bool>,
    eos: Option<bool>,
    sep: bool,
}

impl Around {
    /// Each model has flags that it heeds and flags that it does not; `rule` is the pre-tokenizer of a BPE vocabulary.
    fn new(vocab: &Vocab, rule: Option<&Rule>) -> Self {
        let eos = Some(vocab.add_eos.unwrap_or(false));
        match vocab.model {
            ModelKind::Spm => Self { bos: vocab.add_bos, eos, sep: false },
            ModelKind::Bpe | ModelKind::Gemma4 | ModelKind::Dna | ModelKind::Whitespace => {
                let bos = match rule.map_or(AddBos::IfKey, |rule| rule.bos) {
                    AddBos::IfKey => Some(vocab.add_bos.unwrap_or(false)),
                    AddBos::UnlessKey => vocab.add_bos,
                    AddBos::Always => None,
                };
                Self { bos, eos, sep: false }
            }
            ModelKind::Wpm => Self { bos: None, eos: Some(false), sep: true },
            ModelKind::Ugm => {
                Self { bos: Some(vocab.add_bos.unwrap_or(false)), eos: vocab.add_eos, sep: false }
            }
            ModelKind::Rwkv | ModelKind::Plamo2 => Self { bos: Some(false), eos: Some(false), sep: false },
        }
    }
}

const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const SEP: &str = "tokenizer.ggml.seperator_token_id";
