//! The runtime's calls as functions with results. The card's context is set on every entry: nothing is kept in a thread.

use crate::error::check;
use crate::layout::Choice;
use crate::library::{Absent, Cann};
use crate::peers::Peers;
use crate::release::has_wide_products;
use crate::sys::*;
use llmrt_plugin::{Error, Host, Level, Result};
use parking_lot::{Mutex, ReentrantMutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The open libraries.
pub struct Runtime {
    /// Functions by name.
    pub cann: Cann,
    /// Contexts of open cards.
    contexts: RwLock<BTreeMap<i32, Context>>,
    /// Whether the chip's memory is HBM; else it is DDR.
    hbm: bool,
    /// Whether a card's probes reported the machine.
    reported: AtomicBool,
    /// Cards that reach each other.
    pub(crate) peers: Peers,
    /// Operators whose refusal was logged.
    refused: Mutex<BTreeSet<String>>,
    /// See [`crate::release::has_wide_products`].
    wide_products: OnceLock<bool>,
    /// Layouts of weights, chosen when the first card is opened: all cards are alike.
    layouts: OnceLock<Choice>,
    /// Held while a plan is captured, and while a card is waited for.
    pub captures: ReentrantMutex<()>,
}

/// A card's default context.
struct Context(aclrtContext);

// SAFETY: a handle that every thread may make its own.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Calls a function of the runtime; its name goes into the error. For `unsafe` blocks that justify the arguments.
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
        let mut runtime = Runtime {
            cann: Cann::open(folder)?,
            hbm: true,
            reported: AtomicBool::new(false),
            contexts: RwLock::default(),
            peers: Peers::default(),
            refused: Mutex::default(),
            wide_products: OnceLock::new(),
            layouts: OnceLock::new(),
            captures: ReentrantMutex::default(),
        };
        let init = runtime.cann.acl.aclInit.map_or(ACL_ERROR_UNINITIALIZE, |init| {
            // SAFETY: NULL stands for the default configuration.
            unsafe { init(std::ptr::null()) }
        });
        // Other code of this process may have started it.
        match init {
            ACL_SUCCESS | ACL_ERROR_REPEAT_INITIALIZE => {
                let chip = crate::chip::chip(&runtime.soc_name());
                runtime.cann.forget(chip.lacks);
                runtime.hbm = chip.hbm;
                Ok(Arc::new(runtime))
            }
            code => {
                let reason =
                    check(&runtime.cann.acl, "aclInit", code).err().map_or(String::new(), |e| e.message);
                Err(Absent { reason, hint: "check the driver with `npu-smi info`" })
            }
        }
    }

    /// Cards that are visible; 0 if the runtime cannot report them.
    pub fn n_devices(&self) -> u32 {
        let mut n = 0;
        // SAFETY: the output is ours.
        unsafe { acl!(self, aclrtGetDeviceCount(&mut n)) }.map_or(0, |()| n)
    }

    /// The chip's name; empty if the runtime does not report it. All cards of a machine are alike.
    pub fn soc_name(&self) -> String {
        // SAFETY: no arguments; the answer is NULL or a text of the library.
        let name = unsafe { self.cann.acl.aclrtGetSocName.map(|f| f()) }.filter(|name| !name.is_null());
        // SAFETY: as above.
        name.map_or(String::new(), |name| unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }

    /// The release of the libraries; empty if they do not report it. Releases before 8.5 have the runtime's own version only.
    pub fn release(&self) -> String {
        let (mut package, mut version) = (*b"runtime\0", [0u8; 128]);
        // SAFETY: a text that ends; the output has the 128 bytes that the header names.
        let answer = unsafe {
            acl!(self, aclsysGetVersionStr(package.as_mut_ptr().cast(), version.as_mut_ptr().cast()))
        };
        if answer.is_ok() {
            let text = CStr::from_bytes_until_nul(&version).unwrap_or_default();
            return text.to_string_lossy().trim().to_string();
        }
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: the outputs are ours.
        let answer = unsafe { acl!(self, aclrtGetVersion(&mut major, &mut minor, &mut patch)) };
        answer.map_or(String::new(), |()| format!("runtime {major}.{minor}.{patch}"))
    }

    /// Whether the release has F32 results of all 16-bit products on A2 and A3.
    pub fn has_wide_products(&self) -> bool {
        *self.wide_products.get_or_init(|| has_wide_products(&self.release()))
    }

    /// Whether no card's probes reported the machine before.
    pub fn is_first_report(&self) -> bool {
        !self.reported.swap(true, Relaxed)
    }

    /// The layouts that weights get at `seal`.
    pub fn layouts(&self) -> Choice {
        self.layouts.get().copied().unwrap_or_default()
    }

    /// Chooses the layouts, unless they were chosen before.
    pub fn choose_layouts(&self, choose: impl FnOnce() -> Choice) {
        self.layouts.get_or_init(choose);
    }

    /// Starts a card, once until [`Runtime::close_card`]: each `aclrtSetDevice` counts, and each is to be reset. Streams,
    /// events and memory are made in the card's default context, which other libraries of the process share.
    pub fn open_card(&self, device: i32) -> Result<()> {
        let mut contexts = self.contexts.write();
        if contexts.contains_key(&device) {
            return Ok(());
        }
        let mut context = std::ptr::null_mut();
        // SAFETY: a number; the output is ours.
        unsafe {
            acl!(self, aclrtSetDevice(device))?;
            if let Err(e) = acl!(self, aclrtGetCurrentContext(&mut context)) {
                let _ = acl!(self, aclrtResetDevice(device));
                return Err(e);
            }
        }
        contexts.insert(device, Context(context));
        Ok(())
    }

    /// Whether a card is open.
    pub fn is_open(&self, device: i32) -> bool {
        self.contexts.read().contains_key(&device)
    }

    /// Undoes [`Runtime::open_card`]: everything made on the card is gone.
    pub fn close_card(&self, device: i32) {
        let mut contexts = self.contexts.write();
        if contexts.remove(&device).is_some() {
            // SAFETY: set once by `open_card`. A failure has no reader.
            let _ = unsafe { acl!(self, aclrtResetDevice(device)) };
        }
        drop(contexts);
        // `connect` holds the peers while it reads the contexts.
        self.peers.forget(device);
    }

    /// Logs that an operator refused and another way computes the node, once per operator.
    pub fn refused(&self, host: Host, e: &Error) {
        let operator = e.message.split(':').next().unwrap_or_default();
        if self.refused.lock().insert(operator.into()) {
            host.log(Level::Info, "cann", &format!("computed another way: {}", e.message));
        }
    }

    /// Makes an open card's context the calling thread's. Cheap, and counts nothing.
    pub fn enter(&self, device: i32) -> Result<()> {
        let contexts = self.contexts.read();
        let context = contexts.get(&device);
        let context = context.ok_or_else(|| Error::invalid(format!("card {device} is not open")))?;
        // SAFETY: a context that lives as long as the card is open.
        unsafe { acl!(self, aclrtSetCurrentContext(context.0)) }
    }

    /// Bytes of a card that may be closed; 0 if unavailable. Where the runtime can be queried, no context is made.
    pub fn total_memory(&self, device: i32) -> u64 {
        let (mut total, attr) = (0, ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE);
        // SAFETY: the output is ours.
        match unsafe { acl!(self, aclrtGetDeviceInfo(device as u32, attr, &mut total)) } {
            Ok(()) if total > 0 => total as u64,
            _ => {
                // SAFETY: a number; what is set here is reset here.
                unsafe {
                    if acl!(self, aclrtSetDevice(device)).is_err() {
                        return 0;
                    }
                    let memory = self.memory();
                    let _ = acl!(self, aclrtResetDevice(device));
                    memory.map_or(0, |(_, total)| total)
                }
            }
        }
    }

    /// Free and total bytes of the entered card.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let (mut free, mut total) = (0usize, 0usize);
        let attr = if self.hbm { ACL_HBM_MEM } else { ACL_DDR_MEM };
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
                Error { bytes: Some((size, self.memory().map_or(0, |m| m.0))), ..e }
            }
            _ => e,
        })
    }

    /// Frees it, at once.
    ///
    /// # Safety
    /// `ptr` came from [`Runtime::alloc`], and no work uses it.
    pub unsafe fn free(&self, ptr: *mut c_void) {
        // SAFETY: the caller's promise. A failure has no reader.
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
