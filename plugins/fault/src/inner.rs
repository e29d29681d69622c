//! The wrapped plugin: its file opened, its table checked, its functions in tables of this build's size.

use llmrt_plugin::abi::types as c;
use llmrt_plugin::abi::{ABI_MAJOR, ABI_MINOR, MAGIC, layout::FINGERPRINT};
use llmrt_plugin::{Error, Result, Scope, Status};
use parking_lot::Mutex;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::path::{Path, PathBuf};

/// A wrapped plugin in use.
pub struct Plugin(&'static c::Plugin);

type Query = extern "C" fn(host_minor: u32) -> *const c::Plugin;

impl Plugin {
    /// Opens a plugin by path or name and initialises it.
    ///
    /// # Safety
    /// `host` is the host's table, valid to the end of `shutdown`.
    pub unsafe fn start(name: &str, host: *const c::HostApi) -> Result<(Plugin, Vec<*mut c::Device>)> {
        let path = path_of(name);
        let failed = |problem: String| Error::invalid(format!("fault.wrap {}: {problem}", path.display()));
        let table = query(&open(&path).map_err(failed)?).map_err(failed)?;
        let init = table.init.ok_or_else(|| failed("its table has no init".into()))?;
        let (mut devices, mut n, mut err) = (std::ptr::null(), 0, c::Error::empty());
        // SAFETY: the first `init` of this table, unless the plugin broke its rules; the outputs are ours.
        match unsafe { init(host, &mut devices, &mut n, &mut err) } {
            0 => {
                // SAFETY: `init` gave an array of `n` devices.
                let list = (0..n as usize).map(|i| unsafe { *devices.add(i) }).collect();
                Ok((Plugin(table), list))
            }
            code => Err(answered(code, &err)),
        }
    }

    /// Ends the plugin.
    pub fn shutdown(self) {
        if let Some(shutdown) = self.0.shutdown {
            // SAFETY: `init` succeeded, and everything made since is destroyed.
            unsafe { shutdown() }
        }
    }
}

/// `NAME` is `libllmrt_NAME.so` beside this plugin's own file; anything with a slash is a path.
fn path_of(name: &str) -> PathBuf {
    if name.contains('/') {
        return name.into();
    }
    let file = if name.contains('.') { name.to_string() } else { format!("libllmrt_{name}.so") };
    own_file().and_then(|own| Some(own.parent()?.join(&file))).unwrap_or_else(|| file.into())
}

/// The file that this code was loaded from.
fn own_file() -> Option<PathBuf> {
    // SAFETY: an all-zero struct of pointers; `dladdr` fills it for an address of this library.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let here = llmrt_own_address as *const () as *const libc::c_void;
        if libc::dladdr(here, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_str().ok()?.into())
    }
}

fn llmrt_own_address() {}

/// The entry of the plugin at a path, in code and data of its own: the host or another plugin may use the same file, before
/// or after, and a file's plugin is initialised once.
fn open(path: &Path) -> Result<Query, String> {
    /// Code is never unloaded, so each file is copied once.
    static OPENED: Mutex<Vec<(PathBuf, Query)>> = Mutex::new(Vec::new());
    let mut opened = OPENED.lock();
    if let Some((_, query)) = opened.iter().find(|(other, _)| other == path) {
        return Ok(*query);
    }
    // Systems that execute no memory files load the file itself; the error of that names it.
    let query = copy_of(path).and_then(|copy| load(&copy)).or_else(|_| load(path))?;
    opened.push((path.into(), query));
    Ok(query)
}

/// A copy of a file in memory. It stays open: the loader recognises files by name, and the name has the descriptor's number.
fn copy_of(path: &Path) -> Result<PathBuf, String> {
    // SAFETY: a NUL-terminated name; a descriptor has one owner.
    let mut copy = unsafe {
        match libc::memfd_create(c"llmrt-fault".as_ptr(), libc::MFD_CLOEXEC) {
            -1 => return Err(std::io::Error::last_os_error().to_string()),
            fd => File::from_raw_fd(fd),
        }
    };
    File::open(path).and_then(|mut file| std::io::copy(&mut file, &mut copy)).map_err(|e| e.to_string())?;
    Ok(format!("/proc/self/fd/{}", copy.into_raw_fd()).into())
}

fn load(path: &Path) -> Result<Query, String> {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
    let flags = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    // SAFETY: loads the file that the user named; symbol and type are the ABI's; texts are NUL-terminated.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), flags);
        if library.is_null() {
            let text = libc::dlerror();
            return Err(if text.is_null() { "does not open".into() } else { lossy(text) });
        }
        let query = libc::dlsym(library, c"llmrt_plugin_query_v0".as_ptr());
        if query.is_null() {
            return Err("exports no llmrt_plugin_query_v0".into());
        }
        Ok(std::mem::transmute::<*mut libc::c_void, Query>(query))
    }
}

/// # Safety
/// `text` is NUL-terminated.
unsafe fn lossy(text: *const libc::c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn query(query: &Query) -> Result<&'static c::Plugin, String> {
    // SAFETY: the entry gives read-only data, or NULL.
    let table = unsafe { query(ABI_MINOR.into()).as_ref() }.ok_or("serves no host of this version")?;
    match table.magic == MAGIC && table.abi_major == ABI_MAJOR && table.fingerprint == FINGERPRINT {
        true => Ok(table),
        false => Err(format!("is not built for ABI {ABI_MAJOR} with these layouts; rebuild it")),
    }
}

/// An answer of the wrapped plugin, to be passed on.
fn answered(code: i32, err: &c::Error) -> Error {
    let message = String::from_utf8_lossy(err.message()).into_owned();
    Error::new(Status::from_code(code), message).scope(Scope::from_code(err.scope))
}

/// Copies a function table into one of this build's size; what a shorter one lacks is NULL.
///
/// # Safety
/// `table` has as many readable bytes as its first `u32` states, and `T` is a table that is valid when all zero.
pub unsafe fn read<T>(table: *const T) -> T {
    // SAFETY: the caller's promise.
    unsafe {
        let size = *table.cast::<u32>() as usize;
        let mut copy = std::mem::MaybeUninit::<T>::zeroed();
        let n = size.min(size_of::<T>());
        std::ptr::copy_nonoverlapping(table.cast::<u8>(), copy.as_mut_ptr().cast::<u8>(), n);
        copy.assume_init()
    }
}
