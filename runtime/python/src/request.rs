//! A request of Python: the parameters as `llmrt._params` has checked them.

use llmrt::Llm;
use llmrt::engine::beam::{BeamParams, EarlyStopping};
use llmrt::engine::sampler::SamplingRules;
use llmrt::engine::{Decoding, Request, SamplingParams};
use pyo3::prelude::*;

/// What is computed for a prompt.
#[derive(FromPyObject)]
#[allow(clippy::large_enum_variant)] // made once a request, and used up at once
pub enum Task {
    /// Text, by sampling.
    #[pyo3(transparent)]
    Generate(Generate),
    /// The likeliest texts.
    #[pyo3(transparent)]
    Beam(Beam),
    /// The prompt's vector.
    #[pyo3(transparent)]
    Embed(Embed),
    /// Logits of the prompt's tokens.
    #[pyo3(transparent)]
    Logits(Logits),
}

/// Numbers of the sampler, lengths, stops. The names are vLLM's.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Generate {
    n: usize,
    best_of: Option<usize>,
    presence_penalty: f32,
    frequency_penalty: f32,
    repetition_penalty: f32,
    temperature: f32,
    top_p: f32,
    top_k: i32,
    min_p: f32,
    typical_p: f32,
    seed: u64,
    stop: Vec<String>,
    stop_token_ids: Vec<u32>,
    bad_words: Vec<String>,
    ignore_eos: bool,
    max_tokens: Option<usize>,
    min_tokens: usize,
    logprobs: Option<usize>,
    prompt_logprobs: Option<usize>,
    logit_bias: Vec<(u32, f32)>,
    continues: bool,
    priority: i32,
    cache_salt: String,
}

/// Beam search.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Beam {
    beam_width: usize,
    length_penalty: f64,
    beam_max_tokens: Option<usize>,
    ignore_eos: bool,
}

/// A vector.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Embed {
    normalize: bool,
}

/// Logits.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Logits {
    start: usize,
}

impl Task {
    /// The request for a prompt.
    pub fn request(self, llm: &Llm, prompt: Vec<u32>) -> Request {
        match self {
            Task::Generate(generate) => generate.request(prompt),
            Task::Beam(beam) => beam.request(prompt),
            Task::Embed(embed) => Request::embed(prompt, llm.pooling(), embed.normalize),
            Task::Logits(logits) => Request::logits(prompt, logits.start),
        }
    }
}

impl Generate {
    fn request(self, prompt: Vec<u32>) -> Request {
        let params = SamplingParams {
            temperature: self.temperature,
            rules: SamplingRules::Vllm,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last_n: -1,
            logit_bias: self.logit_bias,
            seed: None,
        };
        Request {
            decoding: Decoding::Sample { params, seed: self.seed },
            n: self.n,
            best_of: self.best_of,
            max_tokens: self.max_tokens,
            min_tokens: self.min_tokens,
            stop: self.stop,
            stop_token_ids: self.stop_token_ids,
            bad_words: self.bad_words,
            ignore_eos: self.ignore_eos,
            continues: self.continues,
            logprobs: self.logprobs,
            prompt_logprobs: self.prompt_logprobs,
            priority: self.priority,
            cache_salt: self.cache_salt,
            ..Request::greedy(prompt)
        }
    }
}

impl Beam {
    fn request(self, prompt: Vec<u32>) -> Request {
        let early_stopping = EarlyStopping::default();
        let params = BeamParams { length_penalty: self.length_penalty, early_stopping };
        Request {
            decoding: Decoding::Beam(params),
            n: self.beam_width,
            max_tokens: self.beam_max_tokens,
            ignore_eos: self.ignore_eos,
            ..Request::greedy(prompt)
        }
    }
}
