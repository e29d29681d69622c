//! Everything that can be wrong with a model file, with what was found and what was expected.

use crate::printable::printable_name as shown;

/// Why bytes are not a usable model file. The caller adds the name of the file.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[allow(missing_docs)] // each field is named in its variant's message
pub enum Error {
    // The header.
    #[error("invalid magic {found:?}: expected `GGUF` or `PWRI`; this is not a GGUF file")]
    BadMagic { found: String },
    #[error(
        "GGUF version {found} is not supported: expected 2 or 3; convert the model again with a current tool"
    )]
    BadVersion { found: u32 },
    #[error(
        "GGUF version reads as {found:#010x}: the file has the other byte order; llmrt reads little-endian files"
    )]
    WrongEndianness { found: u32 },
    #[error("the first {at_least} bytes of the file are needed to go on")]
    NeedMore { at_least: u64 },
    #[error(
        "file ends early: {} at byte {at} needs {needed} bytes, the file has {file_len}; download it again",
        shown(what)
    )]
    Truncated { what: String, at: u64, needed: u64, file_len: u64 },
    #[error("{} claims {found} entries, the rest of the file holds {most} at most", shown(what))]
    BadCount { what: String, found: u64, most: u64 },

    // Metadata.
    #[error("metadata key `{}` appears twice", shown(key))]
    DuplicateKey { key: String },
    #[error("metadata key `{}` has type {found}: expected 0 to 12", shown(key))]
    BadValueType { key: String, found: u32 },
    #[error("metadata key `{}`: arrays are nested deeper than {limit}", shown(key))]
    NestedTooDeep { key: String, limit: usize },
    #[error("metadata key `{}` is missing", shown(key))]
    MissingKey { key: String },
    #[error("metadata key `{}` is {found}: expected {expected}", shown(key))]
    WrongType { key: String, found: String, expected: &'static str },
    #[error("general.alignment is {found}: expected a power of two of type u32")]
    BadAlignment { found: String },
    #[error(
        "override `{}` is not KEY=TYPE:VAL with TYPE int, float, bool or str: {}",
        shown(given),
        shown(reason)
    )]
    BadOverride { given: String, reason: String },

    // Tensors.
    #[error("tensor `{}`: the name has {found} bytes, expected fewer than 64", shown(tensor))]
    LongTensorName { tensor: String, found: u64 },
    #[error("tensor `{}` appears twice", shown(tensor))]
    DuplicateTensor { tensor: String },
    #[error("tensor `{}` has {found} dimensions: expected at most 4", shown(tensor))]
    TooManyDims { tensor: String, found: u32 },
    #[error("tensor `{}`: dimension {dim} is {found}: expected a positive number", shown(tensor))]
    BadDim { tensor: String, dim: usize, found: i64 },
    #[error("tensor `{}` of shape {ne:?} has more elements or bytes than 63 bits count", shown(tensor))]
    TooManyElements { tensor: String, ne: [u64; 4] },
    #[error("tensor `{}` has type {found}, which is no live GGUF tensor type", shown(tensor))]
    BadTensorType { tensor: String, found: u32 },
    #[error("tensor `{}`: a row of {found} elements is not whole {dtype} blocks of {block}", shown(tensor))]
    PartialBlock { tensor: String, found: u64, dtype: &'static str, block: usize },
    #[error(
        "tensor `{}` starts at offset {found}: expected a multiple of the alignment {alignment}",
        shown(tensor)
    )]
    MisalignedTensor { tensor: String, found: u64, alignment: u32 },
    #[error(
        "tensor `{}` starts at offset {found}: expected {expected}, right after the tensor before it",
        shown(tensor)
    )]
    OutOfOrder { tensor: String, found: u64, expected: u64 },
    #[error("tensor `{}` ends at byte {end}, past the file's {file_len}", shown(tensor))]
    PastEnd { tensor: String, end: u64, file_len: u64 },
    #[error("tensor `{}` is missing", shown(tensor))]
    MissingTensor { tensor: String },

    // Split files.
    #[error("split model: {0}")]
    BadSplit(String),

    // llama2.c files.
    #[error("llama2.c checkpoint: {0}")]
    BadCheckpoint(String),
    #[error("llama2.c checkpoint {version}: the file has {found} bytes, its header requires {expected}")]
    CheckpointSize { version: &'static str, found: u64, expected: u64 },
    #[error("tokenizer.bin: {0}")]
    BadTokenizer(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_out_of_files_cannot_steer_the_terminal() {
        let key = "\x1b]0;title\x07\u{202e}".to_string();
        for e in [
            Error::DuplicateKey { key: key.clone() },
            Error::Truncated { what: key.clone(), at: 0, needed: 1, file_len: 0 },
            Error::BadCount { what: key.clone(), found: 1, most: 0 },
            Error::MissingTensor { tensor: key.clone() },
            Error::BadOverride { given: key.clone(), reason: String::new() },
        ] {
            let message = e.to_string();
            assert!(message.contains("\\u{1b}]0;title\\u{7}\\u{202e}"), "{message}");
            assert!(!message.contains(crate::is_terminal_control), "{message}");
        }
    }
}
