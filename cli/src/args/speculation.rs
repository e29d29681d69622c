//! What guesses the next tokens of texts.

use crate::values;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Speculative decoding: next tokens are guessed, and one step of the model computes them all.
#[derive(Args, Debug, Clone, Default)]
pub struct SpecArgs {
    /// What guesses the next tokens of a text, which one step of the model then checks: the text stays the same, in fewer
    /// steps [default: draft with --model-draft, else none].
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Speculative decoding")]
    pub spec_type: Option<SpecType>,
    /// What guesses: a smaller model with the same vocabulary, a file or a model of the store; or a file of layers that predict
    /// ahead for this model (gemma4-assistant).
    #[arg(long, value_name = "FILE", help_heading = "Speculative decoding")]
    pub model_draft: Option<PathBuf>,
    /// Most guesses of a text in a step.
    #[arg(long, value_name = "N", value_parser = values::whole, default_value_t = 3)]
    #[arg(allow_negative_numbers = true, help_heading = "Speculative decoding")]
    pub draft_max: usize,
    /// Probability, among the ten likeliest tokens of what guesses, below which a token is not guessed, nor any after it.
    #[arg(long, value_name = "P", value_parser = values::probability, default_value_t = 0.4)]
    #[arg(allow_negative_numbers = true, help_heading = "Speculative decoding")]
    pub draft_p_min: f32,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpecType {
    /// Nothing.
    None,
    /// The model of --model-draft.
    #[value(aliases = ["draft-simple", "draft-mtp"])]
    Draft,
    /// The text itself: what followed its last tokens where they came before.
    #[value(alias = "ngram-simple")]
    Ngram,
}
