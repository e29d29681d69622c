//! A vocabulary as plain data: what a GGUF file stores about its tokenizer, and whether it fits together.

use crate::error::{Error, Result};
use crate::limits::MAX_TOKEN_BYTES;
use crate::tokenizer::Index;

/// How text becomes ids: the value of `tokenizer.ggml.model`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelKind {
    /// `llama`: SentencePiece-like, merges by score, falls back to byte tokens.
    Spm,
    /// `gpt2`: byte-level BPE, merges by rank after a pre-tokenizer.
    Bpe,
    /// `gemma4`: BPE over the characters of a line, by a pre-tokenizer of its own.
    Gemma4,
    /// `hybriddna`: BPE with stretches of DNA.
    Dna,
    /// `whitespace`: BPE of the words between spaces, which are lost.
    Whitespace,
    /// `bert`: WordPiece, longest match first.
    Wpm,
    /// `t5`: unigram, the likeliest tokens of the normalised text.
    Ugm,
    /// `rwkv`: longest match first, over bytes.
    Rwkv,
    /// `plamo2`: the tokens with the highest sum of scores, falls back to byte tokens.
    Plamo2,
}

impl ModelKind {
    const NAMES: [(&'static str, Self); 9] = [
        ("llama", Self::Spm),
        ("gpt2", Self::Bpe),
        ("gemma4", Self::Gemma4),
        ("hybriddna", Self::Dna),
        ("whitespace", Self::Whitespace),
        ("bert", Self::Wpm),
        ("t5", Self::Ugm),
        ("rwkv", Self::Rwkv),
        ("plamo2", Self::Plamo2),
    ];

    /// Whether it merges by rank after a pre-tokenizer.
    pub(crate) fn is_bpe(self) -> bool {
        matches!(self, Self::Bpe | Self::Gemma4 | Self::Dna | Self::Whitespace)
    }

    /// The model that `tokenizer.ggml.model` calls `name`.
    pub(crate) fn find(name: &str) -> Result<Self> {
        let known = Self::NAMES.into_iter().find(|(known, _)| *known == name);
        known.map(|(_, kind)| kind).ok_or_else(|| {
            let names = Self::NAMES.map(|(known, _)| known).join(", ");
            Error::UnknownModel { found: name.to_string(), expected: names }
        })
    }
}

/// What a token is for: the numbers of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// Not given.
    Undefined = 0,
    /// Ordinary text.
    Normal = 1,
    /// Stands for text the vocabulary lacks.
    Unknown = 2,
    /// Steers the model, is no text: start, end, roles.
    Control = 3,
    /// Text that is never split.
    UserDefined = 4,
    /// Kept free.
    Unused = 5,
    /// One byte, spelled `<0x0A>`.
    Byte = 6,
}

impl TokenKind {
    /// The kind with this number, if there is one.
    pub fn from_number(number: i32) -> Option<Self> {
        use TokenKind::*;
        [Undefined, Normal, Unknown, Control, UserDefined, Unused, Byte]
            .into_iter()
            .find(|k| *k as i32 == number)
    }
}

/// Everything a [`crate::Tokenizer`] is built from. `None` means the file has no such key; the usual rule of the model
/// and of its pre-tokenizer then decides.
#[derive(Clone, Debug)]
pub struct Vocab {
    /// `tokenizer.ggml.model`.
    pub model: ModelKind,
    /// `tokenizer.ggml.pre`: how BPE cuts text into words. Setting it to `default` is the way to go on when the
    /// file's own name is not known.
    pub pre: Option<String>,
    /// Text of each token, by id.
    pub tokens: Vec<String>,
    /// Score of each token, or empty. Higher merges first (SPM).
    pub scores: Vec<f32>,
    /// [`TokenKind`] number of each token, or empty.
    pub token_types: Vec<i32>,
    /// BPE merges, best first, each "left right".
    pub merges: Vec<String>,
    /// `tokenizer.ggml.precompiled_charsmap`: how unigram models normalise characters; empty: not at all.
    pub charsmap: Vec<u8>,

