//! The part of the load checklist that runs the plugin's code: steps 8 to 14.

use super::Query;
use super::checklist::Checked;
use super::lifecycle::{self, Module};
use super::loaded::{Loaded, PluginDesc};
use super::manifest::{Manifest, check_name};
use super::services::{OFFERED, Services};
use super::table::{self, mandatory};
use crate::device::Device;
use crate::error::CallError;
use crate::validate::inside;
use llmrt_abi::{ABI_MAJOR, ABI_MINOR, MAGIC, QUERY_SYMBOL, layout::FINGERPRINT, types as c};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// More devices than any machine has.
const MAX_DEVICES: u32 = 1024;

/// Step 8: loads the file's code, which is never unloaded, and finds the entry.
///
/// The path is opened a second time here. That is no race against other users, who can replace nothing on it
/// ([`super::trust`]); an upgrade that replaces the file at this moment is detected. Opening `/proc/self/fd/N` in its
/// place would show that name to debuggers, `dladdr` and `$ORIGIN`, and the C library takes a later file under the same
/// name for the first one.
pub(crate) fn open_file(checked: &Checked) -> Result<Query, String> {
    use libloading::os::unix::Library;
    checked.check_same()?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: runs the file's constructors; the file passed the checklist, and the user chose to run plugins.
    let library = unsafe { Library::open(Some(&checked.path), flags) }.map_err(|e| words(&e))?;
    // SAFETY: the ABI fixes the type of this symbol.
    let query = unsafe { library.get::<Query>(QUERY_SYMBOL) }.map(|symbol| *symbol);
    // Code is never unmapped: threads, thread-locals and exit handlers of the plugin may still need it.
    std::mem::forget(library);
    query.map_err(|_| format!("exports no {QUERY_SYMBOL}"))
}

/// The dynamic loader's message; the library's error keeps it in its source.
pub(crate) fn words(e: &dyn std::error::Error) -> String {
    e.source().map_or_else(|| e.to_string(), |cause| cause.to_string())
}

/// Why a plugin whose code was loaded is not used.
pub(crate) enum StartError {
    /// Its table or devices are not as they must be.
    Rejected(String),
    /// Its `init` returned an error.
    InitFailed(String),
}

impl StartError {
    /// The reason.
    pub(crate) fn into_text(self) -> String {
        match self {
            StartError::Rejected(text) | StartError::InitFailed(text) => text,
        }
    }
}

impl From<String> for StartError {
    fn from(text: String) -> StartError {
        StartError::Rejected(text)
    }
}

/// Steps 9 to 14: from the entry to devices, or the reason why not.
pub(crate) fn start(
    query: Query,
    path: Option<PathBuf>,
    manifest: Option<&Manifest>,
    services: &Arc<Services>,
) -> Result<Module, StartError> {
    let (key, table) = query_table(query)?;
    check_build(&table)?;
    let desc = describe(&table, path, manifest)?;
    let module = lifecycle::begin(key, || init(key, table, desc, services))?;
    // Another host of this process may have started it, with fewer threads.
    module.0.services.pool.grow(services.pool.n_threads());
    Ok(module)
}

/// Step 9: the table is one, and of this layout. Also gives its address, which identifies the plugin.
pub(super) fn query_table(query: Query) -> Result<(usize, c::Plugin), String> {
    let ptr = query(ABI_MINOR.into());
    if ptr.is_null() {
        return Err(format!("cannot serve a host with ABI {ABI_MAJOR}.{ABI_MINOR}"));
    }
    if !ptr.is_aligned() {
        return Err("plugin table is not aligned".into());
    }
    // SAFETY: the entry returned read-only data that starts with the magic number.
    let magic = unsafe { (*ptr).magic };
    if magic != MAGIC {
        return Err(format!("magic number {magic:#018x}; expected {MAGIC:#018x}"));
    }
    // SAFETY: the magic number identifies a plugin table, which has at least `struct_size` bytes.
    let table = unsafe { table::read(ptr) }?;
    if table.abi_major != ABI_MAJOR {
        return Err(format!("built for ABI {}; this host has {ABI_MAJOR}", table.abi_major));
    }
    if table.fingerprint != FINGERPRINT {
        return Err(format!(
            "built with other struct layouts (fingerprint {:#018x}, expected {FINGERPRINT:#018x}); rebuild it with this \
             release's header",
            table.fingerprint
        ));
    }
    mandatory!(table, "plugin table", init, shutdown)?;
    Ok((ptr as usize, table))
}

