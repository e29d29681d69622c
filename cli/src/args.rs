//! The command line: what can be typed and what it means.

use crate::cmd::quantize::{self, Mix, Rule};
use crate::values::{self, Seed};
use clap::{Args, Parser, Subcommand, ValueEnum};
use llmrt_abi::DType;
use llmrt_host::PoolKind;
use std::path::PathBuf;

/// Runs large language models on whatever devices are there.
///
/// Devices are plugins: the CPU is built in, others are found as libllmrt_*.so (see `llmrt plugins`). Work that a
/// device cannot do falls back to the CPU and is reported; `--strict-device` refuses it instead.
#[derive(Parser, Debug)]
#[command(name = "llmrt", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "\
Examples:
  llmrt run                                   a story from the embedded model
  llmrt run model.gguf \"Why is the sky blue?\"
  llmrt run model.gguf                        a chat, if the model has a chat template
  llmrt --backend cpu:0 bench -m model.gguf
  llmrt inspect model.gguf --placement

Exit codes:
  0    success
  1    any other failure, such as output that cannot be written: stdout or a file
  2    wrong usage: flags, token ids or lengths that make no sense
  3    a file that cannot be used: model, tokenizer, prompt
  4    a device or plugin failed, or a file named by --plugin was rejected
  5    work would fall back, and --strict-device forbids it
  6    out of memory, or `plan` finds that there is too little
  7    `conform` found a case that fails, or `diff` an op over its limit
  130  interrupted by Ctrl-C";

const RUN_HELP: &str = "\
Examples:
  llmrt run -p \"Once upon a time\" --seed 7     the embedded model goes on with the story
  llmrt run model.gguf -f prompt.txt -n 200     at most 200 tokens
  git diff | llmrt run model.gguf --system \"Write a commit message\"
  llmrt run stories15M.bin --sampler llama2c -s 42 -n 256

In a chat, /help lists commands; Ctrl-C stops the answer, Ctrl-D leaves. The last line on stderr is the time to load,
then tokens per second of the prompt and of the answer; before it comes the seed if it was from the clock.";

const EVAL_HELP: &str = "\
The output has no header: the first row comes first, n_vocab values of 4 bytes per row. It appears when all is
computed. --per-op also writes index.tsv: file, node, and dims (innermost first) of every result.

Example:
  llmrt eval -m model.gguf --tokens \"1 15043 3186\" --logits all --logits-out logits.f32";

const BENCH_HELP: &str = "\
The random tokens are the same in every run. Decoding starts with a context of one token. The JSON has prompt_tok_s and
decode_tok_s (means), each with _sd (standard deviation); a test that was switched off is null.";

const QUANTIZE_HELP: &str = "\
TYPE is f32, f16, bf16, q8_0, q6_k, q5_k_m, q5_k_s, q4_k_m, q4_k_s, q3_k_l, q3_k_m, q3_k_s, q2_k, q2_k_s, q5_0, q5_1,
q4_0, q4_1, iq4_nl, iq4_xs, mxfp4, tq1_0, tq2_0, q2_0 or q1_0; q3_k, q4_k and q5_k are their _m forms. The output matrix,
and in the _m and _l forms some of attn_v and ffn_down, get a better type. Vectors, norms and small matrices stay as they
are. Rows that are no whole blocks of a type get another, which is said.

Example:
  llmrt quantize model-f16.gguf model-q4_k_m.gguf q4_k_m --tensor 'ffn_down=q6_k'";
const CONFORM_HELP: &str = "\
Levels:
  L0  load and static checks       L4  plan replay
  L1  memory                       L5  injected faults
  L2  streams and events           L6  throughput (--perf)
  L3  every op against its reference

The JSON has plugin, device, cases_run, cases_failed, cases_skipped, failed (name, reason), skipped (reason, cases),
ops and levels (run, failed, skipped of each), support (op, type: supported, cases), perf.

Examples:
  llmrt conform ./libllmrt_mydevice.so --level L0..L2
  llmrt conform ./libllmrt_mydevice.so --ops 'mul_mat.*' --json report.json
  llmrt conform ./libllmrt_mydevice.so --perf --markdown report.md";

