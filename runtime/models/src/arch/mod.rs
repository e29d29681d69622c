//! The architectures. To add one: its file, a `mod` line and a row here.

mod afmoe;
mod apertus;
mod arctic;
mod baichuan;
mod bailingmoe3;
mod bert;
mod bitnet;
mod bloom;
mod chameleon;
mod cohere2moe;
mod command_r;
mod deci;
mod deepseek;
mod deepseek2;
mod deepseek32;
mod deepseek4;
mod diffusion;
mod dots3note;
mod encoder_like;
mod exaone4;
mod falcon;
mod falcon_h1;
mod gemma;
mod gemma2;
mod gemma3;
mod gemma3n;
mod gemma4;
mod glm4;
mod glm5_next;
mod gpt2;
mod gpt_like;
mod gpt_oss;
mod gptneox;
mod granite;
mod granitehybrid;
mod graniteswitch;
mod grok;
mod grovemoe;
mod hrm_text;
mod hunyuan;
mod hy_v4;
mod jamba;
mod kimi_k3;
mod kimi_linear;
mod laguna;
mod lfm2;
mod llama;
mod llama4;
mod llama_like;
mod mamba;
mod mimo2;
mod minicpm3;
mod minimax_01;
mod minimax_m3;
mod mistral3;
mod modern_bert;
mod mpt;
mod muse_glimmer;
mod nanbeige;
mod nemotron_h;
mod olmo;
mod olmo2;
mod olmoe;
mod openelm;
mod opt;
mod phi2;
mod phi3;
mod plamo;
mod plamo2;
mod plamo3;
mod plm;
mod qwen2;
mod qwen3;
mod qwen3moe;
mod qwen3next;
mod qwen3vl;
mod qwen4exp;
mod refact;
mod rwkv6;
mod rwkv7;
mod smallthinker;
mod spark2_5;
mod stablelm;
mod step35;
mod t5;
mod talkie;

use crate::batch::BatchShape;
use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::{Error, Result};
use llmrt_gguf::{Metadata, nearest, printable_name};
use llmrt_graph::Tensor;

