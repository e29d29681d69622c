//! Errors between a path and loaded weights, each with its remedy.

use std::io;
use std::path::PathBuf;

use super::WeightRequest;
use llmrt_abi::Status;
use llmrt_gguf::printable_path;

/// Result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model was not opened or loaded.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each field is named in its variant's message
pub enum Error {
    // Opening.
    #[error("{}: cannot open: {source}; {}", printable_path(path), remedy(source))]
    Open { path: PathBuf, source: io::Error },
    #[error("{}: is a directory: give the model file in it{hint}", printable_path(path))]
    IsDirectory { path: PathBuf, hint: String },
    #[error("{}: is no regular file: a model must be one, copy it to a file first", printable_path(path))]
    NotRegular { path: PathBuf },
    #[error("{}: the file is empty: download it again", printable_path(path))]
    Empty { path: PathBuf },
    #[error(
        "{}: is no model file: it begins with \"{found}\", expected GGUF, PWRI or a llama2.c checkpoint; \
         convert the model to GGUF first",
        printable_path(path)
    )]
    NotAModel { path: PathBuf, found: String },
    #[error(
        "{}: is neither GGUF nor a llama2.c checkpoint without magic ({source}); check that the download is \
         whole, or convert the model to GGUF",
        printable_path(path)
    )]
    NotACheckpoint { path: PathBuf, source: llmrt_gguf::Error },
    #[error("{}: {source}", printable_path(path))]
    Invalid { path: PathBuf, source: llmrt_gguf::Error },
    #[error(
        "{}: part {number} of {count} of the model is missing: {source}; put all parts in one folder",
        printable_path(path)
    )]
    MissingPart { path: PathBuf, number: u32, count: u32, source: io::Error },
    #[error(
        "{}: is part {number} of {count} of a split model but not named so: expected a name that ends in \
         `-{number:05}-of-{count:05}.gguf`; rename it",
        printable_path(path)
    )]
    SplitName { path: PathBuf, number: u32, count: u32 },
    #[error(
        "{}: --tokenizer is for llama2.c checkpoints, this file has its own tokenizer; leave the flag out",
        printable_path(path)
    )]
    NeedlessTokenizer { path: PathBuf },
    #[error("--override-kv: {0}")]
    Override(llmrt_gguf::Error),

    #[error("{}: sealed weights are not used: {problem}", printable_path(path))]
    SealCache { path: PathBuf, problem: String },

    // Reading.
    #[error("{}: cannot read {n} bytes at byte {at}: {source}", printable_path(path))]
    Read { path: PathBuf, at: u64, n: u64, source: io::Error },
    #[error("{}: cannot map the file: {source}; {}", printable_path(path), map_remedy(source))]
    Map { path: PathBuf, source: io::Error },
    #[error(
        "{}: part {number} of {count} of the model: the file is {found}; put the parts of one model in one folder, \
         download this one again",
        printable_path(path)
    )]
    WrongPart { path: PathBuf, number: u32, count: u32, found: String },
    #[error(
        "{}: the file had {was} bytes when it was opened and has {now} now: something writes to it; wait until \
         that is done and start again",
        printable_path(path)
    )]
    Changed { path: PathBuf, was: u64, now: u64 },
    #[error(
        "{}: {}; restore the file and start again, or use `--load-mode none` for files that change",
        printable_path(path),
        lost(*was, *now)
    )]
    Lost { path: PathBuf, was: u64, now: u64 },

    // Placing.
    #[error("tensor `{tensor}` is missing from the model file")]
    MissingTensor { tensor: String },
    #[error("tensor `{tensor}` is {found} in the file: expected {expected}")]
    WrongTensor { tensor: String, found: String, expected: String },
    #[error("{}", bad_tensors(.tensors))]
    InvalidData { tensors: Vec<(String, String)> },
    #[error("loading was cancelled")]
    Cancelled,
    #[error("tensor `{tensor}` on device {device}: {source}")]
    Tensor { tensor: String, device: String, source: crate::Error },
    #[error("device {device}: cannot take {n} bytes of weights: {source}{}", memory_remedy(source))]
    Alloc { device: String, n: u64, source: crate::Error },
    #[error("device {device}: cannot use {n} bytes of the mapped file: {source}; try `--load-mode none`")]
    Import { device: String, n: u64, source: crate::Error },
    #[error(
        "tensor `{tensor}` on device {device} has another layout after it was written again: {problem}; leave --sparse-adapt out"
    )]
    OtherLayout { tensor: String, device: String, problem: String },
    #[error("no memory for {n} bytes of {what}; {HOST_REMEDY}")]
    HostMemory { what: String, n: u64 },
}

impl Error {
    /// Whether memory ran out, on a device or here.
    pub fn is_oom(&self) -> bool {
        match self {
            Error::HostMemory { .. } => true,
            Error::Map { source, .. } => source.kind() == io::ErrorKind::OutOfMemory,
            Error::Tensor { source, .. } | Error::Alloc { source, .. } | Error::Import { source, .. } => {
                source.is_oom()
            }
            _ => false,
        }
    }

    /// The device's error, if it is one.
    pub fn of_device(&self) -> Option<&crate::Error> {
        match self {
            Error::Tensor { source, .. } | Error::Alloc { source, .. } | Error::Import { source, .. } => {
                Some(source)
            }
            _ => None,
        }
    }

    /// A device refused a tensor.
    pub(super) fn tensor(request: &WeightRequest, source: crate::Error) -> Error {
        Error::Tensor { tensor: request.name.clone(), device: request.device.name().into(), source }
    }
}

/// Why pages of a mapped file were lost, by its lengths.
fn lost(was: u64, now: u64) -> String {
    match now < was {
        true => format!("the file was truncated while it was in use: {now} bytes, {was} when it was opened"),
        false => {
            "pages of the file could not be read while it was in use: it was truncated, or the disk failed"
                .into()
        }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "make it readable (`chmod +r`) or run as its owner",
        _ => "check the path and the disk",
    }
}

/// What helps where the host's memory or address space ran out.
const HOST_REMEDY: &str = "free memory, raise the limit of the address space (`ulimit -v`), or take a smaller model or one of fewer bits";

fn map_remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::OutOfMemory { HOST_REMEDY } else { "try `--load-mode none`" }
}

fn memory_remedy(error: &crate::Error) -> String {
    match error.status() {
        Status::OomHost => format!("; {HOST_REMEDY}"),
        Status::OomDevice => {
            "; lower the context size (-c) or the batch (-b), or name another device after this one, \
                              which takes the layers that do not fit: --backend A,B"
                .into()
        }
        _ => String::new(),
    }
}

fn bad_tensors(tensors: &[(String, String)]) -> String {
    let lines: Vec<_> =
        tensors.iter().map(|(name, what)| format!("tensor `{name}` has invalid data: {what}")).collect();
    format!("{}; the file is damaged, download it again", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_address_space_is_a_lack_of_memory_with_a_remedy_for_it() {
        let error = |code| Error::Map { path: "m.gguf".into(), source: io::Error::from_raw_os_error(code) };
        let lacking = error(libc::ENOMEM);
        assert!(lacking.is_oom() && lacking.to_string().contains("`ulimit -v`"), "{lacking}");
        let other = error(libc::ENODEV);
        assert!(!other.is_oom() && other.to_string().ends_with("try `--load-mode none`"), "{other}");
    }
}
