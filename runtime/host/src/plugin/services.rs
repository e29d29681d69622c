//! The host's side of the contract: the table a plugin gets in `init`, and the functions behind it.

use crate::knobs;
use crate::threads::{Team, ThreadPool};
use core::ffi::c_void;
use llmrt_abi::{ABI_MINOR, DType, DTypeKind, Status, types as c};
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

/// Where plugins' log lines go: level (1 error … 5 trace), plugin's target, text.
pub type LogSink = Arc<dyn Fn(u32, &str, &str) + Send + Sync>;

/// Host features a plugin may need, as `abi::types::NEEDS_*` bits.
pub(crate) const OFFERED: u64 = c::NEEDS_THREADS;

/// What one host offers its plugins.
pub(crate) struct Services {
    pub(crate) api: c::HostApi,
    threads_api: c::HostThreads,
    pub(crate) pool: Arc<ThreadPool>,
    options: BTreeMap<String, String>,
    /// How long one call of a device may take to compute or to wait.
    pub(crate) watchdog: Option<Duration>,
    log: LogSink,
    cancelled: RwLock<HashSet<u64>>,
    ops: Mutex<Vec<CustomOp>>,
}

struct CustomOp {
    name: String,
    version: u32,
}

/// Numbers of custom ops start here.
const FIRST_CUSTOM_OP: u32 = 0x8000_0000;

// SAFETY: the raw pointers are `ctx`, the address of this struct, and everything behind it is `Sync`.
unsafe impl Send for Services {}
// SAFETY: as above.
unsafe impl Sync for Services {}

impl Services {
    /// Services at an address of their own, which is the `ctx` of their tables.
    pub(crate) fn new(
        pool: Arc<ThreadPool>,
        options: BTreeMap<String, String>,
        log: Option<LogSink>,
        watchdog: Option<Duration>,
    ) -> Arc<Services> {
        Arc::new_cyclic(|this: &std::sync::Weak<Services>| {
            let ctx = this.as_ptr().cast_mut().cast::<c_void>();
            Services {
                api: host_api(ctx),
                threads_api: threads_api(ctx),
                pool,
                options,
                watchdog,
                log: log.unwrap_or_else(stderr_log),
                cancelled: RwLock::default(),
                ops: Mutex::default(),
            }
        })
    }

    /// Marks a run as cancelled, or forgets it.
    pub(crate) fn set_cancelled(&self, run_id: u64, yes: bool) {
        let mut runs = self.cancelled.write().unwrap_or_else(PoisonError::into_inner);
        if yes {
            runs.insert(run_id)
        } else {
            runs.remove(&run_id)
        };
    }

    /// A line of the host's own.
    pub(crate) fn say(&self, level: u32, text: &str) {
        (self.log)(level, "host", text);
    }
}

fn host_api(ctx: *mut c_void) -> c::HostApi {
    c::HostApi {
        struct_size: size_of::<c::HostApi>() as u32,
        abi_minor: ABI_MINOR.into(),
        ctx,
        log: Some(log),
        get_option: Some(get_option),
        type_info: Some(type_info),
        register_op: Some(register_op),
        find_op: Some(find_op),
        cancelled: Some(cancelled),
        get_extension: Some(get_extension),
    }
}

fn threads_api(ctx: *mut c_void) -> c::HostThreads {
    c::HostThreads {
        struct_size: size_of::<c::HostThreads>() as u32,
        reserved: 0,
        ctx,
        n_threads: Some(n_threads),
        run: Some(run),
        barrier: Some(barrier),
    }
}

/// Lines up to the knob's level go to standard error.
fn stderr_log() -> LogSink {
    let level = match knobs::LOG.text().as_deref().and_then(|t| t.to_str()) {
        Some("error") => 1,
        Some("info") => 3,
        Some("debug") => 4,
        Some("trace") => 5,
        _ => 2,
    };
    Arc::new(move |l, target, text| {
        if l <= level {
            let word = ["error", "error", "warn", "info", "debug", "trace"][l.min(5) as usize];
            // Nobody to tell when stderr is gone.
            let _ = writeln!(std::io::stderr(), "{word}: {target}: {text}");
        }
    })
}

/// # Safety
/// `ctx` is the `ctx` of a table of live services.
unsafe fn services<'a>(ctx: *mut c_void) -> &'a Services {
    // SAFETY: the caller's promise.
    unsafe { &*ctx.cast::<Services>() }
}

/// # Safety
/// `text.ptr` is NULL or has `text.len` bytes for this call.
unsafe fn text<'a>(text: c::Str) -> std::borrow::Cow<'a, str> {
    if text.ptr.is_null() || text.len == 0 {
        return "".into();
    }
    // SAFETY: the caller's promise.
    String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(text.ptr, text.len as usize) })
}

/// Host code called by a plugin must not unwind into it.
fn contained<T>(otherwise: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(otherwise)
}

// The functions below are called by plugins, which keep the contract: `ctx` is the table's own, texts and outputs are
// valid for the call.

