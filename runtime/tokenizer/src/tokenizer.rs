//! The tokenizer: text to ids, and what an id is.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use llmrt_gguf::Metadata;

use crate::decode::Decoder;
use crate::ends;
use crate::error::{Error, Result};
use crate::ids::Ids;
use crate::limits::{Limits, MAX_TOKEN_BYTES, Output};
use crate::llama2c::{self, Llama2c};
use crate::model::Model;
use crate::pretokenizer::Rule;
use crate::prompt::Prompt;
use crate::special::{Parse, Part, Specials};
use crate::vocab::{ModelKind, TokenKind, Vocab};

/// Token text to id.
pub(crate) type Index = HashMap<Box<str>, u32>;

/// Text to token ids and back. Built once per model, shared freely.
#[derive(Debug)]
pub struct Tokenizer {
    model: Model,
    tokens: Vec<String>,
    index: Index,
    kinds: Vec<TokenKind>,
    pub(crate) ids: Ids,
    /// The text of a prompt that ranks a document for a query.
    pub(crate) pair_template: Option<String>,
    specials: Specials,
    ends: BTreeSet<u32>,
    suppressed: Vec<u32>,
    warnings: Vec<String>,
}

/// What [`Tokenizer::encode`] does besides encoding text.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct EncodeOptions {
    /// Put `bos`, `eos`, `sep` around the text as the vocabulary requires.
    pub add_special: bool,
    /// Take control tokens in the text as tokens: right for a rendered chat template, wrong for text of a user.
    pub parse_special: bool,
}

