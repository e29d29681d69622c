//! The configuration in a model file's metadata, in the field's terms.

mod adapters;
mod floats;
mod hyper;
mod indexer;
mod keys;
mod loops;
mod mla;
mod moe;
mod neurons;
mod ngrams;
mod pooling;
mod rope;
mod rwkv;
mod scales;
mod ssm;
mod windows;
mod xielu;

pub use adapters::AdapterConfig;
pub use hyper::HyperConfig;
pub use indexer::IndexerConfig;
pub(crate) use keys::Keys;
pub use loops::LoopConfig;
pub(crate) use loops::MAX_LOOPS;
pub use mla::MlaConfig;
pub(crate) use moe::MAX_SHARED;
pub use moe::{ExpertActivation, Gating, Glu, MoeConfig, SharedByGroup, Weighted};
pub use neurons::{HiddenActivation, NeuronConfig, SparseMode, SparseOptions, takes_threshold};
pub use ngrams::{MAX_NGRAM, NgramConfig};
pub use pooling::{Classifier, Pooling};
pub use rope::{RopeConfig, RopeKind};
pub use rwkv::RwkvConfig;
pub use scales::{Scales, Temperature};
pub(crate) use ssm::MAX_TAPS;
pub use ssm::{DecayGate, SsmConfig};
pub(crate) use windows::AllBut;
pub use xielu::Xielu;

use crate::error::{Error, Result};
use llmrt_gguf::{Metadata, Value};
use llmrt_graph::Activation;

/// The numbers of a model.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// `general.architecture`.
    pub arch: String,
    /// Layers.
    pub n_layer: usize,
    /// Elements of a hidden state.
    pub n_embd: u64,
    /// Tokens of the vocabulary.
    pub n_vocab: u64,
    /// Tokens of the longest text seen in training.
    pub n_ctx_train: u64,
    /// Elements of a head of Q and K, in layers without a window.
    pub head_dim_k: u64,
    /// Elements of a head of V, in layers without a window.
    pub head_dim_v: u64,
    /// What differs between layers.
    pub layers: Vec<LayerConfig>,
    /// How hidden states are normed.
    pub norm: Norm,
    /// Added to the mean square (variance) before the root.
    pub norm_eps: f32,
    /// Whether norms have weights.
    pub has_norm_weights: bool,
    /// Rotary position embedding.
    pub rope: RopeConfig,
    /// Factor on q·k.
    pub attn_scale: f32,
    /// Attention scores become c·tanh(score/c); 0: they stay.
    pub attn_softcap: f32,
    /// Whether tokens see those before them alone, and not those after them. Then a window reaches half its size to either
    /// side.
    pub is_causal: bool,
    /// Whether queries are one position after the last key, as those of layers that predict ahead, whose tokens have no keys.
    pub sees_before: bool,
    /// Whether a window is the chunk of so many positions that a token is in.
    pub has_chunks: bool,
    /// Buckets of distances between keys and queries, each with biases on attention scores; 0: there are none.
    pub n_relative_buckets: u64,
    /// Layers of the encoder, of models with an encoder and a decoder; `n_layer` are the decoder's.
    pub n_encoder_layer: usize,
    /// The token that a decoder starts with, if the file names one.
    pub decoder_start: Option<u32>,
    /// Largest bias of ALiBi (arXiv 2108.12409), from which each head's slope follows; 0: no biases.
    pub alibi_max_bias: f32,
    /// Q, K and V are kept within plus and minus this; 0: they stay.
    pub clamp_qkv: f32,
    /// How queries grow with their positions.
    pub attn_temperature: Temperature,
    /// Whether attention and FFN read the same hidden states, of models whose files have the choice.
    pub is_parallel: bool,
    /// Whether attention's and FFN's results are normed instead of what they take, of models whose files have the choice.
    pub norms_results: bool,
    /// How layers repeat, of models that run them again.
    pub loops: LoopConfig,
    /// Groups of heads whose results are mixed apart (DeepSeek-V4); 0: all are mixed at once.
    pub output_groups: u64,
    /// Elements that a group gives.
    pub output_rank: u64,
    /// Factor on what attention gives, before its output projection.
    pub value_scale: f32,
    /// Logits become c·tanh(logit/c); 0: they stay.
    pub final_softcap: f32,
    /// Factors on hidden states and logits.
    pub scales: Scales,
    /// Elements of the embeddings that each layer has of its own; 0: layers have none.
    pub n_embd_per_layer: u64,
    /// Numbers of xIELU, for each layer of models that have it.
    pub xielu: Vec<Xielu>,
    /// Sizes of latent attention, of models that have it.
    pub mla: MlaConfig,
    /// Those in layers with a window, where they differ.
    pub windowed_mla: Option<MlaConfig>,
    /// Sizes of what finds the keys that queries attend to, of models that attend to few.
    pub indexer: IndexerConfig,
    /// How residual streams are mixed, of models that have several.
    pub hyper: HyperConfig,
    /// How n-grams of tokens are hashed, of models that have embeddings of them.
    pub ngrams: NgramConfig,
    /// Sizes of a state space model or a delta net, of models that have one.
    pub ssm: SsmConfig,
    /// Sizes of RWKV, of models that are one.
    pub rwkv: RwkvConfig,
    /// Adapters that tokens pick, of models that have them.
    pub adapters: AdapterConfig,
    /// Layers after which the residual stream starts again (Kimi K3); 0: it does not.
    pub layers_per_residual: usize,
    /// How the vectors of a text's tokens become one, if the file names it.
    pub pooling: Option<Pooling>,
    /// What makes scores of a text's vector.
    pub classifier: Classifier,
    /// The experts, of models that have some.
    pub moe: Option<MoeConfig>,
    /// What is between the FFN's matrices, of models whose files have the choice.
    pub ffn_activation: Activation,
    /// Which neurons of FFNs are computed, of models most of whose neurons give zeros.
    pub neurons: NeuronConfig,
    /// Name of the norm before the FFN.
    pub ffn_norm: &'static str,
    /// Whether `.scale` tensors of FFN weights and experts count for every dtype; else only for NVFP4, which is
    /// meaningless without them.
    pub ffn_scales: bool,
    /// Tensors that the model does not use although blocks read them, by their names in the whole model or in any layer:
    /// llama.cpp, whose files these are, reads past them.
    pub unused: &'static [&'static str],
}

