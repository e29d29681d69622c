//! [`Driver`] as the ABI's plugin table: `init`, `shutdown`, and the state between them.

use super::{device, extension, guard, guard_value};
use crate::{Driver, Error, Host};
use llmrt_abi::types as c;
use llmrt_abi::{ABI_MAJOR, ABI_MINOR, MAGIC, layout::FINGERPRINT};
use std::sync::Mutex;

/// Lets read-only ABI data, which holds pointers, be a static.
#[repr(transparent)]
pub struct Shared<T>(pub T);

// SAFETY: the data is never written after it was built, and what it points to is static.
unsafe impl Sync for Shared<c::Plugin> {}

/// What lives from `init` to `shutdown`; [`crate::export_plugin!`] makes one per plugin.
pub struct State<D>(Mutex<Option<Live<D>>>);

struct Live<D> {
    devices: Vec<*mut c::Device>,
    _driver: D,
}

// SAFETY: the device pointers are owned by this struct and freed by it; devices themselves are `Send`.
unsafe impl<D: Send> Send for Live<D> {}

impl<D> Drop for Live<D> {
    fn drop(&mut self) {
        for &dev in &self.devices {
            // SAFETY: the pointer came from `device::shell` and is freed here only.
            drop(unsafe { Box::from_raw(dev.cast::<device::Shell>()) });
        }
    }
}

impl<D> State<D> {
    /// Before `init`.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> State<D> {
        State(Mutex::new(None))
    }
}

/// The plugin's table; read-only data.
pub const fn table<D: Driver>(
    init: unsafe extern "C" fn(*const c::HostApi, *mut *const *mut c::Device, *mut u32, *mut c::Error) -> i32,
    shutdown: unsafe extern "C" fn(),
) -> Shared<c::Plugin> {
    let debug = if cfg!(debug_assertions) { c::BUILD_DEBUG } else { 0 };
    let abort = if cfg!(panic = "abort") { c::BUILD_PANIC_ABORT } else { 0 };
    Shared(c::Plugin {
        magic: MAGIC,
        struct_size: size_of::<c::Plugin>() as u32,
        abi_major: ABI_MAJOR,
        abi_minor: ABI_MINOR,
        fingerprint: FINGERPRINT,
        build_flags: debug | abort,
        reserved: 0,
        needs_host: D::INFO.needs_host,
        name: c::Str::new(D::INFO.name),
        version: c::Str::new(D::INFO.version),
        vendor: c::Str::new(D::INFO.vendor),
        init: Some(init),
        shutdown: Some(shutdown),
        get_extension: Some(extension::<D>),
    })
}

/// `init` of the table.
///
/// # Safety
/// The host's promises: `host` valid to the end of `shutdown`, outputs writable, `err` NULL or writable.
pub unsafe fn init<D: Driver>(
    state: &State<D>,
    host: *const c::HostApi,
    devices: *mut *const *mut c::Device,
    n: *mut u32,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: the host's promises.
    unsafe {
        guard(err, || {
            let mut slot = state.0.lock().map_err(|_| Error::internal("an earlier init panicked"))?;
            if slot.is_some() {
                return Err(Error::invalid("init was called twice"));
            }
            let driver = D::init(Host::new(host))?;
            let shells = driver.devices().into_iter().map(|dev| device::shell(dev).cast()).collect();
            let live = slot.insert(Live { devices: shells, _driver: driver });
            *devices = live.devices.as_ptr();
            *n = live.devices.len() as u32;
            Ok(())
        })
    }
}

/// `shutdown` of the table.
pub fn shutdown<D: Driver>(state: &State<D>) {
    guard_value((), || drop(state.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()));
}
