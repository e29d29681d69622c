//! What a plugin answers when it cannot: a code, how far the failure reaches, and a sentence.

use llmrt_abi::types as c;
use llmrt_abi::{Scope, Status};
use std::any::Any;

/// Result of every plugin call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    /// What kind of failure.
    pub status: Status,
    /// What is still usable.
    pub scope: Scope,
    /// The vendor library's own code, or 0.
    pub vendor_code: i32,
    /// Node of the graph that failed.
    pub node: Option<u32>,
    /// Bytes requested and bytes available, for out-of-memory codes.
    pub bytes: Option<(u64, u64)>,
    /// What was found, what was expected, what to do. Longer than 216 bytes is cut.
    pub message: String,
}

impl Error {
    /// A failure that leaves everything usable.
    pub fn new(status: Status, message: impl Into<String>) -> Error {
        let message = message.into();
        Error { status, scope: Scope::Call, vendor_code: 0, node: None, bytes: None, message }
    }

    /// The plugin does not do this; nothing happened.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(Status::Unsupported, message)
    }

    /// The host broke a rule.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Status::Invalid, message)
    }

    /// Device memory ran out: `requested` bytes, of which `free` are available.
    pub fn oom_device(requested: u64, free: u64) -> Error {
        let message = format!("device memory ran out: {requested} bytes requested, {free} free");
        Error { bytes: Some((requested, free)), ..Error::new(Status::OomDevice, message) }
    }

    /// Host memory ran out when `requested` bytes were allocated.
    pub fn oom_host(requested: u64) -> Error {
        let message = format!("host memory ran out: {requested} bytes requested");
        Error { bytes: Some((requested, 0)), ..Error::new(Status::OomHost, message) }
    }

    /// The device is gone.
    pub fn device_lost(message: impl Into<String>) -> Error {
        Error::new(Status::DeviceLost, message).scope(Scope::Device)
    }

    /// The run was cancelled by the host.
    pub fn cancelled() -> Error {
        Error::new(Status::Cancelled, "the run was cancelled")
    }

    /// A plan no longer fits its bindings.
    pub fn plan_stale(message: impl Into<String>) -> Error {
        Error::new(Status::PlanStale, message)
    }

    /// Anything else.
    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(Status::Internal, message)
    }

    /// Names the node that failed.
    pub fn at_node(mut self, index: usize) -> Error {
        self.node = u32::try_from(index).ok();
        self
    }

    /// Sets how far the failure reaches.
    pub fn scope(mut self, scope: Scope) -> Error {
        self.scope = scope;
        self
    }

    /// Adds the vendor library's code.
    pub fn vendor(mut self, code: i32) -> Error {
        self.vendor_code = code;
        self
    }

    /// The error that stands for a caught panic: the plugin's state is unknown, so it must not be used again.
    pub(crate) fn from_panic(payload: Box<dyn Any + Send>) -> Error {
        let message = format!("panic: {}", panic_text(&*payload));
        // Dropping a payload runs plugin code that may panic again.
        std::mem::forget(payload);
        Error::internal(message).scope(Scope::Plugin)
    }

    /// Writes the error to the host's struct and returns the status number.
    ///
    /// # Safety
    /// `err` is NULL or points to an error of the host, writable for this call.
    pub(crate) unsafe fn write(&self, err: *mut c::Error) -> i32 {
        // SAFETY: the caller's promise.
        if let Some(err) = unsafe { err.as_mut() } {
            err.code = self.status.code();
            err.scope = self.scope.code();
            err.vendor_code = self.vendor_code;
            err.node_index = self.node.unwrap_or(c::NO_TENSOR);
            (err.bytes_requested, err.bytes_available) = self.bytes.unwrap_or_default();
            err.set_message(&self.message);
        }
        self.status.code()
    }
}

/// The text of a panic, if it carries one.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: {}", self.status, self.message)
    }
}

impl std::error::Error for Error {}