const DIFF_HELP: &str = "\
Examples:
  llmrt diff --b mydevice model.gguf -p \"Why is the sky blue?\"
  llmrt --plugin ./libllmrt_mydevice.so diff --b mydevice model.gguf --repro wrong.repro
  llmrt conform ./libllmrt_mydevice.so --repro wrong.repro";

/// Flags that every command takes, before or after its name.
#[derive(Args, Debug, Clone, Default)]
pub struct Global {
    /// Devices to use, first choice first: NAME, NAME:INDEX or NAME:DEVICE, comma-separated; NAME is a device, a
    /// plugin or a plugin's file, by name or path. DEVICE is one of the plugin's devices, or the part of several
    /// devices' names before a dot. The CPU always comes last [default: all that run models, without plugins that
    /// want to be named].
    #[arg(long, global = true, value_name = "NAME[:D],…", value_delimiter = ',', help_heading = "Devices")]
    pub backend: Vec<String>,
    /// Tell plugins something (repeatable): what KEY means is the plugin's business, such as `cpu.isa` or `sim.memory`.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = values::option, help_heading = "Devices")]
    pub plugin_option: Vec<(String, String)>,
    /// Load this plugin file before all others (repeatable); one named like the built-in `cpu` takes its place.
    #[arg(long = "plugin", global = true, value_name = "FILE", help_heading = "Devices")]
    pub plugins: Vec<PathBuf>,
    /// Fail instead of letting work fall back to the CPU.
    #[arg(long, global = true, help_heading = "Devices")]
    pub strict_device: bool,
    /// How scratch memory of devices is managed: auto, legacy (best fit among cached blocks) or vmm (one range of
    /// addresses, mapped as used) [default: what LLMRT_POOL says, else auto].
    #[arg(long, global = true, value_name = "KIND", value_parser = values::pool, help_heading = "Devices")]
    pub pool: Option<PoolKind>,
    /// Threads of the CPU pool, 1 to 1024 [default: one per core].
    #[arg(short = 't', long, global = true, value_name = "N", value_parser = values::whole)]
    #[arg(allow_negative_numbers = true, help_heading = "Devices")]
    pub threads: Option<usize>,
    /// Say more on stderr: device placement, plugin messages. Twice: everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Run(Run),
    Eval(Eval),
    Bench(Bench),
    Tokenize(Tokenize),
    Detokenize(Detokenize),
    Inspect(Inspect),
    Plan(Plan),
    Convert(Convert),
    Quantize(Quantize),
    /// List plugin files and why each was accepted or rejected.
    Plugins(Listing),
    Devices(Devices),
    Ops(Ops),
    Conform(Conform),
    #[command(hide = true)]
    ConformWorker(ConformWorker),
    Diff(Diff),
}

/// A model file and how to open it.
#[derive(Args, Debug, Clone, Default)]
pub struct ModelArgs {
    /// How weights get into memory.
    #[arg(long, value_enum, default_value_t, value_name = "MODE", help_heading = "Loading")]
    pub load_mode: LoadModeArg,
    /// Keep the weights in RAM: lock them, whatever the mode.
    #[arg(long, help_heading = "Loading")]
    pub mlock: bool,
    /// Read the file instead of mapping it: --load-mode none.
    #[arg(long, help_heading = "Loading")]
    pub no_mmap: bool,
    /// Check all weights for NaN and infinity before use.
    #[arg(long, help_heading = "Loading")]
    pub check_tensors: bool,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// How the tables of a model file are read.
#[derive(Args, Debug, Clone, Default)]
pub struct OpenArgs {
    /// Change a metadata value: KEY=TYPE:VALUE with TYPE int, float, bool or str (repeatable).
    #[arg(long = "override-kv", value_name = "KEY=TYPE:VALUE", help_heading = "Loading")]
    pub overrides: Vec<String>,
    /// tokenizer.bin of a llama2.c checkpoint [default: beside the checkpoint].
    #[arg(long, value_name = "FILE", help_heading = "Loading")]
    pub tokenizer: Option<PathBuf>,
}

/// The context and its KV cache.
#[derive(Args, Debug, Clone)]
pub struct ContextArgs {
    /// Context length in tokens; 0: what the model was trained on [default: that, at most 4096; eval: the number of
    /// tokens; bench: what the test needs; --sampler llama2c: all that the model was trained on].
    #[arg(short = 'c', long = "ctx", value_name = "N", value_parser = values::whole)]
    #[arg(allow_negative_numbers = true, help_heading = "Context")]
    pub ctx: Option<usize>,
    /// Tokens in one step when reading a prompt.
    #[arg(short = 'b', long = "batch", value_name = "N", default_value_t = 512, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true, help_heading = "Context")]
    pub batch: usize,
    /// Type of the KV cache: f16, f32 or q8_0 [default: f16; eval and --sampler llama2c: f32].
    #[arg(long, value_name = "TYPE", help_heading = "Context")]
    pub kv_type: Option<String>,
}

#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LoadModeArg {
    /// The same as mmap.
    #[default]
    Auto,
    /// Read the file into memory.
    None,
    /// Map the file; pages come and go with memory pressure.
    Mmap,
    /// Read the file into memory and lock it there.
    Mlock,
    /// Map the file and lock its pages in RAM.
    #[value(name = "mmap+mlock")]
    MmapMlock,
}

