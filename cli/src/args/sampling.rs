//! How the next token is chosen.

use crate::values::{self, Seed};
use clap::{Args, ValueEnum};

/// How the next token is chosen.
#[derive(Args, Debug, Clone)]
pub struct SamplingArgs {
    /// Temperature; 0 always takes the likeliest token [default: 0.8; with --sampler llama2c: 1.0].
    #[arg(long, value_name = "T", value_parser = values::number, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub temp: Option<f32>,
    /// Keep the K likeliest tokens; 0 or less: all [default: 40].
    #[arg(long, value_name = "K", value_parser = values::signed, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub top_k: Option<i64>,
    /// Keep the likeliest tokens up to this share of probability [default: 0.95; with --sampler llama2c: 0.9].
    #[arg(long, value_name = "P", value_parser = values::number, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than P times the likeliest [default: 0.05].
    #[arg(long, value_name = "P", value_parser = values::number, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub min_p: Option<f32>,
    /// Locally typical sampling; 1: off [default: 1].
    #[arg(long, value_name = "P", value_parser = values::number, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub typical: Option<f32>,
    /// Divide logits of repeated tokens by this; 1: off [default: 1].
    #[arg(long, value_name = "X", value_parser = values::number, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub repeat_penalty: Option<f32>,
    /// Tokens that count as repeated; 0: none, -1: the context [default: 64].
    #[arg(long, value_name = "N", value_parser = values::signed, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub repeat_last_n: Option<i64>,
    /// Lower logits by this per occurrence [default: 0].
    #[arg(long, value_name = "X", value_parser = values::number, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub frequency_penalty: Option<f32>,
    /// Lower logits of tokens that occurred by this [default: 0].
    #[arg(long, value_name = "X", value_parser = values::number, allow_negative_numbers = true)]
    #[arg(help_heading = "Sampling")]
    pub presence_penalty: Option<f32>,
    /// Add to a token's logit: ID+BIAS or ID-BIAS; ID-inf forbids the token (repeatable).
    #[arg(long, value_name = "ID±BIAS", allow_hyphen_values = true, help_heading = "Sampling")]
    pub logit_bias: Vec<String>,
    /// Random seed; -1: from the clock [default: -1].
    #[arg(short = 's', long, value_name = "N", allow_negative_numbers = true, help_heading = "Sampling")]
    pub seed: Option<Seed>,
    /// Stop when this text appears; it is not printed (repeatable).
    #[arg(long, value_name = "TEXT", help_heading = "Sampling")]
    pub stop: Vec<String>,
    /// Do not stop at a token that ends a text: generate up to -n, a stop text or the end of the context.
    #[arg(long, help_heading = "Sampling")]
    pub ignore_eos: bool,
    /// `llama2c` behaves as llama2.c's `run`: its sampler and random numbers, the prompt echoed.
    #[arg(long, value_enum, default_value_t, value_name = "NAME", help_heading = "Sampling")]
    pub sampler: SamplerArg,
}

#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SamplerArg {
    /// The chain of stages above.
    #[default]
    Chain,
    /// llama2.c's.
    Llama2c,
}