impl Tokenizer {
    /// Reads the vocabulary of a GGUF file and builds its tokenizer.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let pair_template = metadata.optional::<&str>("tokenizer.chat_template.rerank")?.map(String::from);
        Ok(Self { pair_template, ..Self::new(Vocab::from_metadata(metadata)?)? })
    }

    /// Builds the tokenizer of `vocab`. An unknown `vocab.pre` is an error that lists the nearest ones; set it to
    /// `default` to go on.
    pub fn new(vocab: Vocab) -> Result<Self> {
        let index = vocab.index()?;
        let mut kinds = vocab.kinds()?;
        vocab.check_scores()?;

        let mut warnings = Vec::new();
        let rule = match (vocab.model, vocab.pre.as_deref()) {
            (ModelKind::Gemma4, _) => Some(Rule::find("gemma4")?),
            (model, _) if !model.is_bpe() => None,
            (_, Some(name)) => Some(Rule::find(name)?),
            (_, None) => {
                warnings
                    .push("tokenizer.ggml.pre is missing: `default` is used and may cut text wrongly".into());
                Some(Rule::find("default")?)
            }
        };
        let mut ids = Ids::new(&vocab, rule)?;
        let ends = ends::find(&index, &mut kinds, &mut ids);

        let model = Model::new(&vocab, &kinds, rule, &index, &ids)?;
        let specials = Specials::new(&vocab, &kinds)?;
        let token = |&id: &i32| u32::try_from(id).ok().filter(|&id| (id as usize) < vocab.tokens.len());
        let suppressed = vocab.suppressed.iter().filter_map(token).collect();
        Ok(Self {
            model,
            tokens: vocab.tokens,
            index,
            kinds,
            ids,
            pair_template: None,
            specials,
            ends,
            suppressed,
            warnings,
        })
    }

    /// The tokenizer of a llama2.c checkpoint: score and bytes of each of its tokens, from `tokenizer.bin`. It encodes and
    /// decodes as llama2.c does: no token in a text is special, a generation ends at `bos` and goes on after `eos`,
    /// whose text is shown, and a single byte that is not printable ASCII is not shown.
    pub fn llama2c(pieces: Vec<(f32, Vec<u8>)>) -> Result<Self> {
        if pieces.len() < 3 {
            return Err(Error::TooFewPieces { found: pieces.len() });
        }
        for (id, (_, bytes)) in (0..).zip(&pieces) {
            if bytes.len() > MAX_TOKEN_BYTES {
                return Err(Error::LongToken { id, found: bytes.len(), most: MAX_TOKEN_BYTES });
            }
        }
        let tokens: Vec<String> =
            pieces.iter().map(|(_, b)| String::from_utf8_lossy(b).into_owned()).collect();
        let vocab = Vocab::new(ModelKind::Spm, tokens);
        let ids = Ids::new(&vocab, None)?;
        let mut index = Index::new();
        for (id, text) in (0..).zip(&vocab.tokens) {
            index.entry(text.as_str().into()).or_insert(id);
        }
        let kind = |id: u32| if id == llama2c::BOS { TokenKind::Control } else { TokenKind::Normal };
        Ok(Self {
            kinds: (0..pieces.len() as u32).map(kind).collect(),
            model: Model::Llama2c(Llama2c::new(pieces)),
            tokens: vocab.tokens,
            index,
            ids,
            pair_template: None,
            specials: Specials::default(),
            ends: [llama2c::BOS].into(),
            suppressed: Vec::new(),
            warnings: Vec::new(),
        })
    }

    /// The ids of `text`. Fails where the vocabulary has no token for some part of it, not even an unknown one; but BPE
    /// leaves such bytes out.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>> {
        self.encode_within(text, options, Limits::NONE)
    }

    /// The ids of `text`, within limits on its length, and with a cancel flag.
    pub fn encode_within(&self, text: &str, options: EncodeOptions, limits: Limits) -> Result<Vec<u32>> {
        let mut output = Output::new(limits);
        if options.add_special && self.ids.add_bos {
            push(self.ids.bos, &mut output)?;
        }
        self.encode_parts(text, Parse { control: options.parse_special, literal: &[] }, &mut output)?;
        if options.add_special && self.ids.add_eos {
            push(self.ids.eos, &mut output)?;
        }
        if options.add_special && self.ids.add_sep {
            push(self.ids.sep, &mut output)?;
        }
        Ok(output.into_ids())
    }

    /// The ids of a rendered chat: control tokens that the template wrote are parsed, those in messages are text, and
    /// `bos` is added only where the template did not write it.
    pub fn encode_prompt(&self, prompt: &Prompt, limits: Limits) -> Result<Vec<u32>> {
        let bos_text = self.ids.bos.and_then(|bos| self.piece(bos));
        let is_written = bos_text.is_some_and(|bos| prompt.text().starts_with(bos) && !prompt.is_literal(0));
        let mut output = Output::new(limits);
        push(self.ids.bos.filter(|_| self.ids.add_bos && !is_written), &mut output)?;
        let n_before = output.len();
        self.encode_parts(prompt.text(), prompt.parse(), &mut output)?;
        if output.len() == n_before { Err(Error::EmptyPrompt) } else { Ok(output.into_ids()) }
    }

    /// The ids of the end of a rendered chat, whose beginning is encoded already.
    pub fn encode_rest(&self, rest: &Prompt, limits: Limits) -> Result<Vec<u32>> {
        let mut output = Output::new(limits);
        self.encode_parts(rest.text(), rest.parse(), &mut output)?;
        Ok(output.into_ids())
    }

    /// The most bytes of text that `n_tokens` tokens cover.
    pub fn max_bytes(&self, n_tokens: usize) -> usize {
        let longest = self.tokens.iter().map(String::len).max().unwrap_or(0);
        n_tokens.saturating_mul(longest)
    }

    pub(crate) fn encode_parts(&self, text: &str, parse: Parse, output: &mut Output) -> Result<()> {
        let mut parts = self.specials.split(text, parse);
        let mut after_special = true;
        while let Some(part) = parts.next(output)? {
            match part {
                Part::Token(id) => output.push(id)?,
                Part::Text(text) => self.model.encode(text, after_special, &self.ids, &self.index, output)?,
            }
            after_special = matches!(part, Part::Token(_));
        }
        Ok(())
    }

    /// The text of `ids`, which start a sequence: the space that SPM puts before a text is taken off again. Control
    /// tokens are written only with `render_special`.
    pub fn decode(&self, ids: &[u32], render_special: bool) -> Result<String> {
        let mut decoder = self.decoder(render_special);
        let mut text = String::new();
        for id in ids {
            text.push_str(&decoder.push(*id)?);
        }
        text.push_str(&decoder.flush());
        Ok(text)
    }

    /// Decodes ids one at a time, from the start of a sequence.
    pub fn decoder(&self, render_special: bool) -> Decoder<&Tokenizer> {
        Decoder::new(self, render_special)
    }

    /// The bytes that a token writes; not always whole characters. Control tokens give their own text.
    pub fn token_bytes(&self, id: u32) -> Result<Cow<'_, [u8]>> {
        self.model.token_bytes(self.token(id)?, id, self.kinds[id as usize])
    }

    /// Whether `id` ends a generation: end of sequence, of turn, of message, or a token known to mean so.
    pub fn is_eog(&self, id: u32) -> bool {
        self.ends.contains(&id)
    }

    /// Tokens that the file forbids to pick (`tokenizer.ggml.suppress_tokens`).
    pub fn suppressed(&self) -> &[u32] {
        &self.suppressed
    }

    /// Whether `id` is a control or unknown token, which decoding hides by default.
    pub fn is_special(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Control | TokenKind::Unknown))
    }

    /// What the token is for.
    pub fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    /// Starts a sequence.
    pub fn bos(&self) -> Option<u32> {
        self.ids.bos
    }

    /// Ends a sequence.
    pub fn eos(&self) -> Option<u32> {
        self.ids.eos
    }

    /// Ends a turn of a chat.
    pub fn eot(&self) -> Option<u32> {
        self.ids.eot
    }

    /// Stands for text the vocabulary lacks.
    pub fn unk(&self) -> Option<u32> {
        self.ids.unk
    }

    /// Fills a batch.
    pub fn pad(&self) -> Option<u32> {
        self.ids.pad
    }

    /// Stands for a word to guess.
    pub fn mask(&self) -> Option<u32> {
        self.ids.mask
    }

    /// Whether `add_special` puts `bos` in front.
    pub fn adds_bos(&self) -> bool {
        self.ids.add_bos
    }

    /// Ids run from 0 to one below this.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// The token as the vocabulary spells it.
    pub fn piece(&self, id: u32) -> Option<&str> {
        self.tokens.get(id as usize).map(String::as_str)
    }

    /// The id of a token as the vocabulary spells it.
    pub fn find(&self, piece: &str) -> Option<u32> {
        self.index.get(piece).copied()
    }

    /// Warnings about this vocabulary, which works nevertheless.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn token(&self, id: u32) -> Result<&str> {
        self.piece(id).ok_or(Error::NoSuchToken { id, n_tokens: self.tokens.len() })
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    pub(crate) fn specials(&self) -> &Specials {
        &self.specials
    }

    pub(crate) fn add_space_prefix(&self) -> bool {
        self.ids.add_space_prefix
    }
}

pub(crate) fn push(id: Option<u32>, output: &mut Output) -> Result<()> {
    id.map_or(Ok(()), |id| output.push(id))
}