/// Generate text, or chat.
///
/// With no model the embedded one runs: a tiny story teller. Text goes to stdout, everything else to stderr.
/// A chat starts when the model has a chat template, no prompt is given, and stdin and stdout are a terminal.
#[derive(Args, Debug)]
#[command(after_long_help = RUN_HELP)]
pub struct Run {
    /// Model file: GGUF (any part of a split model too) or a llama2.c checkpoint [default: the embedded model].
    #[arg(value_name = "MODEL")]
    pub model: Option<String>,
    /// Prompt, one word or several; without it -p, -f, or stdin if it is not a terminal.
    #[arg(value_name = "PROMPT")]
    pub prompt: Vec<String>,
    /// Model file; then all words are the prompt.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model_file: Option<PathBuf>,
    /// Prompt.
    #[arg(short = 'p', long = "prompt", value_name = "TEXT", conflicts_with = "prompt_file")]
    pub prompt_text: Option<String>,
    /// File with the prompt; `-`: stdin.
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// System message for models with a chat template.
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tokens to generate; 0 or less: until the model ends its text or the context is full, as without -n. With
    /// --sampler llama2c it counts positions, prompt included [default: 256], and 0 or less means all.
    #[arg(short = 'n', long = "n-predict", value_name = "N", value_parser = values::signed)]
    #[arg(allow_negative_numbers = true)]
    pub n_predict: Option<i64>,
    /// Give the prompt to the model as it is, without its chat template.
    #[arg(long)]
    pub raw: bool,
    /// Repeat the prompt on stdout before the text.
    #[arg(long)]
    pub echo: bool,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

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

/// Write raw logits for given tokens.
///
/// Logits are little-endian f32, one row of n_vocab values per token. The model's tokenizer is not needed, so models
/// work whose tokenizer llmrt does not know.
#[derive(Args, Debug)]
#[command(after_long_help = EVAL_HELP)]
pub struct Eval {
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: PathBuf,
    /// Token ids, separated by spaces or commas.
    #[arg(long, value_name = "IDS", required_unless_present = "tokens_file", conflicts_with = "tokens_file")]
    pub tokens: Option<String>,
    /// File with token ids.
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,
    /// Where the logits go [default: stdout shows the likeliest tokens instead].
    #[arg(long, value_name = "FILE")]
    pub logits_out: Option<PathBuf>,
    /// Which rows: every position, or the last.
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub logits: LogitsArg,
    /// Feed the tokens in chunks of these sizes, repeating the last: `1`, `5,16,3`.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub chunks: Vec<usize>,
    /// Write the result of every op into this folder, one file of f32 values each, named by node.
    #[arg(long, value_name = "DIR")]
    pub per_op: Option<PathBuf>,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogitsArg {
    /// Every position.
    All,
    /// The last position.
    #[default]
    Last,
}

/// Measure prompt and decode speed on random tokens.
#[derive(Args, Debug)]
#[command(after_long_help = BENCH_HELP)]
pub struct Bench {
    /// Model file [default: the embedded one].
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Tokens of the prompt; 0: no prompt test.
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub n_prompt: usize,
    /// Tokens to decode; 0: no decode test.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub n_gen: usize,
    /// Repetitions.
    #[arg(short = 'r', long, value_name = "N", default_value_t = 3, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub repetitions: usize,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

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

/// Show what a model file holds, and where it would run.
///
/// Nothing is loaded, but --check-tensors reads it all. In JSON an array of more than 8 elements is shown as its type, length and first elements.
#[derive(Args, Debug)]
pub struct Inspect {
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// List all tensors.
    #[arg(long)]
    pub tensors: bool,
    /// Show splits, nodes per device, the reason of each fallback, bytes copied per step.
    #[arg(long)]
    pub placement: bool,
    /// Dump the graph of one decode step.
    #[arg(long)]
    pub graph: bool,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    /// Check all weights for NaN and infinity.
    #[arg(long, help_heading = "Loading")]
    pub check_tensors: bool,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Compute the memory a model needs, per device, without loading it.
///
/// Weights, KV cache of the whole context, compute memory of the largest step, and staging for copies. Exit code 6
/// says that a device has less free than it needs.
#[derive(Args, Debug)]
pub struct Plan {
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// Convert a llama2.c checkpoint to GGUF, with F32 weights.
#[derive(Args, Debug)]
pub struct Convert {
    /// Checkpoint: v0, v1 or v2 (int8).
    #[arg(value_name = "CHECKPOINT")]
    pub input: PathBuf,
    /// GGUF file to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// tokenizer.bin [default: beside the checkpoint].
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Overwrite the output; the checkpoint itself and its tokenizer.bin are never overwritten.
    #[arg(long)]
    pub force: bool,
}

/// Make a model smaller: write its matrices in another type.
#[derive(Args, Debug)]
#[command(after_help = QUANTIZE_HELP)]
pub struct Quantize {
    /// GGUF file, or any part of a split one.
    #[arg(value_name = "IN.gguf")]
    pub input: PathBuf,
    /// GGUF file to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// Type of most matrices: q4_k_m, q8_0, f16, …
    #[arg(value_name = "TYPE")]
    pub mix: Mix,
    /// Tensors whose name REGEX finds become TYPE (repeatable; the first that finds one counts).
    #[arg(long = "tensor", value_name = "REGEX=TYPE")]
    pub rules: Vec<Rule>,
    /// Type of the output matrix.
    #[arg(long, value_name = "TYPE", value_parser = quantize::encodable)]
    pub output_tensor_type: Option<DType>,
    /// Type of the token embeddings.
    #[arg(long, value_name = "TYPE", value_parser = quantize::encodable)]
    pub token_embedding_type: Option<DType>,
    /// All matrices in the same type: no better ones for those that matter more.
    #[arg(long)]
    pub pure: bool,
    /// Quantise what is quantised already; it loses twice.
    #[arg(long)]
    pub allow_requantize: bool,
    /// Overwrite the output; what is read is never overwritten.
    #[arg(long)]
    pub force: bool,
}

#[derive(Args, Debug)]
pub struct Listing {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// List ops and which devices run them.
#[derive(Args, Debug)]
pub struct Ops {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// A Markdown table per device, op × type of the first operand; --backend takes some devices only.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}

/// Test a plugin file: everything a host relies on, every op against its plain reference.
///
/// Each case runs in a worker process with a time limit, so a crash or a hang is one failed case and the run goes on.
/// What a device says it cannot do is skipped and counted with the reason. Exit code 7 says that a case failed.
#[derive(Args, Debug)]
#[command(after_help = CONFORM_HELP)]
pub struct Conform {
    /// The plugin: libllmrt_NAME.so.
    #[arg(value_name = "FILE.so")]
    pub plugin: PathBuf,
    /// Levels to run, as in L3, L0..L3 or L1,L4 [default: L0..L5].
    #[arg(long, value_name = "LEVELS")]
    pub level: Option<String>,
    /// Only cases of ops whose whole name matches this regular expression.
    #[arg(long, value_name = "RE")]
    pub ops: Option<String>,
    /// Measure throughput too: level L6, or only that with --level L6.
    #[arg(long)]
    pub perf: bool,
    /// Every distinct node of this model's prompt and decode steps becomes a case.
    #[arg(long, value_name = "FILE")]
    pub from_model: Option<PathBuf>,
    /// Run only the case in this file, which `llmrt diff --repro` wrote.
    #[arg(long, value_name = "FILE")]
    pub repro: Option<PathBuf>,
    /// The device to test [default: the plugin's first].
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Part I of N, from 1 on: every Nth case of each op and level.
    #[arg(long, value_name = "I/N")]
    pub part: Option<String>,
    /// Worker processes [default: one per core].
    #[arg(long, value_name = "N", value_parser = values::whole, allow_negative_numbers = true)]
    pub jobs: Option<usize>,
    /// Seconds that a case may take.
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    pub time_limit: f64,
    /// Where random operands begin.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// List the cases and run none.
    #[arg(long)]
    pub list: bool,
    /// Write the report as JSON to this file; `-`: to stdout.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the report as Markdown, with the table of ops and types, to this file; `-`: to stdout.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// Run cases that are named on stdin: the worker of `conform`.
#[derive(Args, Debug)]
pub struct ConformWorker {
    #[arg(value_name = "FILE.so")]
    pub plugin: PathBuf,
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    #[arg(long, value_name = "FILE")]
    pub from_model: Option<PathBuf>,
    #[arg(long, value_name = "FILE")]
    pub repro: Option<PathBuf>,
}

/// Compare two devices on a model, op by op.
///
/// Both get equal operands: those that the first computed. The first op over its limit is told with its shapes; exit
/// code 7 says that there is one.
#[derive(Args, Debug)]
#[command(after_help = DIFF_HELP)]
pub struct Diff {
    /// The device that is right.
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    pub a: String,
    /// The device in question.
    #[arg(long, value_name = "NAME")]
    pub b: String,
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Text to run.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "tokens")]
    pub prompt: Option<String>,
    /// Token ids to run, with spaces or commas between them [default: 1 2 3 4 5 6 7 8].
    #[arg(long, value_name = "IDS")]
    pub tokens: Option<String>,
    /// Go on after the first op over its limit, and show all ops.
    #[arg(long)]
    pub all: bool,
    /// Write the first op over its limit with its operands to this file, for `llmrt conform --repro`.
    #[arg(long, value_name = "FILE")]
    pub repro: Option<PathBuf>,
    #[command(flatten)]
    pub open: OpenArgs,
}

/// List devices, their memory and kind, and why any is unused.
#[derive(Args, Debug)]
pub struct Devices {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// Show every environment variable that is read, and its value.
    #[arg(long)]
    pub knobs: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// `--help` of every command is kept in `cli/src/help`; a change shows there. To take over new texts, empty the
    /// file and run this test: it fills empty files and fails once.
    #[test]
    fn every_help_text_is_the_one_that_was_read_last() {
        let mut program = Cli::command().term_width(100);
        program.build();
        let mut texts = vec![("llmrt".to_string(), program.render_long_help().to_string())];
        for command in program.get_subcommands_mut().filter(|c| c.get_name() != "help") {
            texts.push((command.get_name().to_string(), command.render_long_help().to_string()));
        }
        let changed: Vec<_> = texts.into_iter().filter(|(name, text)| !is_kept(name, text)).collect();
        let told: Vec<_> =
            changed.iter().map(|(name, text)| format!("{name} --help is now:\n{text}")).collect();
        assert!(changed.is_empty(), "{}", told.join("\n"));
    }

    fn is_kept(name: &str, text: &str) -> bool {
        let path = format!("{}/src/help/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let kept = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
        if kept.is_empty() {
            std::fs::write(&path, text).expect("the folder of help texts can be written");
        }
        kept == text
    }

    #[test]
    fn flags_of_devices_may_stand_before_or_behind_the_command() {
        for line in ["llmrt --backend a,b:1 run", "llmrt run --backend a,b:1"] {
            let cli = Cli::try_parse_from(line.split(' ')).expect("a good command line");
            assert_eq!(cli.global.backend, ["a", "b:1"]);
        }
    }
}
