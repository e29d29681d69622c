//! `tokenize` and `detokenize`: text to ids and back.

use clap::Args;
use std::path::PathBuf;

/// Turn text into token ids.
///
/// The text is taken as it is, a line end at its end included.
#[derive(Args, Debug)]
pub struct Tokenize {
    /// Model or vocabulary file [default: the embedded model].
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Text [default: stdin].
    #[arg(value_name = "TEXT", conflicts_with_all = ["prompt", "file"])]
    pub text: Option<String>,
    /// Text.
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", conflicts_with = "file")]
    pub prompt: Option<String>,
    /// File with the text; `-`: stdin.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Ids on one line, separated by spaces.
    #[arg(long, conflicts_with = "json")]
    pub ids: bool,
    /// A JSON array of {id, piece}.
    #[arg(long)]
    pub json: bool,
    /// Add no BOS or EOS token.
    #[arg(long)]
    pub no_bos: bool,
    /// Treat special tokens in the text as text.
    #[arg(long)]
    pub no_parse_special: bool,
    /// tokenizer.bin of a llama2.c checkpoint [default: beside the checkpoint].
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}

/// Turn token ids into text.
#[derive(Args, Debug)]
pub struct Detokenize {
    /// Model or vocabulary file [default: the embedded model].
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Ids, separated by spaces or commas [default: stdin].
    #[arg(value_name = "IDS")]
    pub ids: Vec<String>,
    /// Show special tokens as their names.
    #[arg(long)]
    pub special: bool,
    /// tokenizer.bin of a llama2.c checkpoint [default: beside the checkpoint].
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
}
