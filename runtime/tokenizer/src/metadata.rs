//! Reads a vocabulary from the metadata of a GGUF file.

use llmrt_gguf::{Array, Metadata, Value};

use crate::error::{Error, Result};
use crate::vocab::{ModelKind, Vocab};

impl Vocab {
    /// Reads the `tokenizer.*` keys. An error names the key of the wrong type, or that the file has no vocabulary.
    pub fn from_metadata(metadata: &Metadata) -> Result<Self> {
        let model = match metadata.require_str("tokenizer.ggml.model")? {
            none @ ("no_vocab" | "none") => return Err(Error::NoVocabulary { found: none.to_string() }),
            name => ModelKind::find(name)?,
        };
        let text = |key| metadata.optional::<&str>(key).map(|text| text.map(str::to_string));
        let flag = |key| metadata.optional::<bool>(key);
        let pre = text("tokenizer.ggml.pre")?.filter(|name| !name.is_empty());
        let merges: &[String] = match (model, pre.as_deref()) {
            (ModelKind::Bpe, Some("kimi-k2")) => metadata.optional(MERGES)?.unwrap_or_default(),
            _ if model.is_bpe() => metadata.require_strings(MERGES)?,
            _ => &[],
        };
        let charsmap = match model {
            ModelKind::Ugm => charsmap(metadata)?,
            _ => Vec::new(),
        };

        Ok(Self {
            pre,
            charsmap,
            scores: metadata.optional::<Vec<f32>>("tokenizer.ggml.scores")?.unwrap_or_default(),
            token_types: metadata.optional::<Vec<i32>>("tokenizer.ggml.token_type")?.unwrap_or_default(),
            merges: merges.to_vec(),

            bos: id(metadata, "tokenizer.ggml.bos_token_id")?,
            eos: id(metadata, "tokenizer.ggml.eos_token_id")?,
            eot: id(metadata, "tokenizer.ggml.eot_token_id")?,
            eom: id(metadata, "tokenizer.ggml.eom_token_id")?,
            unk: id(metadata, "tokenizer.ggml.unknown_token_id")?,
            sep: id(metadata, "tokenizer.ggml.seperator_token_id")?, // spelled so in the files
            pad: id(metadata, "tokenizer.ggml.padding_token_id")?,
            cls: id(metadata, "tokenizer.ggml.cls_token_id")?,
            mask: id(metadata, "tokenizer.ggml.mask_token_id")?,
            fim_pad: id(metadata, "tokenizer.ggml.fim_pad_token_id")?,
            fim_rep: id(metadata, "tokenizer.ggml.fim_rep_token_id")?,
            fim_sep: id(metadata, "tokenizer.ggml.fim_sep_token_id")?,

            add_bos: flag("tokenizer.ggml.add_bos_token")?,
            add_eos: flag("tokenizer.ggml.add_eos_token")?,
            add_sep: flag("tokenizer.ggml.add_sep_token")?,
            add_space_prefix: flag("tokenizer.ggml.add_space_prefix")?,
            remove_extra_whitespaces: flag("tokenizer.ggml.remove_extra_whitespaces")?,
            lowercase: flag("tokenizer.ggml.normalizer.lowercase")?,
            strip_accents: flag("tokenizer.ggml.normalizer.strip_accents")?,

            suppressed: metadata.optional::<Vec<i32>>("tokenizer.ggml.suppress_tokens")?.unwrap_or_default(),
            chat_template: text("tokenizer.chat_template")?,
            name: text("general.name")?.unwrap_or_default(),
            arch: text("general.architecture")?.unwrap_or_default(),
            ..Self::new(model, metadata.require_strings("tokenizer.ggml.tokens")?.to_vec())
        })
    }
}

const MERGES: &str = "tokenizer.ggml.merges";
const CHARSMAP: &str = "tokenizer.ggml.precompiled_charsmap";

/// The bytes of the map of characters, which files have as i8 or u8; none if they have no map.
fn charsmap(metadata: &Metadata) -> Result<Vec<u8>> {
    match metadata.get(CHARSMAP) {
        None => Ok(Vec::new()),
        Some(Value::Array(Array::U8(bytes))) => Ok(bytes.clone()),
        Some(Value::Array(Array::I8(bytes))) => Ok(bytes.iter().map(|byte| *byte as u8).collect()),
        Some(_) => Err(Error::BadCharsMap { reason: "it is no array of bytes" }),
    }
}

