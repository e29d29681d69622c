//! What the host offers a plugin: log, options, cancellation, threads.

use crate::Threads;
use llmrt_abi::types as c;
use std::borrow::Cow;

/// The host, as handed to [`crate::Driver::init`]. Copy it where it is needed.
#[derive(Clone, Copy)]
pub struct Host(*const c::HostApi);

// SAFETY: the host's functions may be called from any thread until `shutdown` ends, and its table does not change.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

/// How urgent a log line is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Level {
    /// Something failed.
    Error = 1,
    /// Something will surprise.
    Warn = 2,
    /// Information.
    Info = 3,
    /// For debugging.
    Debug = 4,
    /// Everything.
    Trace = 5,
}

impl Host {
    /// Looks at the host's table.
    ///
    /// # Safety
    /// `api` is NULL or the host's table, valid to the end of `shutdown`.
    pub unsafe fn new(api: *const c::HostApi) -> Host {
        Host(api)
    }

    /// A host that offers nothing: for unit tests of a plugin.
    pub const fn none() -> Host {
        Host(std::ptr::null())
    }

    /// The table's field that `get` picks; `None` if the host is older than the field or did not set it.
    fn field<F: Copy>(
        &self,
        offset: usize,
        get: impl Fn(&c::HostApi) -> Option<F>,
    ) -> Option<(F, *mut core::ffi::c_void)> {
        // SAFETY: the constructor's promise; `ctx` is in every version of the table.
        unsafe {
            let covered = self.0.as_ref()?.struct_size as usize;
            if offset + size_of::<usize>() > covered {
                return None;
            }
            Some((get(&*self.0)?, (*self.0).ctx))
        }
    }

    /// Writes a line to the host's log.
    pub fn log(&self, level: Level, target: &str, message: &str) {
        if let Some((log, ctx)) = self.field(std::mem::offset_of!(c::HostApi, log), |api| api.log) {
            // SAFETY: a function of the host's table with its own context; the texts outlive the call.
            unsafe { log(ctx, level as u32, borrowed(target), borrowed(message)) }
        }
    }

    /// The text of an option, if it is set.
    pub fn option(&self, key: &str) -> Option<String> {
        let (get, ctx) = self.field(std::mem::offset_of!(c::HostApi, get_option), |api| api.get_option)?;
        let mut buf = vec![0u8; 256];
        loop {
            let mut len = 0u64;
            // SAFETY: `buf` has `buf.len()` writable bytes.
            let status = unsafe { get(ctx, borrowed(key), buf.as_mut_ptr(), buf.len() as u64, &mut len) };
            let len = usize::try_from(len).ok().filter(|_| status == 0)?;
            if len <= buf.len() {
                buf.truncate(len);
                return Some(String::from_utf8_lossy(&buf).into_owned());
            }
            buf.resize(len, 0);
        }
    }

    /// Whether the run with this number was cancelled.
    pub fn cancelled(&self, run_id: u64) -> bool {
        let field = self.field(std::mem::offset_of!(c::HostApi, cancelled), |api| api.cancelled);
        // SAFETY: a function of the host's table with its own context.
        field.is_some_and(|(cancelled, ctx)| unsafe { cancelled(ctx, run_id) } != 0)
    }

    /// The host's team of threads.
    pub fn threads(&self) -> Option<Threads> {
        let (get, ctx) =
            self.field(std::mem::offset_of!(c::HostApi, get_extension), |api| api.get_extension)?;
        // SAFETY: a function of the host's table; version 1 of this name is a `HostThreads` that lives as the table.
        unsafe { Threads::new(get(ctx, borrowed("llmrt.host.threads"), 1).cast()) }
    }
}

/// Text for the length of a call.
pub(crate) fn borrowed(text: &str) -> c::Str {
    c::Str { ptr: text.as_ptr(), len: text.len() as u64 }
}

/// Text of the other side; broken UTF-8 is replaced.
///
/// # Safety
/// `text.ptr` is NULL or has `text.len` bytes that do not change during `'a`.
pub(crate) unsafe fn str_of<'a>(text: c::Str) -> Cow<'a, str> {
    if text.ptr.is_null() || text.len == 0 {
        return Cow::Borrowed("");
    }
    // SAFETY: the caller's promise.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.ptr, text.len as usize) })
}
