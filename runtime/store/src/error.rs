//! What can go wrong, each with a code for programs, a cause and a remedy for people.

use crate::digest::Digest;
use crate::name::Name;
use std::io;
use std::path::{Path, PathBuf};

/// Result of the store.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure; its text is the cause, [`Error::remedy`] what to do.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A text that names no model.
    #[error("{}: {problem}", name.escape_debug())]
    BadName {
        /// The text.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A text that is no digest.
    #[error("`{}` is no digest: expected sha256: and 64 hexadecimal digits", found.escape_debug())]
    BadDigest {
        /// The text, cut.
        found: String,
    },
    /// A model that the store lacks.
    #[error("{name}: is not in the store")]
    NotFound {
        /// The model.
        name: Name,
    },
    /// A manifest that cannot be used.
    #[error("{name}: its manifest {problem}")]
    BadManifest {
        /// The model.
        name: Name,
        /// What is wrong with it.
        problem: String,
    },
    /// A blob that a manifest names and that is absent or of another size.
    #[error("{name}: the blob {digest} {problem}")]
    BadBlob {
        /// The model.
        name: Name,
        /// The blob.
        digest: Digest,
        /// What is wrong with it.
        problem: String,
    },
    /// A model without a GGUF file, or with parts that are not supported.
    #[error("{name}: {problem}")]
    Unsupported {
        /// The model.
        name: Name,
        /// What it lacks or has.
        problem: String,
    },
    /// A Modelfile that cannot be used.
    #[error("line {line}: {problem}")]
    Modelfile {
        /// Counted from 1.
        line: usize,
        /// What was found, what was expected.
        problem: String,
    },
    /// A text that a Modelfile cannot hold.
    #[error("{instruction} holds `\"\"\"`, which a Modelfile has no spelling for")]
    Unprintable {
        /// Whose text it is.
        instruction: &'static str,
    },
    /// `FROM` names neither a file nor a model of the store.
    #[error("FROM {}: there is no such file, and no such model in the store", from.escape_debug())]
    NoBase {
        /// The text after `FROM`.
        from: String,
    },
    /// A file that is no GGUF file, or a part of one.
    #[error("{}: {problem}", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// What it is instead.
        problem: &'static str,
    },
    /// The system refuses work on a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// What the system returned.
        source: io::Error,
    },
    /// A host that requires TLS by default.
    #[error("{host}: plain HTTP protects neither the model nor what is sent")]
    PlainHttp {
        /// The host.
        host: String,
    },
    /// No connection, or one that broke more often than it is retried.
    #[error("{url}: {cause}{}", tries(*n_tries))]
    Network {
        /// What was requested.
        url: String,
        /// What happened last.
        cause: String,
        /// How often it was tried.
        n_tries: u32,
    },
    /// A registry that does not have the model.
    #[error("{name}: {host} has no such model or tag")]
    NotInRegistry {
        /// The model.
        name: Name,
        /// The registry.
        host: String,
    },
    /// A registry that requires an account.
    #[error("{url}: the server refuses access (status {status})")]
    Unauthorized {
        /// What was requested.
        url: String,
        /// 401 or 403.
        status: u16,
    },
    /// Any other status that ends the request.
    #[error("{url}: the server answered with status {status}{}", detail(message))]
    Status {
        /// What was requested.
        url: String,
        /// The status.
        status: u16,
        /// The server's text, cut.
        message: String,
    },
    /// An answer in a form that the protocol does not have.
    #[error("{url}: the server's answer {problem}")]
    BadAnswer {
        /// What was requested.
        url: String,
        /// What was found, what was expected.
        problem: String,
    },
    /// Bytes that do not have the digest they were requested by.
    #[error("{url}: the bytes have the digest {found}, expected {expected}")]
    DigestMismatch {
        /// What was requested.
        url: String,
        /// Of the manifest.
        expected: Digest,
        /// Of the bytes.
        found: Digest,
    },
    /// A blob of another length than its manifest states.
    #[error("{url}: the server has {found} bytes, the manifest states {expected}")]
    WrongLength {
        /// What was requested.
        url: String,
        /// Of the manifest.
        expected: u64,
        /// Of the server.
        found: u64,
    },
    /// The caller cancelled the work.
    #[error("interrupted")]
    Cancelled,
}