/// By their `general.architecture`.
const ARCHS: &[(&str, &Arch)] = &[
    ("afmoe", &afmoe::ARCH),
    ("apertus", &apertus::ARCH),
    ("arcee", &llama_like::ARCEE),
    ("arctic", &arctic::ARCH),
    ("arwkv7", &rwkv7::ARWKV7),
    ("baichuan", &baichuan::ARCH),
    ("bailingmoe", &deepseek::BAILINGMOE),
    ("bailingmoe2", &qwen3moe::BAILINGMOE2),
    ("bailingmoe3", &bailingmoe3::ARCH),
    ("bamboo", &llama::BAMBOO),
    ("bert", &bert::ARCH),
    ("bitnet", &bitnet::ARCH),
    ("bloom", &bloom::ARCH),
    ("chameleon", &chameleon::ARCH),
    ("chatglm", &llama_like::CHATGLM),
    ("codeshell", &gpt_like::CODESHELL),
    ("cogvlm", &llama_like::COGVLM),
    ("cohere2", &command_r::COHERE2),
    ("cohere2moe", &cohere2moe::ARCH),
    ("command-r", &command_r::ARCH),
    ("dbrx", &deepseek::DBRX),
    ("deci", &deci::ARCH),
    ("deepseek", &deepseek::ARCH),
    ("deepseek2", &deepseek2::ARCH),
    ("deepseek2-ocr", &deepseek::DEEPSEEK2_OCR),
    ("deepseek32", &deepseek32::ARCH),
    ("deepseek4", &deepseek4::ARCH),
    ("dots1", &qwen3moe::DOTS1),
    ("dots3note", &dots3note::ARCH),
    ("dream", &diffusion::DREAM),
    ("ernie4_5", &llama_like::ERNIE4_5),
    ("ernie4_5-moe", &deepseek::ERNIE4_5_MOE),
    ("eurobert", &encoder_like::EUROBERT),
    ("exaone", &llama_like::EXAONE),
    ("exaone-moe", &qwen3moe::EXAONE_MOE),
    ("exaone4", &exaone4::ARCH),
    ("falcon", &falcon::ARCH),
    ("falcon-h1", &falcon_h1::ARCH),
    ("gemma", &gemma::ARCH),
    ("gemma-embedding", &encoder_like::GEMMA_EMBEDDING),
    ("gemma2", &gemma2::ARCH),
    ("gemma3", &gemma3::ARCH),
    ("gemma3n", &gemma3n::ARCH),
    ("gemma4", &gemma4::ARCH),
    ("glm-dsa", &deepseek32::GLM_DSA),
    ("glm4", &glm4::ARCH),
    ("glm4moe", &qwen3moe::GLM4MOE),
    ("glm5-next", &glm5_next::ARCH),
    ("gpt-oss", &gpt_oss::ARCH),
    ("gpt2", &gpt2::ARCH),
    ("gptneox", &gptneox::ARCH),
    ("granite", &granite::ARCH),
    ("granite_swa", &granite::GRANITE_SWA),
    ("granitehybrid", &granitehybrid::ARCH),
    ("granitemoe", &granite::GRANITEMOE),
    ("graniteswitch", &graniteswitch::ARCH),
    ("grok", &grok::ARCH),
    ("grovemoe", &grovemoe::ARCH),
    ("hrm_text", &hrm_text::ARCH),
    ("hunyuan-dense", &hunyuan::ARCH),
    ("hunyuan-moe", &hunyuan::HUNYUAN_MOE),
    ("hunyuan_vl", &hunyuan::ARCH),
    ("hy_v3", &qwen3moe::HY_V3),
    ("hy_v4", &hy_v4::ARCH),
    ("internlm2", &llama_like::INTERNLM2),
    ("jais", &gpt_like::JAIS),
    ("jais2", &gpt_like::JAIS2),
    ("jamba", &jamba::ARCH),
    ("jina-bert-v2", &bert::JINA_BERT_V2),
    ("jina-bert-v3", &bert::JINA_BERT_V3),
    ("kimi-k3", &kimi_k3::ARCH),
    ("kimi-linear", &kimi_linear::ARCH),
    ("laguna", &laguna::ARCH),
    ("lfm2", &lfm2::ARCH),
    ("lfm2moe", &lfm2::ARCH),
    ("llada", &diffusion::LLADA),
    ("llada-moe", &diffusion::LLADA_MOE),
    ("llama", &llama::ARCH),
    ("llama-embed", &encoder_like::LLAMA_EMBED),
    ("llama4", &llama4::ARCH),
    ("maincoder", &hunyuan::MAINCODER),
    ("mamba", &mamba::ARCH),
    ("mamba2", &mamba::MAMBA2),
    ("maple", &qwen3moe::MAPLE),
    ("mellum", &qwen3moe::MELLUM),
    ("mimo2", &mimo2::ARCH),
    ("minicpm", &granite::MINICPM),
    ("minicpm3", &minicpm3::ARCH),
    ("minimax-01", &minimax_01::ARCH),
    ("minimax-m2", &olmoe::MINIMAX_M2),
    ("minimax-m3", &minimax_m3::ARCH),
    ("mistral3", &mistral3::ARCH),
    ("mistral4", &deepseek2::MISTRAL4),
    ("modern-bert", &modern_bert::ARCH),
    ("mpt", &mpt::ARCH),
    ("muse-glimmer", &muse_glimmer::ARCH),
    ("nanbeige", &nanbeige::ARCH),
    ("nemotron", &gpt_like::NEMOTRON),
    ("nemotron_h", &nemotron_h::ARCH),
    ("nemotron_h_moe", &nemotron_h::ARCH),
    ("neo-bert", &encoder_like::NEO_BERT),
    ("nomic-bert", &bert::NOMIC_BERT),
    ("nomic-bert-moe", &bert::NOMIC_BERT_MOE),
    ("olmo", &olmo::ARCH),
    ("olmo2", &olmo2::ARCH),
    ("olmoe", &olmoe::ARCH),
    ("openelm", &openelm::ARCH),
    ("opt", &opt::ARCH),
    ("orion", &gpt_like::ORION),
    ("paddleocr", &llama_like::PADDLEOCR),
    ("pangu-embedded", &llama_like::PANGU_EMBEDDED),
    ("phi2", &phi2::ARCH),
    ("phi3", &phi3::ARCH),
    ("phimoe", &deepseek::PHIMOE),
    ("plamo", &plamo::ARCH),
    ("plamo2", &plamo2::ARCH),
    ("plamo3", &plamo3::ARCH),
    ("plm", &plm::ARCH),
    ("pockettts", &gpt_like::POCKETTTS),
    ("qwen", &llama_like::QWEN),
    ("qwen2", &qwen2::ARCH),
    ("qwen2moe", &deepseek::QWEN2MOE),
    ("qwen2vl", &llama_like::QWEN2VL),
    ("qwen3", &qwen3::ARCH),
    ("qwen35", &qwen3next::QWEN3_5),
    ("qwen35moe", &qwen3next::QWEN3_5),
    ("qwen3moe", &qwen3moe::ARCH),
    ("qwen3next", &qwen3next::QWEN3_NEXT),
    ("qwen3tts", &qwen3vl::QWEN3TTS),
    ("qwen3vl", &qwen3vl::ARCH),
    ("qwen3vlmoe", &qwen3moe::QWEN3VLMOE),
    ("qwen4exp", &qwen4exp::ARCH),
    ("refact", &refact::ARCH),
    ("rnd1", &diffusion::RND1),
    ("rwkv6", &rwkv6::RWKV6),
    ("rwkv6qwen2", &rwkv6::RWKV6_QWEN2),
    ("rwkv7", &rwkv7::RWKV7),
    ("seed_oss", &llama_like::SEED_OSS),
    ("smallthinker", &smallthinker::ARCH),
    ("smollm3", &llama_like::SMOLLM3),
    ("spark2_5", &spark2_5::ARCH),
    ("stablelm", &stablelm::ARCH),
    ("starcoder", &gpt_like::STARCODER),
    ("starcoder2", &gpt_like::STARCODER2),
    ("step35", &step35::ARCH),
    ("t5", &t5::T5),
    ("t5encoder", &t5::T5ENCODER),
    ("talkie", &talkie::ARCH),
    ("xverse", &llama_like::XVERSE),
];