/// Steps 10 and 11: built in a way that can live in this process, and requires nothing this host lacks.
fn check_build(table: &c::Plugin) -> Result<(), String> {
    for (bit, name) in [(c::BUILD_ASAN, "address"), (c::BUILD_TSAN, "thread")] {
        if table.build_flags & bit != 0 {
            return Err(format!("built with the {name} sanitiser, this host is not"));
        }
    }
    match table.needs_host & !OFFERED {
        0 => Ok(()),
        missing => Err(format!("needs host features {missing:#x}, which this host lacks; use a newer llmrt")),
    }
}

/// Step 12: texts are valid, and equal those of the manifest.
fn describe(
    table: &c::Plugin,
    path: Option<PathBuf>,
    manifest: Option<&Manifest>,
) -> Result<PluginDesc, String> {
    // SAFETY: texts of the plugin's read-only data.
    let (name, version, vendor) = unsafe {
        (
            table::text(table.name, "plugin name")?,
            table::text(table.version, "plugin version")?,
            table::text(table.vendor, "plugin vendor")?,
        )
    };
    check_name(&name)?;
    if let Some(manifest) = manifest {
        for (what, table, manifest) in
            [("name", &name, &manifest.name), ("version", &version, &manifest.version)]
        {
            if table != manifest {
                return Err(format!("its {what} is `{table}`, its manifest has `{manifest}`"));
            }
        }
    }
    Ok(PluginDesc {
        name,
        version,
        vendor,
        path,
        priority: manifest.map_or(0, |m| m.priority),
        init_time: Duration::ZERO,
        build_flags: table.build_flags,
        abi_minor: table.abi_minor,
    })
}

/// Steps 13 and 14: `init`, timed, and its devices.
fn init(
    key: usize,
    table: c::Plugin,
    mut desc: PluginDesc,
    services: &Arc<Services>,
) -> Result<Module, StartError> {
    let Some(init) = table.init else { return Err(StartError::Rejected("no init".into())) };
    let (mut devices, mut n) = (std::ptr::null(), 0);
    let mut err = c::Error::empty();
    let n_ops = services.custom_ops().len();
    let started = Instant::now();
    let inside = inside::enter_init();
    // SAFETY: the first `init` of this table, alone (`lifecycle`); the host's table lives as long as `Loaded`; the
    // outputs are ours.
    let status = unsafe { init(&services.api, &mut devices, &mut n, &mut err) };
    drop(inside);
    desc.init_time = started.elapsed();
    if status != 0 {
        services.settle_ops(n_ops, None);
        return Err(StartError::InitFailed(CallError::read(&desc.name, "init", status, &err).to_string()));
    }
    let services = services.clone();
    let loaded = Arc::new(Loaded { desc, key, table, services, quarantined: OnceLock::new() });
    let devices = read_devices(&loaded, devices, n);
    loaded.services.settle_ops(n_ops, devices.is_ok().then_some(&loaded));
    let devices = devices?;
    Ok((loaded, devices))
}

/// Step 14: every device is complete, and their names differ.
fn read_devices(
    loaded: &Arc<Loaded>,
    list: *const *mut c::Device,
    n: u32,
) -> Result<Vec<Arc<Device>>, String> {
    if n > MAX_DEVICES || (n > 0 && (list.is_null() || !list.is_aligned())) {
        return Err(format!("{n} devices at {list:?}; at most {MAX_DEVICES} are accepted"));
    }
    let mut devices: Vec<Arc<Device>> = Vec::new();
    for i in 0..n as usize {
        // SAFETY: `init` gave an array of `n` devices, which live until `shutdown`.
        let device = unsafe { Device::read(*list.add(i), loaded.clone(), n as usize) };
        let device = device.map_err(|e| format!("device {i}: {e}"))?;
        if devices.iter().any(|other| other.info().name == device.info().name) {
            return Err(format!("two devices are named `{}`", device.info().name));
        }
        devices.push(device);
    }
    Ok(devices)
}