    /// Starts a sequence (WPM: `[CLS]`).
    pub bos: Option<u32>,
    /// Ends a sequence.
    pub eos: Option<u32>,
    /// Ends a turn of a chat.
    pub eot: Option<u32>,
    /// Ends a message that calls a tool.
    pub eom: Option<u32>,
    /// Stands for text the vocabulary lacks.
    pub unk: Option<u32>,
    /// Ends a segment (WPM: `[SEP]`).
    pub sep: Option<u32>,
    /// Fills a batch.
    pub pad: Option<u32>,
    /// `[CLS]`, where the file names it apart from `bos`.
    pub cls: Option<u32>,
    /// `[MASK]`.
    pub mask: Option<u32>,
    /// Fills the hole of a code model, and ends a generation, as do the next two.
    pub fim_pad: Option<u32>,
    /// Starts a repository in a code model.
    pub fim_rep: Option<u32>,
    /// Stands between the files of a repository.
    pub fim_sep: Option<u32>,

    /// Whether `add_special` puts `bos` in front.
    pub add_bos: Option<bool>,
    /// Whether `add_special` puts `eos` at the end.
    pub add_eos: Option<bool>,
    /// Whether `add_special` puts `sep` at the end (WPM).
    pub add_sep: Option<bool>,
    /// Whether SPM puts a space before the text.
    pub add_space_prefix: Option<bool>,
    /// Whether runs of spaces shrink to one. Only unigram models do so; SPM and BPE keep every space.
    pub remove_extra_whitespaces: Option<bool>,
    /// Whether WPM lowers the case.
    pub lowercase: Option<bool>,
    /// Whether WPM drops accents; the same as `lowercase` where not given.
    pub strip_accents: Option<bool>,

    /// Tokens that no text is continued with; those past the last token do not count.
    pub suppressed: Vec<i32>,

    /// `tokenizer.chat_template`.
    pub chat_template: Option<String>,
    /// `general.name` and `general.architecture`: some families strip spaces around their special tokens, and the
    /// files show it in no other way.
    pub name: String,
    /// See `name`.
    pub arch: String,
}

impl Vocab {
    /// A vocabulary of these tokens where everything else follows the usual rule.
    pub fn new(model: ModelKind, tokens: Vec<String>) -> Self {
        Self {
            model,
            pre: None,
            tokens,
            scores: Vec::new(),
            token_types: Vec::new(),
            merges: Vec::new(),
            charsmap: Vec::new(),
            bos: None,
            eos: None,
            eot: None,
            eom: None,
            unk: None,
            sep: None,
            pad: None,
            cls: None,
            mask: None,
            fim_pad: None,
            fim_rep: None,
            fim_sep: None,
            add_bos: None,
            add_eos: None,
            add_sep: None,
            add_space_prefix: None,
            remove_extra_whitespaces: None,
            lowercase: None,
            strip_accents: None,
            suppressed: Vec::new(),
            chat_template: None,
            name: String::new(),
            arch: String::new(),
        }
    }

    /// Text to id. Empty tokens, which some files have as padding, cannot be looked up.
    pub(crate) fn index(&self) -> Result<Index> {
        if self.tokens.is_empty() || self.tokens.len() > MAX_TOKENS as usize {
            return Err(Error::BadTokenCount { found: self.tokens.len(), most: MAX_TOKENS });
        }
        let mut index = Index::with_capacity(self.tokens.len());
        for (id, text) in (0..).zip(&self.tokens).filter(|(_, text)| !text.is_empty()) {
            if text.len() > MAX_TOKEN_BYTES {
                return Err(Error::LongToken { id, found: text.len(), most: MAX_TOKEN_BYTES });
            }
            if let Some(first) = index.insert(text.as_str().into(), id) {
                return Err(Error::DuplicateToken { text: text.clone(), first, second: id });
            }
        }
        Ok(index)
    }

    /// The kind of each token: all are normal where the file has none.
    pub(crate) fn kinds(&self) -> Result<Vec<TokenKind>> {
        self.check_length("tokenizer.ggml.token_type", self.token_types.len())?;
        if self.token_types.is_empty() {
            return Ok(vec![TokenKind::Normal; self.tokens.len()]);
        }
        let kind = |(index, number): (usize, &i32)| {
            TokenKind::from_number(*number).ok_or(Error::BadTokenType { index, found: *number })
        };
        self.token_types.iter().enumerate().map(kind).collect()
    }

