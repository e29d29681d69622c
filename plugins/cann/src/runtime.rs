//! The runtime's calls as functions with results. The device is set on every entry: nothing is kept in a thread.

use crate::error::check;
use crate::library::{Absent, Cann};
use crate::sys::*;
use llmrt_plugin::{Error, Result};
use std::ffi::{CStr, c_void};
use std::path::Path;
use std::sync::Arc;

/// The open libraries.
pub struct Runtime {
    /// Functions by name.
    pub cann: Cann,
}

/// Calls a function of the runtime; its name goes into the error. For `unsafe` blocks that say why the arguments are good.
macro_rules! acl {
    ($runtime:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        let acl = &$runtime.cann.acl;
        match acl.$name {
            Some(f) => $crate::error::check(acl, stringify!($name), f($($arg),*)),
            None => Err(llmrt_plugin::Error::unsupported(concat!(stringify!($name), " is newer than this library"))),
        }
    }};
}
pub(crate) use acl;

impl Runtime {
    /// Opens the libraries and starts the runtime.
    pub fn open(folder: Option<&Path>) -> std::result::Result<Arc<Runtime>, Absent> {
        let runtime = Runtime { cann: Cann::open(folder)? };
        let init = runtime.cann.acl.aclInit.map_or(ACL_ERROR_UNINITIALIZE, |init| {
            // SAFETY: NULL stands for the default configuration.
            unsafe { init(std::ptr::null()) }
        });
        // Somebody else in this process may have started it.
        match init {
            ACL_SUCCESS | ACL_ERROR_REPEAT_INITIALIZE => Ok(Arc::new(runtime)),
            code => {
                let reason =
                    check(&runtime.cann.acl, "aclInit", code).err().map_or(String::new(), |e| e.message);
                Err(Absent { reason, hint: "check the driver with `npu-smi info`" })
            }
        }
    }

    /// Cards that are visible; 0 if the runtime cannot say.
    pub fn n_devices(&self) -> u32 {
        let mut n = 0;
        // SAFETY: the output is ours.
        unsafe { acl!(self, aclrtGetDeviceCount(&mut n)) }.map_or(0, |()| n)
    }

    /// The chip's name; empty if the runtime does not say. All cards of a machine are alike.
    pub fn soc_name(&self) -> String {
        // SAFETY: no arguments; the answer is NULL or a text of the library.
        let name = unsafe { self.cann.acl.aclrtGetSocName.map(|f| f()) }.filter(|name| !name.is_null());
        // SAFETY: as above.
        name.map_or(String::new(), |name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// Makes a card the calling thread's. Cheap if it is already.
    pub fn enter(&self, device: i32) -> Result<()> {
        // SAFETY: a number.
        unsafe { acl!(self, aclrtSetDevice(device)) }
    }

    /// Free and total bytes of the entered card.
    pub fn memory(&self, hbm: bool) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0usize, 0usize);
        let attr = if hbm { ACL_HBM_MEM } else { ACL_DDR_MEM };
        // SAFETY: the outputs are ours.
        unsafe { acl!(self, aclrtGetMemInfo(attr, &mut free, &mut total))? };
        Ok((free as u64, total as u64))
    }

    /// Memory of the entered card; what is in it is unspecified.
    pub fn alloc(&self, size: u64) -> Result<*mut c_void> {
        let mut ptr = std::ptr::null_mut();
        // SAFETY: the output is ours.
        let result =
            unsafe { acl!(self, aclrtMalloc(&mut ptr, size.max(1) as usize, ACL_MEM_MALLOC_HUGE_FIRST)) };
        result.map(|()| ptr).map_err(|e| match e.status {
            llmrt_plugin::Status::OomDevice => {
                Error { bytes: Some((size, self.memory(true).map_or(0, |m| m.0))), ..e }
            }
            _ => e,
        })
    }

    /// Frees it, at once.
    ///
    /// # Safety
    /// `ptr` came from [`Runtime::alloc`], and no work uses it.
    pub unsafe fn free(&self, ptr: *mut c_void) {
        // SAFETY: the caller's promise. Nobody is left to hear of a failure.
        let _ = unsafe { acl!(self, aclrtFree(ptr)) };
    }

    /// Copies to the entered card; not ordered after any stream.
    ///
    /// # Safety
    /// `dst` has `src.len()` bytes on the card that no running work uses.
    pub unsafe fn upload(&self, dst: *mut c_void, src: &[u8]) -> Result<()> {
        let n = src.len();
        if n == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; `src` has as many bytes.
        unsafe { acl!(self, aclrtMemcpy(dst, n, src.as_ptr().cast(), n, ACL_MEMCPY_HOST_TO_DEVICE)) }
    }

    /// Copies from the entered card; not ordered after any stream.
    ///
    /// # Safety
    /// `src` has `dst.len()` bytes on the card that no running work writes.
    pub unsafe fn download(&self, dst: &mut [u8], src: *const c_void) -> Result<()> {
        let n = dst.len();
        if n == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise; `dst` has as many bytes.
        unsafe { acl!(self, aclrtMemcpy(dst.as_mut_ptr().cast(), n, src, n, ACL_MEMCPY_DEVICE_TO_HOST)) }
    }
}