/// What a projector is.
const PROJECTOR: &str = "a projector (mmproj) that makes embeddings of images or sounds for a model";

/// Files that belong to models, by their `general.architecture`, and what they are.
const PARTS: &[(&str, &str)] = &[
    ("clip", PROJECTOR),
    ("dflash", "layers that draft blocks of tokens for a model, whose hidden states they read"),
    (
        "eagle3",
        "a layer that predicts ahead for a model, whose hidden states it reads (EAGLE 3, arXiv 2503.01840)",
    ),
    (
        "gemma4-assistant",
        "layers that predict ahead for a Gemma 4 model, whose caches they read: `--model-draft` of that model",
    ),
    ("wavtokenizer-dec", "a decoder that makes sounds of a model's codes (WavTokenizer, arXiv 2408.16532)"),
];

/// The same, by their `general.type`.
const PART_TYPES: &[(&str, &str)] = &[
    ("adapter", "weights (LoRA) that change those of a model, which llmrt does not apply"),
    ("imatrix", "statistics for quantising a model"),
    ("mmproj", PROJECTOR),
];

/// Architectures that are made for images, whose embeddings come from a projector.
const WITH_PROJECTOR: &[&str] =
    &["cogvlm", "deepseek2-ocr", "hunyuan_vl", "paddleocr", "qwen2vl", "qwen3vl", "qwen3vlmoe"];

/// Whether models of this architecture get embeddings of images from a projector, a file of its own.
pub fn has_projector(arch: &str) -> bool {
    WITH_PROJECTOR.contains(&arch)
}