    /// The scores must be numbers, one per token or none at all.
    pub(crate) fn check_scores(&self) -> Result<()> {
        self.check_length("tokenizer.ggml.scores", self.scores.len())?;
        match self.scores.iter().position(|score| score.is_nan()) {
            Some(index) => Err(Error::BadScore { index, found: self.scores[index] }),
            None => Ok(()),
        }
    }

    fn check_length(&self, key: &'static str, found: usize) -> Result<()> {
        let expected = self.tokens.len();
        if found == 0 || found == expected {
            Ok(())
        } else {
            Err(Error::WrongLength { key, found, expected })
        }
    }
}

/// Leaves room above the ids for pieces that only merges name.
const MAX_TOKENS: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use crate::{ModelKind, Tokenizer, Vocab};

    fn check_fails(model: ModelKind, tokens: &[&str], damage: impl FnOnce(&mut Vocab), expected: &str) {
        let mut vocab = Vocab::new(model, tokens.iter().map(|t| (*t).to_string()).collect());
        damage(&mut vocab);
        let error = Tokenizer::new(vocab).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn a_token_may_not_appear_twice() {
        check_fails(ModelKind::Spm, &["a", "b", "a"], |_| {}, r#""a" twice, as 0 and as 2"#);
    }

    #[test]
    fn a_token_of_more_bytes_than_any_vocabulary_has_is_refused() {
        check_fails(
            ModelKind::Spm,
            &["a", &"b".repeat(2049)],
            |_| {},
            "token 1 has 2049 bytes: expected at most 2048",
        );
    }

    #[test]
    fn empty_tokens_are_padding() {
        let tokens = ["<unk>", "", "", "a"].map(String::from).to_vec();
        assert!(Tokenizer::new(Vocab::new(ModelKind::Spm, tokens)).is_ok());
    }

    #[test]
    fn arrays_must_be_as_long_as_the_vocabulary() {
        check_fails(
            ModelKind::Spm,
            &["a"],
            |v| v.scores = vec![0.0; 2],
            "tokenizer.ggml.scores has 2 entries",
        );
        check_fails(
            ModelKind::Spm,
            &["a"],
            |v| v.token_types = vec![1; 3],
            "tokenizer.ggml.token_type has 3",
        );
        check_fails(ModelKind::Spm, &[], |_| {}, "tokenizer.ggml.tokens has 0 entries");
    }

    #[test]
    fn values_out_of_range_are_named() {
        check_fails(ModelKind::Spm, &["a"], |v| v.scores = vec![f32::NAN], "tokenizer.ggml.scores[0]");
        check_fails(ModelKind::Spm, &["a"], |v| v.token_types = vec![7], "tokenizer.ggml.token_type[0] is 7");
        check_fails(ModelKind::Spm, &["a"], |v| v.eos = Some(1), "tokenizer.ggml.eos_token_id is 1");
        check_fails(ModelKind::Wpm, &["a"], |v| v.sep = Some(9), "seperator_token_id is 9");
        check_fails(ModelKind::Bpe, &["a"], |v| v.merges = vec!["ab".into()], r#"merges[0] is "ab""#);
        check_fails(ModelKind::Bpe, &["a"], |v| v.merges = vec!["".into()], r#"merges[0] is """#);
    }

    #[test]
    fn a_flag_without_its_id_is_named() {
        check_fails(
            ModelKind::Bpe,
            &["a"],
            |v| v.add_eos = Some(true),
            "tokenizer.ggml.add_eos_token is true",
        );
    }

    #[test]
    fn an_unknown_pretokenizer_is_an_error_and_default_goes_on() {
        check_fails(ModelKind::Bpe, &["a"], |v| v.pre = Some("new-one".into()), "`new-one`");
        let vocab = Vocab { pre: Some("default".into()), ..Vocab::new(ModelKind::Bpe, vec!["a".into()]) };
        assert!(Tokenizer::new(vocab).is_ok());
    }
}