/// The numbers of one layer; 0 for what it does not have.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LayerConfig {
    /// Query heads.
    pub n_head: u64,
    /// KV heads; they divide the query heads. 0: the layer has no attention; in hybrids a recurrence mixes its tokens.
    pub n_head_kv: u64,
    /// Elements of a head of Q and K.
    pub head_dim_k: u64,
    /// Elements of a head of V.
    pub head_dim_v: u64,
    /// The earlier layer whose caches this one reads. `None`: it has caches of its own.
    pub cache_of: Option<usize>,
    /// Elements between the FFN's matrices.
    pub n_ff: u64,
    /// Elements between an expert's matrices.
    pub n_ff_expert: u64,
    /// Whether the FFN is experts.
    pub is_moe: bool,
    /// Tokens that attention sees, the query included; 0: all.
    pub window: u32,
    /// Positions that one key of the layer's indexer stands for; 0: it has no indexer.
    pub index_stride: u64,
    /// Whether heads are rotated, in models that rotate them.
    pub has_rope: bool,
    /// The N of the tensors `blk.N` that are its weights: its own number, but in models that run layers again.
    pub block: usize,
}

/// How hidden states are normed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Norm {
    /// x · rsqrt(mean(x²) + eps), times a weight.
    Rms,
    /// (x - mean) · rsqrt(variance + eps), times a weight, plus a bias.
    Layer,
}

impl LayerConfig {
    /// Whether a recurrence mixes tokens.
    pub fn is_recurrent(&self) -> bool {
        self.n_head_kv == 0
    }
}

impl Config {
    /// The values of the keys common to all architectures. An architecture's own `config` continues from here.
    pub(crate) fn read(
        meta: &Metadata,
        arch: &str,
        has_attention: bool,
        norm: Norm,
        rope: RopeKind,
    ) -> Result<Config> {
        let n_layer = read_n_layer(&Keys { meta, arch })?;
        Config::of_layers(meta, arch, n_layer, has_attention, norm, rope)
    }

