//! Products by cuBLASLt, where its library is there. Opened when a product first needs it; whatever fails, our own
//! kernels do the work, and the log has the reason once.

use crate::cublas_product::{Problem, Product};
use crate::library;
use crate::sys::cublasLtHandle_t;
use crate::tables::CublasLt;
use llmrt_plugin::{Host, Level};
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Calls a function of the library; the error is a text. For `unsafe` blocks that state why the arguments are valid.
macro_rules! lt {
    ($table:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match $crate::tables::call!($table, $name($($arg),*)) {
            Some($crate::sys::CUBLAS_STATUS_SUCCESS) => Ok(()),
            Some(status) => {
                let name = $crate::sys::cublas_name_of(status).unwrap_or("an unknown status");
                Err(format!("{}: {name} ({status})", stringify!($name)))
            }
            None => Err(concat!(stringify!($name), " is absent").to_string()),
        }
    };
}
pub(crate) use lt;

/// The library, one for all devices.
pub struct CublasLibrary {
    host: Host,
    folder: Option<PathBuf>,
    /// The driver's version, as 12080.
    driver: i32,
    is_enabled: bool,
    table: OnceLock<Option<CublasLt>>,
}

impl CublasLibrary {
    /// In this folder, or where the loader finds it, for a driver of this version. Nothing is opened yet.
    pub fn new(host: Host, folder: Option<PathBuf>, driver: i32, is_enabled: bool) -> CublasLibrary {
        CublasLibrary { host, folder, driver, is_enabled, table: OnceLock::new() }
    }

    fn table(&self) -> Option<&CublasLt> {
        let opened = || match self.is_enabled {
            true => match library::cublas(self.folder.as_deref(), self.driver / 1000) {
                Ok(table) => Some(table),
                Err(problem) => {
                    self.host.log(
                        Level::Info,
                        "cuda",
                        &format!("no cuBLASLt, own kernels instead: {problem}"),
                    );
                    None
                }
            },
            false => None,
        };
        self.table.get_or_init(opened).as_ref()
    }
}

/// What a device has of it.
pub struct Cublas {
    library: Arc<CublasLibrary>,
    handle: Mutex<Option<Handle>>,
    /// It failed, and is not used any more.
    is_off: AtomicBool,
    /// A product was refused, and the log has a line for it.
    was_refused: AtomicBool,
}

/// The library's state for a device.
struct Handle(cublasLtHandle_t);

// SAFETY: a handle that every thread may use, also several at once, after entering the device.
unsafe impl Send for Handle {}

impl Cublas {
    /// Of a device. Nothing is opened yet.
    pub fn new(library: &Arc<CublasLibrary>) -> Cublas {
        Cublas {
            library: library.clone(),
            handle: Mutex::default(),
            is_off: AtomicBool::new(false),
            was_refused: AtomicBool::new(false),
        }
    }

    /// Whether the library was found, which does not change.
    pub fn is_open(&self) -> bool {
        self.library.table().is_some()
    }

    /// Whether products may use it.
    pub fn is_there(&self) -> bool {
        self.is_open() && !self.is_off.load(Ordering::Relaxed)
    }

    /// Bytes of scratch memory that a product may take; NVIDIA advises as much.
    pub fn workspace(&self, capability: (i32, i32)) -> usize {
        if capability >= (9, 0) { 32 << 20 } else { 4 << 20 }
    }

    /// How the library does a product on the entered device; `None`: it does not.
    pub fn product(&self, problem: &Problem) -> Option<Product> {
        let table = self.library.table().filter(|_| self.is_there())?;
        let handle = match self.handle(table) {
            Ok(handle) => handle,
            Err(reason) => {
                self.give_up(&reason);
                return None;
            }
        };
        let refused = |reason: String| {
            if !self.was_refused.swap(true, Ordering::Relaxed) {
                let text = format!("cuBLASLt refuses {problem}, own kernels instead: {reason}");
                self.library.host.log(Level::Info, "cuda", &text);
            }
        };
        Product::new(table, handle, problem).map_err(refused).ok()
    }

    fn handle(&self, table: &CublasLt) -> Result<cublasLtHandle_t, String> {
        let mut slot = self.handle.lock();
        if let Some(handle) = &*slot {
            return Ok(handle.0);
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the output is ours.
        unsafe { lt!(table, cublasLtCreate(&mut handle))? };
        *slot = Some(Handle(handle));
        Ok(handle)
    }

    /// It failed: own kernels from now on.
    pub fn give_up(&self, reason: &str) {
        if !self.is_off.swap(true, Ordering::Relaxed) {
            let text = format!("cuBLASLt failed, own kernels from now on: {reason}");
            self.library.host.log(Level::Warn, "cuda", &text);
        }
    }

    /// Before the device is closed; no product is left. Only on the entered device can the library's memory be given back.
    pub fn close(&self, is_entered: bool) {
        let handle = self.handle.lock().take();
        if let (Some(handle), Some(table), true) = (handle, self.library.table(), is_entered) {
            // SAFETY: made by `handle`, once. A failure has no reader.
            let _ = unsafe { lt!(table, cublasLtDestroy(handle.0)) };
        }
    }
}
