//! What commands that open a model share: how the file is read, and the context.

use crate::values;
use crate::values::Budget;
use clap::{Args, ValueEnum};
use llmrt_engine::neurons::{IndexUse, NeuronOptions};
use llmrt_models::{SparseMode, SparseOptions};
use std::path::PathBuf;

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
    /// Keep weights in the layouts of devices in files of this folder, which later starts map [default: LLMRT_SEAL_CACHE].
    #[arg(long, value_name = "DIR", help_heading = "Loading")]
    pub seal_cache: Option<PathBuf>,
    /// Most bytes of these files: the least recently used are removed [default: 64GiB].
    #[arg(long, value_name = "SIZE", value_parser = values::size, help_heading = "Loading")]
    pub seal_cache_limit: Option<u64>,
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

/// Which chat template is rendered.
#[derive(Args, Debug, Clone, Default)]
pub struct TemplateArgs {
    /// Chat template instead of the model's: a Jinja template, or the name of a built-in one: chatml, command-r, deepseek3,
    /// gemma, granite, llama2, llama3, llama4, mistral, mistral-v1, mistral-v7, phi3, phi4, vicuna, zephyr.
    #[arg(long, value_name = "NAME|TEXT", conflicts_with = "chat_template_file")]
    pub chat_template: Option<String>,
    /// File with the chat template.
    #[arg(long, value_name = "FILE")]
    pub chat_template_file: Option<PathBuf>,
}

/// The context and its KV cache.
#[derive(Args, Debug, Clone)]
pub struct ContextArgs {
    /// Context length in tokens; 0: what the model was trained on [default: that, at most 4096; eval: the number of
    /// tokens; embed: those of the longest text; perplexity: that, at most 512; bench: what the test needs; --sampler llama2c: all that the model was trained on].
    #[arg(short = 'c', long = "ctx", value_name = "N", value_parser = values::whole)]
    #[arg(allow_negative_numbers = true, help_heading = "Context")]
    pub ctx: Option<usize>,
    /// Most tokens in one step: a longer prompt is computed in chunks of this size (prefill).
    #[arg(short = 'b', long = "batch", value_name = "N", default_value_t = 512, value_parser = values::whole)]
    #[arg(allow_negative_numbers = true, help_heading = "Context")]
    pub batch: usize,
    /// Type of the KV cache: f16, f32 or q8_0 [default: f16; eval, embed and --sampler llama2c: f32].
    #[arg(long, value_name = "TYPE", help_heading = "Context")]
    pub kv_type: Option<String>,
    /// Tokens in a block of the KV cache, a power of two [default: what devices prefer, or 16].
    #[arg(long, value_name = "N", value_parser = values::whole, help_heading = "Context")]
    pub block_size: Option<usize>,
    /// Keep whole contexts in the caches of layers with a sliding window, so that any earlier part of a text can be used
    /// again; without it blocks before the window are freed.
    #[arg(long, help_heading = "Context")]
    pub swa_full: bool,
    #[command(flatten)]
    pub sparse: SparseArgs,
}

/// Which neurons are computed.
#[derive(Args, Debug, Clone, Default)]
pub struct SparseArgs {
    /// Which neurons of FFNs are computed, of models most of whose neurons give zeros (docs/guide/sparse.md).
    #[arg(long, value_enum, default_value_t, value_name = "MODE", help_heading = "Sparse")]
    pub sparse: SparseArg,
    /// The score from which on a predictor picks a neuron [default: LLAMA_SPARSE_PRED_THRESHOLD, or the file's]; with magnitude,
    /// the size from which on inputs of all matrices count.
    #[arg(long, value_name = "SCORE", value_parser = values::score, allow_hyphen_values = true)]
    #[arg(help_heading = "Sparse")]
    pub sparse_threshold: Option<f32>,
    /// Memory of the first device that may be used, in GiB; -1: the default. Neurons of sparse models that have no room in it are on
    /// the CPU [default: what is free but for 256 MiB].
    #[arg(long, value_name = "GiB", value_parser = values::budget, allow_hyphen_values = true)]
    #[arg(help_heading = "Sparse")]
    pub vram_budget: Option<Budget>,
    /// Choose the neurons of the first device again, whatever MODEL.generated.gpuidx has.
    #[arg(long, help_heading = "Sparse")]
    pub reset_gpu_index: bool,
    /// Do not divide neurons between the first device and the CPU.
    #[arg(long, conflicts_with = "reset_gpu_index", help_heading = "Sparse")]
    pub disable_gpu_index: bool,
    /// Count which neurons are active while generating, and let them change places between devices and the CPU, so that devices have
    /// those that the present text needs. A step writes at most SIZE of weights for it, on average: 4MiB without a value.
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "4MiB", require_equals = true)]
    #[arg(value_parser = values::swap_size, conflicts_with = "disable_gpu_index", help_heading = "Sparse")]
    pub sparse_adapt: Option<u64>,
}

#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SparseArg {
    /// predict of files with predictors; exact of other models with zeros, unless MODEL.sparse.gguf counts fewer than 75 % of them and
    /// the CPU is alone; else off.
    #[default]
    Auto,
    /// All.
    Off,
    /// Those that the activation does not make zero: the same text as off.
    Exact,
    /// Those that the file's predictors pick.
    Predict,
    /// All, with inputs below the thresholds of MODEL.sparse.gguf, or below --sparse-threshold, as zeros: an approximation, of any
    /// model.
    Magnitude,
}

impl SparseArgs {
    /// As the engine takes them.
    pub fn options(&self) -> SparseOptions {
        let mode = match self.sparse {
            SparseArg::Auto => SparseMode::Auto,
            SparseArg::Off => SparseMode::Off,
            SparseArg::Exact => SparseMode::Exact,
            SparseArg::Predict => SparseMode::Predict,
            SparseArg::Magnitude => SparseMode::Magnitude,
        };
        SparseOptions { mode, threshold: self.sparse_threshold, ..SparseOptions::default() }
    }

    /// How neurons are divided.
    pub fn neurons(&self) -> NeuronOptions {
        let index = match (self.reset_gpu_index, self.disable_gpu_index) {
            (_, true) => IndexUse::Off,
            (true, _) => IndexUse::Renewed,
            _ => IndexUse::Saved,
        };
        let vram_budget = self.vram_budget.and_then(|Budget(bytes)| bytes);
        NeuronOptions { vram_budget, index, adapt: self.sparse_adapt, ..NeuronOptions::default() }
    }
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
