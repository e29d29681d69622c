//! The flags of `embed`.

use crate::args::{ContextArgs, ModelArgs};
use clap::{Args, ValueEnum};
use llmrt_engine::Pooling;
use std::path::PathBuf;

/// Turn texts into vectors, or pairs of texts into scores.
///
/// Models of the BERT family are made for it; of others the hidden states before the output head are taken. A line of
/// numbers is printed for each text, or for each token with --pooling none.
#[derive(Args, Debug)]
#[command(after_help = EMBED_HELP)]
pub struct Embed {
    /// Texts [default: the lines of stdin].
    #[arg(value_name = "TEXT", conflicts_with_all = ["file", "tokens"])]
    pub texts: Vec<String>,
    /// Model file [default: the embedded model].
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// File with a text on each line; `-`: stdin.
    #[arg(short = 'f', long = "file", value_name = "FILE", conflicts_with = "tokens")]
    pub file: Option<PathBuf>,
    /// The file, or stdin, is one text.
    #[arg(long, conflicts_with_all = ["texts", "tokens"])]
    pub whole: bool,
    /// Token ids of one text, separated by spaces or commas: no tokenizer is needed.
    #[arg(long, value_name = "IDS")]
    pub tokens: Option<String>,
    /// How the vectors of a text's tokens become one [default: the model's; without one last, or mean where tokens see later
    /// ones].
    #[arg(long, value_enum, value_name = "WHICH")]
    pub pooling: Option<PoolingArg>,
    /// Leave vectors as long as they are, instead of dividing them by their lengths.
    #[arg(long)]
    pub no_normalise: bool,
    /// One line of JSON on stdout, in the form of OpenAI's embeddings.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolingArg {
    /// They stay: a vector of each token.
    None,
    /// Their mean.
    Mean,
    /// The first token's.
    Cls,
    /// The last token's.
    Last,
    /// A score by the model's classifier; a text is a query, a tab and a document.
    Rank,
}

impl PoolingArg {
    pub fn pooling(self) -> Pooling {
        match self {
            PoolingArg::None => Pooling::None,
            PoolingArg::Mean => Pooling::Mean,
            PoolingArg::Cls => Pooling::Cls,
            PoolingArg::Last => Pooling::Last,
            PoolingArg::Rank => Pooling::Rank,
        }
    }
}

const EMBED_HELP: &str = "\
A text has at most as many tokens as the context holds; without -c that is what the model was trained on.

Examples:
  llmrt embed -m bge-small.gguf \"a text\" \"another\"
  llmrt embed -m bge-small.gguf -f lines.txt --json > vectors.json
  printf 'what is a panda?\\tThe giant panda is a bear.\\n' | llmrt embed -m bge-reranker.gguf --pooling rank";
