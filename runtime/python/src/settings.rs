//! What an engine is opened with, as `llmrt._args` has checked it.

use llmrt::engine::EngineOptions;
use llmrt::engine::speculation::Ngrams;
use llmrt::host::{DiscoverOptions, HostOptions};
use llmrt::{DType, DraftSource, Drafts, Options};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Devices, sizes, how the file is read.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Settings {
    devices: Vec<String>,
    plugins: Vec<PathBuf>,
    plugin_options: BTreeMap<String, String>,
    n_threads: Option<usize>,
    max_model_len: usize,
    max_num_seqs: usize,
    max_num_batched_tokens: usize,
    block_size: Option<usize>,
    kv_blocks: Option<usize>,
    swap_space: u64,
    kv_cache_dtype: String,
    enable_prefix_caching: bool,
    strict: bool,
    load_mode: String,
    chat_template: Option<String>,
    drafts: Option<DraftSettings>,
}

/// What guesses next tokens: the file, or without one the text itself.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct DraftSettings {
    model: Option<PathBuf>,
    num_speculative_tokens: usize,
    min_probability: f32,
    prompt_lookup_min: usize,
    prompt_lookup_max: usize,
}

impl DraftSettings {
    fn drafts(self) -> Drafts {
        let source = match self.model {
            Some(path) => DraftSource::File(llmrt_cli::stored_file(&path).unwrap_or(path)),
            None => DraftSource::Ngrams(Ngrams { min: self.prompt_lookup_min, max: self.prompt_lookup_max }),
        };
        Drafts { source, max: self.num_speculative_tokens, min_probability: self.min_probability }
    }
}

impl Settings {
    /// The facade's options.
    pub fn options(self) -> PyResult<Options> {
        let kv_type = DType::from_name(&self.kv_cache_dtype).ok_or_else(|| {
            let found = &self.kv_cache_dtype;
            PyValueError::new_err(format!("kv_cache_dtype is {found:?}: expected auto, f16, f32 or q8_0"))
        })?;
        let engine = EngineOptions {
            n_ctx: self.max_model_len,
            n_batch: self.max_num_batched_tokens,
            max_seqs: self.max_num_seqs,
            block_size: self.block_size,
            kv_blocks: self.kv_blocks,
            swap_space: self.swap_space,
            k_type: kv_type,
            v_type: kv_type,
            prefix_cache: self.enable_prefix_caching,
            strict: self.strict,
            ..EngineOptions::default()
        };
        Ok(Options {
            host: host(self.n_threads, self.plugin_options),
            discover: places(self.plugins),
            devices: self.devices,
            engine,
            load: self.load_mode.parse().map_err(PyValueError::new_err)?,
            chat_template: self.chat_template,
            drafts: self.drafts.map(DraftSettings::drafts),
            ..Options::default()
        })
    }
}

/// Threads and options of plugins.
pub fn host(n_threads: Option<usize>, options: BTreeMap<String, String>) -> HostOptions {
    HostOptions { n_threads, options, ..HostOptions::default() }
}

/// Files and folders of plugins besides those that the command searches, too.
pub fn places(plugins: Vec<PathBuf>) -> DiscoverOptions {
    DiscoverOptions { extra: plugins, ..DiscoverOptions::default() }
}