/// What is special about an architecture.
#[derive(Debug)]
pub(crate) struct Arch {
    /// Whether layers have heads and an FFN.
    has_attention: bool,
    /// How hidden states are normed.
    norm: Norm,
    /// How heads are rotated.
    rope: RopeKind,
    /// Reads the metadata that only this architecture has.
    config: fn(&mut Config, &Keys<'_>) -> Result<()>,
    /// Builds the graph; the result are the logits [n_vocab, n_outputs].
    pub graph: fn(&mut Builder<'_>) -> Result<Tensor>,
}

impl Arch {
    /// The configuration in the metadata.
    pub fn config(&self, meta: &Metadata, arch: &str) -> Result<Config> {
        let mut cfg = Config::read(meta, arch, self.has_attention, self.norm, self.rope)?;
        (self.config)(&mut cfg, &Keys { meta, arch })?;
        Ok(cfg)
    }
}

/// Layers that predict ahead for models of an architecture, in a file of their own.
#[derive(Debug)]
pub(crate) struct DraftLayers {
    /// `general.architecture` of their file.
    name: &'static str,
    /// That of the models.
    of: &'static str,
    /// Their configuration, for a model with this one.
    config: fn(&Keys<'_>, &Config) -> Result<Config>,
    /// Builds their graph, for a model with this configuration; the result are the logits [n_vocab, n_outputs], beside
    /// [`Builder::hidden`].
    graph: fn(&mut Builder<'_>, &Config) -> Result<Tensor>,
}

const DRAFT_LAYERS: &[&DraftLayers] = &[&gemma4::ASSISTANT];

impl DraftLayers {
    /// Whether the metadata have theirs beside those of the model.
    pub fn are_in(&self, meta: &Metadata) -> bool {
        meta.contains(&format!("{}.block_count", self.name))
    }

    /// Their configuration in the metadata, for a model with this one.
    pub fn config(&self, meta: &Metadata, model: &Config) -> Result<Config> {
        (self.config)(&Keys { meta, arch: self.name }, model)
    }

    /// Goes on with their graph, of this configuration and shape, for a model; the result are the logits.
    pub fn build<'a>(
        &self,
        b: &mut Builder<'a>,
        (cfg, shape): (&'a Config, &'a BatchShape),
        model: &Config,
    ) -> Result<Tensor> {
        b.begin_drafts(cfg, shape);
        (self.graph)(b, model)
    }
}

/// Those for models of this architecture.
pub(crate) fn draft_layers(arch: &str) -> Option<&'static DraftLayers> {
    DRAFT_LAYERS.iter().copied().find(|layers| layers.of == arch)
}

/// The architecture of the models for which files of this one predict ahead, if they do.
pub fn drafts_for(arch: &str) -> Option<&'static str> {
    DRAFT_LAYERS.iter().find(|layers| layers.name == arch).map(|layers| layers.of)
}

/// Names of the architectures, as `general.architecture` has them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHS.iter().map(|(name, _)| *name)
}

/// The architecture that a file names.
pub(crate) fn of(meta: &Metadata) -> Result<(&str, &'static Arch)> {
    if let Some(found) = meta.str("general.type")
        && let Some(&(_, what)) = PART_TYPES.iter().find(|(name, _)| *name == found)
    {
        return Err(Error::PartOfModel { key: "general.type", found: found.into(), what });
    }
    let found: &str = meta.require("general.architecture")?;
    let known = ARCHS.iter().find(|(name, _)| *name == found);
    if let Some(&(_, what)) = PARTS.iter().find(|(name, _)| *name == found) {
        return Err(Error::PartOfModel { key: "general.architecture", found: found.into(), what });
    }
    let (_, arch) = known.ok_or_else(|| Error::UnknownArchitecture {
        found: printable_name(found).into_owned(),
        nearest: nearest(found, architectures(), 5).join(", "),
    })?;
    Ok((found, arch))
}