unsafe extern "C" fn log(ctx: *mut c_void, level: u32, target: c::Str, msg: c::Str) {
    // SAFETY: see above.
    contained((), || unsafe { (services(ctx).log)(level, &text(target), &text(msg)) });
}

unsafe extern "C" fn get_option(ctx: *mut c_void, key: c::Str, buf: *mut u8, cap: u64, len: *mut u64) -> i32 {
    // SAFETY: see above; `buf` has `cap` bytes.
    contained(Status::Internal.code(), || unsafe {
        let Some(value) = services(ctx).options.get(&*text(key)) else { return Status::Unsupported.code() };
        *len = value.len() as u64;
        if !buf.is_null() {
            std::ptr::copy_nonoverlapping(value.as_ptr(), buf, value.len().min(cap as usize));
        }
        0
    })
}

unsafe extern "C" fn type_info(_ctx: *mut c_void, dtype: u32, out: *mut c::TypeInfo) -> i32 {
    let Some(info) = DType::from_id(dtype).map(DType::info) else { return Status::Unsupported.code() };
    let flags = match info.kind {
        DTypeKind::Float => 0,
        DTypeKind::Quant => 1,
        DTypeKind::Int => 2,
    };
    // SAFETY: see above; version 0 of this struct is the only one.
    unsafe {
        if ((*out).struct_size as usize) < size_of::<c::TypeInfo>() {
            return Status::Invalid.code();
        }
        *out = c::TypeInfo {
            struct_size: (*out).struct_size,
            id: info.id,
            block_elems: info.block_elems,
            block_bytes: info.block_bytes,
            flags,
            reserved: 0,
            name: c::Str::new(info.name),
        };
    }
    0
}

unsafe extern "C" fn register_op(ctx: *mut c_void, desc: *const c::OpDesc, id: *mut u32) -> i32 {
    // SAFETY: see above.
    contained(Status::Internal.code(), || unsafe {
        let (name, version) = (text((*desc).name).into_owned(), (*desc).version);
        if !name.contains('.') || (*desc).infer.is_none() {
            return Status::Invalid.code();
        }
        let mut ops = services(ctx).ops.lock().unwrap_or_else(PoisonError::into_inner);
        if ops.iter().any(|op| op.name == name && op.version == version) {
            return Status::Invalid.code();
        }
        *id = FIRST_CUSTOM_OP + ops.len() as u32;
        ops.push(CustomOp { name, version });
        0
    })
}

unsafe extern "C" fn find_op(ctx: *mut c_void, name: c::Str, version: u32, id: *mut u32) -> i32 {
    // SAFETY: see above.
    contained(Status::Internal.code(), || unsafe {
        let name = text(name);
        let ops = services(ctx).ops.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(row) = ops.iter().position(|op| op.name == name && op.version == version) else {
            return Status::Unsupported.code();
        };
        *id = FIRST_CUSTOM_OP + row as u32;
        0
    })
}

unsafe extern "C" fn cancelled(ctx: *mut c_void, run_id: u64) -> u32 {
    // SAFETY: see above.
    let runs = unsafe { services(ctx) }.cancelled.read().unwrap_or_else(PoisonError::into_inner);
    runs.contains(&run_id).into()
}

unsafe extern "C" fn get_extension(ctx: *mut c_void, name: c::Str, version: u32) -> *const c_void {
    // SAFETY: see above.
    unsafe {
        match (&*text(name), version) {
            ("llmrt.host.threads", 1) => (&raw const services(ctx).threads_api).cast(),
            _ => std::ptr::null(),
        }
    }
}

unsafe extern "C" fn n_threads(ctx: *mut c_void) -> u32 {
    // SAFETY: see above.
    unsafe { services(ctx) }.pool.n_threads() as u32
}

unsafe extern "C" fn run(
    ctx: *mut c_void,
    n: u32,
    body: Option<unsafe extern "C" fn(arg: *mut c_void, team: *mut c_void, i: u32, n: u32)>,
    arg: *mut c_void,
) -> i32 {
    /// The plugin shares `arg` among the members of its team.
    struct Arg(*mut c_void);
    // SAFETY: as the struct says.
    unsafe impl Sync for Arg {}

    // SAFETY: see above.
    let pool = unsafe { &services(ctx).pool };
    let (Some(body), true) = (body, (1..=pool.n_threads()).contains(&(n as usize))) else {
        return Status::Invalid.code();
    };
    let arg = Arg(arg);
    let member = |team: &Team<'_>| {
        let arg = &arg;
        let handle = std::ptr::from_ref(team).cast_mut().cast();
        // SAFETY: a body of the plugin, which does not unwind, with the argument it gave; `team` outlives the call.
        unsafe { body(arg.0, handle, team.index() as u32, team.len() as u32) }
    };
    let result = contained(Ok(()), || pool.run(n as usize, &member));
    result.map_or(Status::Internal.code(), |()| 0)
}

unsafe extern "C" fn barrier(team: *mut c_void) {
    // SAFETY: `team` is what `run` gave to this member, which is still in its body.
    unsafe { &*team.cast::<Team<'_>>() }.wait();
}