    /// The same, of so many layers.
    pub(crate) fn of_layers(
        meta: &Metadata,
        arch: &str,
        n_layer: usize,
        has_attention: bool,
        norm: Norm,
        rope: RopeKind,
    ) -> Result<Config> {
        let keys = Keys { meta, arch };
        floats::check_floats(&keys)?;
        let n_embd = keys.count("embedding_length", 1..=MAX_DIM)?;
        let n_ctx_train = keys.count("context_length", 1..=MAX_DIM)?;
        let mut moe = MoeConfig::read(&keys)?;
        let mut layers = match has_attention {
            true => read_layers(&keys, n_layer)?,
            false => vec![LayerConfig::default(); n_layer],
        };
        if let Some(moe) = &mut moe {
            moe.read_layers(&keys, &mut layers)?;
        }
        let head_dim = n_embd_of_head(n_embd, &layers);
        let head_dim_k = keys.count_or("attention.key_length", 1..=MAX_DIM, head_dim)?;
        let head_dim_v = keys.count_or("attention.value_length", 1..=MAX_DIM, head_dim)?;
        for (il, layer) in layers.iter_mut().enumerate() {
            (layer.has_rope, layer.block) = (true, il);
            (layer.head_dim_k, layer.head_dim_v) = (head_dim_k, head_dim_v);
        }
        let norm_eps = read_norm_eps(&keys, norm)?;
        let rope = RopeConfig::read(&keys, rope, head_dim_k, n_ctx_train)?;

        Ok(Config {
            arch: arch.to_string(),
            n_layer,
            n_embd,
            n_vocab: read_n_vocab(&keys)?,
            n_ctx_train,
            head_dim_k,
            head_dim_v,
            layers,
            norm,
            norm_eps,
            has_norm_weights: true,
            rope,
            attn_scale: keys.f32_or_zero("attention.scale", (head_dim_k as f32).sqrt().recip())?,
            attn_softcap: 0.0,
            is_causal: keys.optional("attention.causal")?.unwrap_or(true),
            sees_before: false,
            has_chunks: false,
            n_relative_buckets: 0,
            n_encoder_layer: 0,
            decoder_start: None,
            alibi_max_bias: 0.0,
            clamp_qkv: 0.0,
            attn_temperature: Temperature::default(),
            is_parallel: false,
            norms_results: false,
            loops: LoopConfig::default(),
            output_groups: 0,
            output_rank: 0,
            value_scale: 1.0,
            final_softcap: 0.0,
            scales: Scales::default(),
            n_embd_per_layer: 0,
            xielu: Vec::new(),
            mla: MlaConfig::default(),
            windowed_mla: None,
            indexer: IndexerConfig::default(),
            hyper: HyperConfig::default(),
            ngrams: NgramConfig::default(),
            ssm: SsmConfig::default(),
            rwkv: RwkvConfig::default(),
            adapters: AdapterConfig::default(),
            layers_per_residual: 0,
            pooling: keys.pooling()?,
            classifier: keys.classifier()?,
            moe,
            ffn_activation: Activation::Silu,
            neurons: NeuronConfig::read(&keys)?,
            ffn_norm: "ffn_norm",
            ffn_scales: false,
            unused: &[],
        })
    }

    /// The experts, of an architecture that has no dense models.
    pub(crate) fn experts(&mut self, keys: &Keys<'_>) -> Result<&mut MoeConfig> {
        self.moe.as_mut().ok_or_else(|| keys.bad("expert_count", 0, "1 or more"))
    }

    /// Elements of a hidden state for each head.
    pub(crate) fn n_embd_of_head(&self) -> u64 {
        n_embd_of_head(self.n_embd, &self.layers)
    }

    /// Layers that `which` picks rotate their heads, the others do not.
    pub(crate) fn set_rope(&mut self, which: impl Fn(usize) -> bool) {
        for (il, layer) in self.layers.iter_mut().enumerate() {
            layer.has_rope = which(il);
        }
    }

    /// Gives layers a sliding window of the length in the metadata, if that is not 0: those `which` picks.
    pub(crate) fn set_window(&mut self, window: u32, which: impl Fn(usize) -> bool) {
        for (il, layer) in self.layers.iter_mut().enumerate() {
            layer.window = if which(il) { window } else { 0 };
        }
    }

    /// Layers that `which` picks have a recurrence in place of attention, in models whose heads do not show it.
    pub(crate) fn set_recurrent(&mut self, which: impl Fn(usize) -> bool) {
        for (_, layer) in self.layers.iter_mut().enumerate().filter(|(il, _)| which(*il)) {
            layer.n_head_kv = 0;
        }
    }

