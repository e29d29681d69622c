//! A plugin that passes every call on to another one and lets chosen ones go wrong.
//!
//! `--plugin-option fault.wrap=PATH|NAME` names the other plugin (a name means `libllmrt_NAME.so` beside this file),
//! `--plugin-option fault.rule=RULES` what goes wrong; [`rule`] defines how rules are written. Without `fault.wrap` there
//! is no device. The wrapped plugin has code and data of its own: its file may be in use by itself as well, in any order.
//!
//! Written at the level of the C tables, because faults of those tables are its business: apart from the host, this is
//! the one place that calls function pointers. Reading order: [`rule`], [`inner`] for the other plugin, then one file per
//! object: [`device`], [`buffer`], [`backend`]; [`graph`] puts the other plugin's buffers under tensors.

/// Returns the error that a rule requires, or calls the wrapped object's function of this name.
macro_rules! pass {
    ($shell:expr, $err:expr, $name:ident($($arg:expr),*)) => {{
        let shell = $shell;
        match llmrt_plugin::entry::guard($err, || shell.rules.fail(stringify!($name), None).map(|_| ())) {
            0 => match shell.inner_vt.$name {
                Some(f) => f(shell.inner, $($arg,)* $err),
                None => llmrt_plugin::Status::Unsupported.code(),
            },
            code => code,
        }
    }};
}

pub mod rule;

pub mod inner;

pub mod backend;
pub mod buffer;
pub mod device;
pub mod graph;

use llmrt_plugin::abi::types as c;
use llmrt_plugin::abi::{ABI_MAJOR, ABI_MINOR, MAGIC, layout::FINGERPRINT};
use llmrt_plugin::entry::{guard, plugin::Shared};
use llmrt_plugin::export::{ABI, joined, joined_len};
use llmrt_plugin::{Host, Level, Result};
use parking_lot::Mutex;
use rule::Rules;
use std::sync::Arc;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The table; read-only data.
static TABLE: Shared<c::Plugin> = Shared(c::Plugin {
    magic: MAGIC,
    struct_size: size_of::<c::Plugin>() as u32,
    abi_major: ABI_MAJOR,
    abi_minor: ABI_MINOR,
    fingerprint: FINGERPRINT,
    build_flags: if cfg!(debug_assertions) { c::BUILD_DEBUG } else { 0 },
    reserved: 0,
    needs_host: 0,
    name: c::Str::new("fault"),
    version: c::Str::new(VERSION),
    vendor: c::Str::new("llmrt"),
    init: Some(init),
    shutdown: Some(shutdown),
    get_extension: None,
});

const MANIFEST_PARTS: &[&str] = &["abi=", ABI, "\nname=fault\nversion=", VERSION, "\npriority=-60\n"];

#[used]
#[unsafe(link_section = ".llmrtmf")]
static MANIFEST: [u8; joined_len(MANIFEST_PARTS)] = joined(MANIFEST_PARTS);

/// The plugin's entry.
#[unsafe(no_mangle)]
pub extern "C" fn llmrt_plugin_query_v0(_host_minor: u32) -> *const c::Plugin {
    // Keeps the manifest in the linked file.
    std::hint::black_box(&MANIFEST);
    &TABLE.0
}

/// What lives from `init` to `shutdown`.
struct Live {
    devices: Vec<*mut c::Device>,
    /// Whom to shut down.
    wrapped: Option<inner::Plugin>,
}

// SAFETY: the device pointers are owned by this struct and freed by `shutdown`.
unsafe impl Send for Live {}

static LIVE: Mutex<Option<Live>> = Mutex::new(None);

unsafe extern "C" fn init(
    host: *const c::HostApi,
    devices: *mut *const *mut c::Device,
    n: *mut u32,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: the host's table lives to the end of `shutdown`; outputs and `err` are the host's.
    unsafe {
        guard(err, || {
            let mut live = LIVE.lock();
            let live = live.insert(wrap(host)?);
            *devices = live.devices.as_ptr();
            *n = live.devices.len() as u32;
            Ok(())
        })
    }
}

/// # Safety
/// `api` is the host's table.
unsafe fn wrap(api: *const c::HostApi) -> Result<Live> {
    // SAFETY: the caller's promise.
    let host = unsafe { Host::new(api) };
    let Some(name) = host.option("fault.wrap") else {
        host.log(Level::Info, "fault", "wraps nothing; set the plugin with --plugin-option fault.wrap=PATH");
        return Ok(Live { devices: Vec::new(), wrapped: None });
    };
    let rules = Arc::new(Rules::parse(&host.option("fault.rule").unwrap_or_default())?);
    rules.fail("init", None)?;
    // SAFETY: the caller's promise.
    let (wrapped, found) = unsafe { inner::Plugin::start(&name, api)? };
    // SAFETY: devices of the wrapped plugin live until its `shutdown`, which comes after ours.
    let devices = found.into_iter().map(|dev| unsafe { device::wrap(dev, rules.clone()) }).collect();
    Ok(Live { devices, wrapped: Some(wrapped) })
}

unsafe extern "C" fn shutdown() {
    let Some(live) = LIVE.lock().take() else { return };
    for dev in live.devices {
        // SAFETY: made by `wrap`, freed once; the host has destroyed everything on it.
        unsafe { device::free(dev) };
    }
    if let Some(wrapped) = live.wrapped {
        wrapped.shutdown();
    }
}
