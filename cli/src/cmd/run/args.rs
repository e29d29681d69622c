//! The flags of `run`.

use crate::args::{ContextArgs, ModelArgs, RequestsArgs, SamplingArgs, SpecArgs, TemplateArgs};
use crate::values;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

/// Generate text, or chat.
///
/// With no model the embedded one runs: a tiny story teller. Text goes to stdout, everything else to stderr.
/// A chat starts when no prompt is given, stdin and stdout are a terminal, and there is a chat template: the model's, that
/// of --chat-template, or the embedded model's, which turns a message such as `a brave dragon` into the opening of a story.
#[derive(Args, Debug, Clone)]
#[command(after_long_help = RUN_HELP)]
pub struct Run {
    /// Model file: GGUF (any part of a split model too) or a llama2.c checkpoint; else a model of the store, whose system
    /// message, template and parameters count where no flag sets them [default: the embedded model].
    #[arg(value_name = "MODEL")]
    pub model: Option<OsString>,
    /// Prompt, one word or several; without it -p, -f, or stdin if it is not a terminal.
    #[arg(value_name = "PROMPT")]
    pub prompt: Vec<String>,
    /// Model file or model of the store; then all words are the prompt.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Pull the model first if it is neither a file nor in the store; on a terminal that is offered without the flag.
    #[arg(long)]
    pub pull: bool,
    /// Permit plain HTTP for --pull.
    #[arg(long, requires = "pull")]
    pub insecure: bool,
    /// Prompt.
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", conflicts_with = "prompt_file")]
    pub prompt_text: Option<String>,
    /// File with the prompt; `-`: stdin.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// System message for models with a chat template.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    #[command(flatten)]
    pub template: TemplateArgs,
    /// Tokens to generate; 0: none, the prompt alone is computed; -1: until the model ends its text or the context is full,
    /// as without -n. With --sampler llama2c it counts positions, prompt included [default: 256], and 0 or less means all.
    #[arg(short = 'n', long = "n-predict", value_name = "N", value_parser = values::signed)]
    #[arg(allow_negative_numbers = true)]
    pub n_predict: Option<i64>,
    /// Give the prompt to the model as it is, without a chat template.
    #[arg(long, conflicts_with_all = ["chat_template", "chat_template_file"])]
    pub raw: bool,
    /// Repeat the prompt on stdout before the text.
    #[arg(long)]
    pub echo: bool,
    /// Keep the keys and values of the prompt in this file: a later run with the same model and a prompt that begins with
    /// the same tokens does not compute these again. Not for a chat.
    #[arg(long, value_name = "FILE")]
    pub prompt_cache: Option<PathBuf>,
    /// Read the file of --prompt-cache, and do not write it.
    #[arg(long, requires = "prompt_cache")]
    pub prompt_cache_ro: bool,
    #[command(flatten)]
    pub chat: ChatArgs,
    #[command(flatten)]
    pub results: Results,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub requests: RequestsArgs,
    #[command(flatten)]
    pub speculation: SpecArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

/// Results for programs, and several prompts.
#[derive(Args, Debug, Clone, Default)]
pub struct Results {
    /// File with one prompt a line, computed together; blank lines are skipped. Answers come in the order of the prompts,
    /// each after a line `==> N <==` with the number of its prompt, or as JSON.
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub batch_file: Option<PathBuf>,
    /// Most prompts of --batch-file that are computed at a time [default: 8].
    #[arg(long, value_name = "N", value_parser = values::whole, requires = "batch_file")]
    #[arg(allow_negative_numbers = true, help_heading = "Several sequences")]
    pub parallel: Option<usize>,
    /// One JSON object a line on stdout when a text is complete: text, tokens (without those of a stop text),
    /// finish_reason (stop, length, cancelled), stop, n_prompt, n_cached (tokens of the prompt that earlier prompts had computed), n_generated, seed, timings; with
    /// --batch-file index and prompt too.
    #[arg(long, help_heading = "Results")]
    pub json: bool,
    /// Add the log probability (natural, before sampling) of each token to the JSON, and the N likeliest tokens with
    /// theirs, 0 to 100. `token` is text, or an array of bytes where these are not UTF-8.
    #[arg(long, value_name = "N", requires = "json", value_parser = values::logprobs, help_heading = "Results")]
    pub logprobs: Option<usize>,
}

/// What only a chat uses.
#[derive(Args, Debug, Clone, Default)]
pub struct ChatArgs {
    /// Refuse a message, or end an answer, that does not fit into the context, instead of dropping the oldest turns.
    #[arg(long, help_heading = "Chat")]
    pub no_context_shift: bool,
    /// Neither read nor write the file with the lines of earlier chats.
    #[arg(long, help_heading = "Chat")]
    pub no_history: bool,
}

const RUN_HELP: &str = "\
Examples:
  llmrt run                                    on a terminal: a chat with the embedded model
  llmrt run -p \"Once upon a time\" --seed 7     the embedded model goes on with the story
  llmrt run model.gguf -f prompt.txt -n 200     at most 200 tokens
  llmrt run qwen3:0.6b                          a model of the store; a terminal offers to pull it
  llmrt run model.gguf --batch-file prompts.txt --json --logprobs 5 > answers.jsonl
  git diff | llmrt run model.gguf --system \"Write a commit message\"
  llmrt run stories15M.bin --sampler llama2c -s 42 -n 256

In a chat, /help lists commands; Ctrl-C stops the answer, Ctrl-D leaves. A conversation that no longer fits into the \
context loses its oldest turns, never the system message or the last message, and a line on stderr reports it; an \
answer that reaches the end of the context continues in the same way, and ends where no turn is left to drop.

The last line on stderr is the time to load, then tokens per second of the prompt and of the answer; before it comes \
the seed if it was from the clock.";