/// A token id; files write -1, or its u32 form, for "there is none".
fn id(metadata: &Metadata, key: &str) -> Result<Option<u32>> {
    if metadata.i64(key).is_some_and(|id| id == -1 || id == i64::from(u32::MAX)) {
        return Ok(None);
    }
    Ok(metadata.optional::<u32>(key)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(model: &str) -> Metadata {
        let mut metadata = Metadata::new();
        metadata.set("tokenizer.ggml.model", model);
        metadata.set("tokenizer.ggml.tokens", vec!["a".to_string(), "b".to_string()]);
        metadata
    }

    fn check_fails(metadata: &Metadata, expected: &str) {
        let error = Vocab::from_metadata(metadata).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn every_key_arrives_in_its_field() {
        let mut m = metadata("gpt2");
        m.set("tokenizer.ggml.pre", "qwen2");
        m.set("tokenizer.ggml.merges", vec!["a b".to_string()]);
        m.set("tokenizer.ggml.scores", vec![0.5f32, 1.0]);
        m.set("tokenizer.ggml.token_type", vec![1i32, 3]);
        m.set("tokenizer.ggml.bos_token_id", 1u32);
        m.set("tokenizer.ggml.seperator_token_id", 0u32);
        m.set("tokenizer.ggml.add_bos_token", true);
        m.set("tokenizer.ggml.suppress_tokens", vec![1i32, -1, 2]);
        m.set("tokenizer.chat_template", "{{ x }}");

        let vocab = Vocab::from_metadata(&m).expect("a good vocabulary");
        assert_eq!((vocab.model, vocab.pre.as_deref()), (ModelKind::Bpe, Some("qwen2")));
        assert_eq!((vocab.tokens.join(","), vocab.merges.join(",")), ("a,b".to_string(), "a b".to_string()));
        assert_eq!((&vocab.scores[..], &vocab.token_types[..]), (&[0.5, 1.0][..], &[1, 3][..]));
        assert_eq!((vocab.bos, vocab.sep, vocab.eos, vocab.add_bos), (Some(1), Some(0), None, Some(true)));
        assert_eq!(vocab.chat_template.as_deref(), Some("{{ x }}"));
        assert_eq!(vocab.suppressed, [1, -1, 2]);
        assert_eq!(crate::Tokenizer::new(vocab).expect("a tokenizer").suppressed(), [1]);
    }

    #[test]
    fn an_id_of_minus_one_means_there_is_none() {
        let mut m = metadata("llama");
        m.set("tokenizer.ggml.unknown_token_id", u32::MAX);
        m.set("tokenizer.ggml.padding_token_id", -1i32);
        let vocab = Vocab::from_metadata(&m).expect("a good vocabulary");
        assert_eq!((vocab.unk, vocab.pad), (None, None));
    }

    #[test]
    fn a_wrong_type_is_an_error_that_names_its_key() {
        let mut m = metadata("llama");
        m.set("tokenizer.ggml.scores", "high");
        check_fails(&m, "tokenizer.ggml.scores");
        let mut m = metadata("llama");
        m.set("tokenizer.ggml.bos_token_id", "first");
        check_fails(&m, "tokenizer.ggml.bos_token_id");
        let mut m = metadata("llama");
        m.set("tokenizer.ggml.suppress_tokens", "the last");
        check_fails(&m, "tokenizer.ggml.suppress_tokens");
        check_fails(&Metadata::new(), "tokenizer.ggml.model");
        check_fails(&metadata("gpt2"), "tokenizer.ggml.merges");
    }

    #[test]
    fn a_file_without_vocabulary_is_an_error_of_its_own() {
        check_fails(&metadata("no_vocab"), "no vocabulary");
        check_fails(
            &metadata("t5x"),
            "`t5x`: expected llama, gpt2, gemma4, hybriddna, whitespace, bert, t5, rwkv, plamo2",
        );
    }
}
