//! Errors between host and plugins; each names the call, the plugin, and what is still usable.

use llmrt_abi::{Scope, Status, types as c};
use llmrt_gguf::printable_path;
use std::path::PathBuf;

/// Result of host calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of the host or of a plugin it called.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A plugin answered a call with an error.
    #[error(transparent)]
    Call(Box<CallError>),
    /// A device that cannot be used: it did not open, repeats another one, or was found unfit while loading.
    #[error("device {device} is not in use: {reason}")]
    Unused {
        /// Its id.
        device: String,
        /// Why.
        reason: String,
    },
    /// A device or plugin broke and is not called any more.
    #[error("{what} is quarantined after: {reason}")]
    Quarantined {
        /// Device id or plugin name.
        what: String,
        /// The failure that did it.
        reason: String,
    },
    /// A file or table that is not accepted as a plugin.
    #[error("{}: not loaded: {reason}", printable_path(path))]
    Load {
        /// The file, or `(built in)`.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A graph, tensor or range that does not hold together.
    #[error("{what}: {problem}")]
    Invalid {
        /// Which tensor, node or buffer.
        what: String,
        /// What was found and what was expected.
        problem: String,
    },
    /// Nodes would not run on the first device, and that was forbidden.
    #[error("{n_nodes} nodes would not run on the first device, and strict placement forbids that:\n{list}")]
    Fallback {
        /// How many.
        n_nodes: usize,
        /// The placement report.
        list: String,
    },
    /// An op that no device runs, not even the baseline.
    #[error(
        "no device runs {op} of {operand}; `llmrt ops` lists what is supported; convert the model to another type"
    )]
    UnsupportedOp {
        /// The op.
        op: &'static str,
        /// Its first operand, with type, dims, and the baseline's verdict.
        operand: String,
    },
    /// A custom op that no loaded plugin brought.
    #[error(
        "op {op} version {version} is of a plugin that is not loaded{}; name its file with --plugin, and see `llmrt plugins`",
        other_versions(versions)
    )]
    NoOp {
        /// `vendor.op`.
        op: String,
        /// The required version.
        version: u32,
        /// Versions that are there.
        versions: Vec<u32>,
    },
    /// Weights that a graph requires on a device could not be loaded there.
    #[error("loading weights for another device: {problem}")]
    Weights {
        /// The loader's error.
        problem: String,
    },
    /// A run whose [`crate::CancelToken`] was set.
    #[error("the run was cancelled")]
    Cancelled,
    /// A model file of which a device uses pages in place was truncated, or could not be read.
    #[error("{problem}")]
    ModelFile {
        /// Which file, what was found, what to do.
        problem: String,
    },
    /// A body panicked, or a thread could not be started.
    #[error("thread pool: {problem}")]
    Threads {
        /// What happened.
        problem: String,
    },
    /// A knob with a value it cannot have.
    #[error("{name}={value}: expected {expected}")]
    Knob {
        /// The variable, or the option of a plugin.
        name: String,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// An option of a plugin with a value that the plugin refuses.
    #[error("{set}: {reason}")]
    PluginOption {
        /// Where it was set, and the value.
        set: String,
        /// The plugin's words.
        reason: String,
    },
}

/// A plugin's answer to a call.
#[derive(Clone, Debug, PartialEq)]
pub struct CallError {
    /// Device id or plugin name.
    pub who: String,
    /// The ABI function.
    pub call: &'static str,
    /// What kind of failure.
    pub status: Status,
    /// What is still usable.
    pub scope: Scope,
    /// The vendor library's own code, or 0.
    pub vendor_code: i32,
    /// Node of the graph that failed.
    pub node: Option<u32>,
    /// Bytes requested, for out-of-memory codes.
    pub bytes_requested: u64,
    /// Bytes there, for out-of-memory codes.
    pub bytes_available: u64,
    /// The plugin's words.
    pub message: String,
}

impl Error {
    /// A complaint about a graph, tensor or range.
    pub(crate) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Invalid { what: what.into(), problem: problem.into() }
    }

    /// The host's own account of device memory is used up.
    pub(crate) fn out_of_memory(who: &str, bytes_requested: u64, bytes_available: u64) -> Error {
        let call = CallError {
            who: who.to_string(),
            call: "alloc",
            status: Status::OomDevice,
            scope: Scope::Call,
            vendor_code: 0,
            node: None,
            bytes_requested,
            bytes_available,
            message: "scratch memory ran out".into(),
        };
        call.into()
    }

    /// A plugin's answer, if this is one.
    pub fn call(&self) -> Option<&CallError> {
        match self {
            Error::Call(call) => Some(call),
            _ => None,
        }
    }

    /// The nearest status code.
    pub fn status(&self) -> Status {
        match self {
            Error::Call(call) => call.status,
            Error::Unused { .. } => Status::Incompatible,
            Error::Quarantined { .. } => Status::DeviceLost,
            Error::NoOp { .. } => Status::Incompatible,
            Error::Load { .. } | Error::Fallback { .. } | Error::UnsupportedOp { .. } => Status::Incompatible,
            Error::Invalid { .. } | Error::Knob { .. } | Error::PluginOption { .. } => Status::Invalid,
            Error::Cancelled => Status::Cancelled,
            Error::Threads { .. } | Error::Weights { .. } | Error::ModelFile { .. } => Status::Internal,
        }
    }

    /// What is still usable.
    pub fn scope(&self) -> Scope {
        match self {
            Error::Call(call) => call.scope,
            Error::Quarantined { .. } | Error::Unused { .. } => Scope::Device,
            _ => Scope::Call,
        }
    }

    /// Whether memory ran out, on the device or in the host.
    pub fn is_oom(&self) -> bool {
        matches!(self.status(), Status::OomDevice | Status::OomHost)
    }

    /// Whether the plugin just does not do this.
    pub fn is_unsupported(&self) -> bool {
        self.status() == Status::Unsupported
    }
}

impl CallError {
    /// Reads the error that a plugin wrote; unrecognised numbers become the catch-all.
    pub(crate) fn read(who: &str, call: &'static str, status: i32, err: &c::Error) -> CallError {
        let filled = err.code != 0;
        CallError {
            who: who.to_string(),
            call,
            status: Status::from_code(status),
            scope: if filled { Scope::from_code(err.scope) } else { Scope::Call },
            vendor_code: err.vendor_code,
            node: (filled && err.node_index != c::NO_TENSOR).then_some(err.node_index),
            bytes_requested: err.bytes_requested,
            bytes_available: err.bytes_available,
            message: String::from_utf8_lossy(err.message()).into_owned(),
        }
    }
}

/// Suffix of "is not loaded": the versions that are.
fn other_versions(versions: &[u32]) -> String {
    match versions {
        [] => String::new(),
        there => format!(" (there: version {there:?})"),
    }
}

impl From<CallError> for Error {
    fn from(e: CallError) -> Error {
        Error::Call(Box::new(e))
    }
}

impl std::error::Error for CallError {}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} answered {:?}", self.who, self.call, self.status)?;
        if let Some(node) = self.node {
            write!(f, " at node {node}")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        if self.bytes_requested > 0 {
            write!(f, " ({} bytes requested, {} available)", self.bytes_requested, self.bytes_available)?;
        }
        if self.vendor_code != 0 {
            write!(f, " (vendor code {})", self.vendor_code)?;
        }
        Ok(())
    }
}