impl Error {
    /// A name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Error::BadName { .. } => "bad-name",
            Error::BadDigest { .. } => "bad-digest",
            Error::NotFound { .. } => "not-found",
            Error::BadManifest { .. } => "bad-manifest",
            Error::BadBlob { .. } => "bad-blob",
            Error::Unsupported { .. } => "unsupported",
            Error::Modelfile { .. } => "bad-modelfile",
            Error::Unprintable { .. } => "unprintable",
            Error::NoBase { .. } => "no-base",
            Error::NotGguf { .. } => "not-gguf",
            Error::Io { .. } => "io",
            Error::PlainHttp { .. } => "plain-http",
            Error::Network { .. } => "network",
            Error::NotInRegistry { .. } => "not-in-registry",
            Error::Unauthorized { .. } => "unauthorized",
            Error::Status { .. } => "status",
            Error::BadAnswer { .. } => "bad-answer",
            Error::DigestMismatch { .. } => "digest-mismatch",
            Error::WrongLength { .. } => "wrong-length",
            Error::Cancelled => "cancelled",
        }
    }

    /// What helps.
    pub fn remedy(&self) -> &'static str {
        match self {
            Error::BadName { .. } => "give [HOST/][NAMESPACE/]NAME[:TAG]",
            Error::BadDigest { .. } => {
                "the manifest or the file name is wrong: get the model again with `llmrt pull`"
            }
            Error::NotFound { .. } => "`llmrt list` shows what is there, `llmrt pull` gets a model",
            Error::BadManifest { .. } | Error::BadBlob { .. } => {
                "get the model again with `llmrt pull`, or remove it with `llmrt rm`"
            }
            Error::Unsupported { .. } => "choose a model that is one GGUF file",
            Error::Modelfile { .. } => "correct the Modelfile",
            Error::Unprintable { .. } => "`llmrt show --json` prints it",
            Error::NoBase { .. } => {
                "give a GGUF file's path from the Modelfile's folder, or pull the model first"
            }
            Error::NotGguf { .. } => "give a GGUF file: `llmrt convert` makes one of a llama2.c checkpoint",
            Error::Io { source, .. } => io_remedy(source),
            Error::PlainHttp { .. } => "use https, or permit it with --insecure",
            Error::Network { .. } => {
                "check the host and the network, then repeat the command: it continues where it ended"
            }
            Error::NotInRegistry { .. } => "check the name and the tag",
            Error::Unauthorized { .. } => {
                "check the name; models of the hub that need an account are pulled with HF_TOKEN"
            }
            Error::Status { .. } => "try later, or another registry",
            Error::BadAnswer { .. } => "check that the host is a model registry",
            Error::DigestMismatch { .. } => "what was received is discarded: repeat the command",
            Error::WrongLength { .. } => "the registry is inconsistent: try another tag, or later",
            Error::Cancelled => "repeat the command: it continues where it ended",
        }
    }

    /// `path` with what was attempted there.
    pub(crate) fn io<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> Error + 'a {
        move |source| Error::Io { path: path.into(), action, source }
    }
}

fn io_remedy(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free some space, or set another folder with LLMRT_MODELS"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "check the rights of the folder, or set another one with LLMRT_MODELS"
        }
        _ => "check the path and the file system",
    }
}

fn tries(n: u32) -> String {
    if n > 1 { format!(" ({n} tries)") } else { String::new() }
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {}", message.escape_debug()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every error is a golden text: to accept new ones, change `errors.txt`.
    #[test]
    fn every_error_has_a_code_a_cause_and_a_remedy() {
        let name: Name = "me/tiny:a".parse().unwrap();
        let [expected, found] = [Digest::of(b"a"), Digest::of(b"b")];
        let url = || "https://example.org/v2/me/tiny/blobs/x".to_string();
        let problem = || "has no layers".to_string();
        let full = |kind| Error::io(Path::new("models/blobs"), "write")(io::Error::new(kind, "no"));
        let errors = [
            Error::BadName { name: "a/..".into(), problem: "has the name `..`".into() },
            Error::BadDigest { found: "md5:\n0".into() },
            Error::NotFound { name: name.clone() },
            Error::BadManifest { name: name.clone(), problem: problem() },
            Error::BadBlob { name: name.clone(), digest: expected, problem: "is missing".into() },
            Error::Unsupported { name: name.clone(), problem: problem() },
            Error::Modelfile { line: 3, problem: "expected FROM".into() },
            Error::Unprintable { instruction: "SYSTEM" },
            Error::NoBase { from: "x.gguf".into() },
            Error::NotGguf { path: "x.bin".into(), problem: "is no GGUF file" },
            full(io::ErrorKind::StorageFull),
            full(io::ErrorKind::PermissionDenied),
            full(io::ErrorKind::NotFound),
            Error::PlainHttp { host: "127.0.0.1:1".into() },
            Error::Network { url: url(), cause: "no route".into(), n_tries: 1 },
            Error::Network { url: url(), cause: "it broke".into(), n_tries: 6 },
            Error::NotInRegistry { name, host: "example.org".into() },
            Error::Unauthorized { url: url(), status: 401 },
            Error::Status { url: url(), status: 503, message: "\x1b[2Jbusy".into() },
            Error::BadAnswer { url: url(), problem: "is no JSON".into() },
            Error::DigestMismatch { url: url(), expected, found },
            Error::WrongLength { url: url(), expected: 10, found: 9 },
            Error::Cancelled,
        ];
        let line = |e: &Error| format!("{}: {e}; {}\n", e.code(), e.remedy());
        let text: String = errors.iter().map(line).collect();
        assert_eq!(text, include_str!("errors.txt"), "the texts are now:\n{text}");
    }
}
