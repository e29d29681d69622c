//! Detects the kind of a file by its first bytes.

use crate::checkpoint;

/// What a file's first bytes look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// `GGUF`.
    Gguf,
    /// `PWRI`: GGUF's layout, a sparse model or neuron index of PowerInfer.
    PowerInfer,
    /// llama2.c, magic and version 1: f32.
    Llama2cV1,
    /// llama2.c, magic and version 2: int8 in groups.
    Llama2cV2,
    /// No magic, but seven numbers that could be a llama2.c configuration; `Checkpoint::parse` decides.
    Llama2cV0Maybe,
    /// None of these.
    Unknown,
}

/// Looks at the first bytes of a file; 28 are enough.
pub fn sniff(prefix: &[u8]) -> FileKind {
    match (prefix.get(..4), checkpoint::version(prefix)) {
        (Some(b"GGUF"), _) => FileKind::Gguf,
        (Some(b"PWRI"), _) => FileKind::PowerInfer,
        (_, Some(checkpoint::Version::V1)) => FileKind::Llama2cV1,
        (_, Some(checkpoint::Version::V2)) => FileKind::Llama2cV2,
        (_, Some(checkpoint::Version::V0)) => FileKind::Llama2cV0Maybe,
        (_, None) => FileKind::Unknown,
    }
}