    /// Layers have as many KV heads as query heads, whatever the file has.
    pub(crate) fn share_no_heads(&mut self) {
        self.layers.iter_mut().for_each(|layer| layer.n_head_kv = layer.n_head);
    }

    /// Query heads of the layer that has most of them; layers with a recurrence may have none.
    pub(crate) fn most_heads(&self) -> u64 {
        self.layers.iter().map(|layer| layer.n_head).max().unwrap_or(0)
    }

    /// Reads the FFN's size in models whose layers have no heads.
    pub(crate) fn read_n_ff(&mut self, keys: &Keys<'_>) -> Result<()> {
        let n_ff = keys.per_layer("feed_forward_length", self.n_layer, 1..=MAX_DIM, None)?;
        self.layers.iter_mut().zip(n_ff).for_each(|(layer, n_ff)| layer.n_ff = n_ff);
        Ok(())
    }

    /// Elements of a row of layer `il`'s K cache.
    pub fn n_embd_k(&self, il: usize) -> u64 {
        self.layers[il].n_head_kv * self.layers[il].head_dim_k
    }

    /// Elements of a row of layer `il`'s V cache.
    pub fn n_embd_v(&self, il: usize) -> u64 {
        self.layers[il].n_head_kv * self.layers[il].head_dim_v
    }
}

// Far above every model, far below what overflows when dims are multiplied.
pub(crate) const MAX_DIM: u64 = 1 << 26;
pub(crate) const MAX_LAYERS: u64 = 1 << 12;

/// By the first layer that has heads; at least 1.
fn n_embd_of_head(n_embd: u64, layers: &[LayerConfig]) -> u64 {
    let n_head = layers.iter().map(|layer| layer.n_head).find(|&n| n > 0);
    (n_embd / n_head.unwrap_or(1)).max(1)
}

/// Layers that predict more than one token ahead follow the others; they are for speculation, which does without them.
fn read_n_layer(keys: &Keys<'_>) -> Result<usize> {
    let n_block = keys.count("block_count", 1..=MAX_LAYERS)?;
    let n_ahead = keys.count_or("nextn_predict_layers", 0..=n_block - 1, 0)?;
    Ok((n_block - n_ahead) as usize)
}

fn read_layers(keys: &Keys<'_>, n_layer: usize) -> Result<Vec<LayerConfig>> {
    let n_head = keys.per_layer("attention.head_count", n_layer, 1..=MAX_DIM, None)?;
    let n_head_kv = keys.per_layer("attention.head_count_kv", n_layer, 1..=MAX_DIM, Some(&n_head))?;
    let n_ff = keys.per_layer("feed_forward_length", n_layer, 1..=MAX_DIM, None)?;
    if let Some(il) = (0..n_layer).find(|&il| n_head_kv[il] > 0 && n_head[il] % n_head_kv[il] != 0) {
        return Err(Error::BadValue {
            key: keys.name("attention.head_count_kv"),
            found: format!("{} in layer {il}", n_head_kv[il]),
            expected: format!("a divisor of the {} query heads", n_head[il]),
        });
    }
    let layers = n_head.iter().zip(&n_head_kv).zip(&n_ff);
    Ok(layers
        .map(|((&n_head, &n_head_kv), &n_ff)| LayerConfig {
            n_head,
            n_head_kv,
            n_ff,
            ..LayerConfig::default()
        })
        .collect())
}

/// Files of OPT have none: PowerInfer, which makes them, computes with 0.
fn read_norm_eps(keys: &Keys<'_>, norm: Norm) -> Result<f32> {
    let key = match norm {
        Norm::Rms => "attention.layer_norm_rms_epsilon",
        Norm::Layer => "attention.layer_norm_epsilon",
    };
    match keys.arch {
        "opt" => Ok(keys.optional(key)?.unwrap_or(0.0)),
        _ => Ok(keys.meta.require(&keys.name(key))?),
    }
}

/// The length of the token list if there is one, as the vocabulary's own key is often left out.
fn read_n_vocab(keys: &Keys<'_>) -> Result<u64> {
    match keys.meta.get("tokenizer.ggml.tokens") {
        Some(Value::Array(tokens)) if !tokens.is_empty() => Ok(tokens.len() as u64),
        _ => keys.count("vocab_size", 1..=MAX_DIM),
    }
}
