//! The architectures. To add one: its file, a `mod` line and a row here.

mod baichuan;
mod bloom;
mod command_r;
mod deci;
mod deepseek2;
mod exaone4;
mod falcon;
mod gemma;
mod gemma2;
mod gemma3;
mod glm4;
mod gpt2;
mod gpt_like;
mod gptneox;
mod granite;
mod hrm_text;
mod hunyuan;
mod llama;
mod llama_like;
mod mamba2;
mod minicpm3;
mod mistral3;
mod mpt;
mod muse_glimmer;
mod nanbeige;
mod olmo;
mod olmo2;
mod openelm;
mod phi2;
mod phi3;
mod plamo;
mod plamo3;
mod qwen2;
mod qwen3;
mod qwen3vl;
mod refact;
mod seed_oss;
mod spark2_5;
mod stablelm;
mod talkie;

use crate::builder::Builder;
use crate::config::{Config, Keys, Norm, RopeKind};
use crate::error::{Error, Result};
use llmrt_gguf::{Metadata, printable_name};
use llmrt_graph::Tensor;

/// By their `general.architecture`.
const ARCHS: &[(&str, &Arch)] = &[
    ("arcee", &llama_like::ARCEE),
    ("baichuan", &baichuan::ARCH),
    ("bloom", &bloom::ARCH),
    ("chatglm", &llama_like::CHATGLM),
    ("codeshell", &gpt_like::CODESHELL),
    ("cogvlm", &llama_like::COGVLM),
    ("cohere2", &command_r::COHERE2),
    ("command-r", &command_r::ARCH),
    ("deci", &deci::ARCH),
    ("deepseek2", &deepseek2::ARCH),
    ("ernie4_5", &llama_like::ERNIE4_5),
    ("exaone", &llama_like::EXAONE),
    ("exaone4", &exaone4::ARCH),
    ("falcon", &falcon::ARCH),
    ("gemma", &gemma::ARCH),
    ("gemma2", &gemma2::ARCH),
    ("gemma3", &gemma3::ARCH),
    ("glm4", &glm4::ARCH),
    ("gpt2", &gpt2::ARCH),
    ("gptneox", &gptneox::ARCH),
    ("granite", &granite::ARCH),
    ("granite_swa", &granite::GRANITE_SWA),
    ("hrm_text", &hrm_text::ARCH),
    ("hunyuan-dense", &hunyuan::ARCH),
    ("hunyuan_vl", &hunyuan::ARCH),
    ("internlm2", &llama_like::INTERNLM2),
    ("jais", &gpt_like::JAIS),
    ("jais2", &gpt_like::JAIS2),
    ("llama", &llama::ARCH),
    ("maincoder", &hunyuan::MAINCODER),
    ("mamba2", &mamba2::ARCH),
    ("minicpm", &granite::MINICPM),
    ("minicpm3", &minicpm3::ARCH),
    ("mistral3", &mistral3::ARCH),
    ("mistral4", &deepseek2::MISTRAL4),
    ("mpt", &mpt::ARCH),
    ("muse-glimmer", &muse_glimmer::ARCH),
    ("nanbeige", &nanbeige::ARCH),
    ("nemotron", &gpt_like::NEMOTRON),
    ("olmo", &olmo::ARCH),
    ("olmo2", &olmo2::ARCH),
    ("openelm", &openelm::ARCH),
    ("orion", &gpt_like::ORION),
    ("paddleocr", &llama_like::PADDLEOCR),
    ("pangu-embedded", &llama_like::PANGU_EMBEDDED),
    ("phi2", &phi2::ARCH),
    ("phi3", &phi3::ARCH),
    ("plamo", &plamo::ARCH),
    ("plamo3", &plamo3::ARCH),
    ("pockettts", &gpt_like::POCKETTTS),
    ("qwen", &llama_like::QWEN),
    ("qwen2", &qwen2::ARCH),
    ("qwen2vl", &llama_like::QWEN2VL),
    ("qwen3", &qwen3::ARCH),
    ("qwen3tts", &qwen3vl::QWEN3TTS),
    ("qwen3vl", &qwen3vl::ARCH),
    ("refact", &refact::ARCH),
    ("seed_oss", &seed_oss::ARCH),
    ("smollm3", &llama_like::SMOLLM3),
    ("spark2_5", &spark2_5::ARCH),
    ("stablelm", &stablelm::ARCH),
    ("starcoder", &gpt_like::STARCODER),
    ("starcoder2", &gpt_like::STARCODER2),
    ("talkie", &talkie::ARCH),
    ("xverse", &llama_like::XVERSE),
];

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

/// Names of the architectures, as `general.architecture` has them.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    ARCHS.iter().map(|(name, _)| *name)
}

/// The architecture that a file names.
pub(crate) fn of(meta: &Metadata) -> Result<(&str, &'static Arch)> {
    let found: &str = meta.require("general.architecture")?;
    let known = ARCHS.iter().find(|(name, _)| *name == found);
    let (_, arch) = known.ok_or_else(|| Error::UnknownArchitecture {
        found: printable_name(found).into_owned(),
        expected: architectures().collect::<Vec<_>>().join(", "),
    })?;
    Ok((found, arch))
}
