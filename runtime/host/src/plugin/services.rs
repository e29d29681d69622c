//! The host's side of the contract: the table a plugin gets in `init`, and the functions behind it.

use super::custom::{CustomOp, Registered};
use super::loaded::Loaded;
use crate::knobs;
use crate::pool::PoolKind;
use crate::threads::{Team, ThreadPool};
use crate::validate::inside;
use core::ffi::c_void;
use llmrt_abi::{ABI_MINOR, DType, DTypeKind, Status, types as c};
use std::collections::{BTreeMap, HashSet};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
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
    /// How scratch memory of devices is managed; `None`: as the knob says.
    pub(crate) scratch_pool: Option<PoolKind>,
    /// Whether calls in both directions are checked.
    pub(crate) validate: bool,
    cancelled: RwLock<HashSet<u64>>,
    ops: Mutex<Vec<Arc<Registered>>>,
}

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
        validate: bool,
        watchdog: Option<Duration>,
        scratch_pool: Option<PoolKind>,
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
                scratch_pool,
                validate,
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

    /// A custom op of a plugin that this host started.
    pub(crate) fn find_op(&self, name: &str, version: u32) -> Option<CustomOp> {
        self.ops().iter().find(|op| (op.name.as_str(), op.version) == (name, version)).cloned().map(CustomOp)
    }

    /// All of them.
    pub(crate) fn custom_ops(&self) -> Vec<CustomOp> {
        self.ops().iter().cloned().map(CustomOp).collect()
    }

    /// What was registered since there were `n_before` ops belongs to this plugin, or goes if its `init` failed.
    pub(crate) fn settle_ops(&self, n_before: usize, plugin: Option<&Arc<Loaded>>) {
        let mut ops = self.ops();
        match plugin {
            Some(plugin) => ops[n_before..].iter().for_each(|op| op.belongs_to(plugin)),
            None => ops.truncate(n_before),
        }
    }

    fn ops(&self) -> MutexGuard<'_, Vec<Arc<Registered>>> {
        self.ops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A plugin broke a rule in a call of the host: logged if calls are checked.
    fn misuse(&self, call: &str, text: impl std::fmt::Display) {
        if self.validate {
            self.say(1, &format!("LLMRT_VALIDATE: a plugin: {call}: {text}"));
        }
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
    contained((), || unsafe {
        let services = services(ctx);
        if !(1..=5).contains(&level) {
            services.misuse("log", format_args!("level {level}; 1 (error) to 5 (trace) are known"));
        }
        for part in [target, msg] {
            if part.ptr.is_null() && part.len > 0 {
                services.misuse("log", format_args!("a text of {} bytes at NULL", part.len));
            } else if matches!(text(part), std::borrow::Cow::Owned(_)) {
                services.misuse("log", "a text that is not UTF-8");
            }
        }
        (services.log)(level, &text(target), &text(msg))
    });
}

unsafe extern "C" fn get_option(ctx: *mut c_void, key: c::Str, buf: *mut u8, cap: u64, len: *mut u64) -> i32 {
    // SAFETY: see above; `buf` has `cap` bytes.
    contained(Status::Internal.code(), || unsafe {
        if len.is_null() || (buf.is_null() && cap > 0) {
            services(ctx).misuse("get_option", format_args!("buf {buf:?} of {cap} bytes, len {len:?}"));
            return Status::Invalid.code();
        }
        let Some(value) = services(ctx).options.get(&*text(key)) else { return Status::Unsupported.code() };
        *len = value.len() as u64;
        if !buf.is_null() {
            std::ptr::copy_nonoverlapping(value.as_ptr(), buf, value.len().min(cap as usize));
        }
        0
    })
}

unsafe extern "C" fn type_info(ctx: *mut c_void, dtype: u32, out: *mut c::TypeInfo) -> i32 {
    let Some(info) = DType::from_id(dtype).map(DType::info) else { return Status::Unsupported.code() };
    let flags = match info.kind {
        DTypeKind::Float => 0,
        DTypeKind::Quant => 1,
        DTypeKind::Int => 2,
    };
    // SAFETY: see above; version 0 of this struct is the only one.
    unsafe {
        if out.is_null() || ((*out).struct_size as usize) < size_of::<c::TypeInfo>() {
            services(ctx).misuse("type_info", "an output that is NULL or too small (`struct_size`)");
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
        if !inside::is_in_init() {
            services(ctx).misuse("register_op", "outside `init`");
            return Status::Invalid.code();
        }
        if id.is_null() {
            services(ctx).misuse("register_op", "id is NULL");
            return Status::Invalid.code();
        }
        let mut ops = services(ctx).ops();
        let op = match Registered::read(desc) {
            Ok(op) if ops.iter().any(|o| (&o.name, o.version) == (&op.name, op.version)) => {
                Err(format!("{} version {} is registered already", op.name, op.version))
            }
            op => op,
        };
        match op {
            Ok(op) => {
                *id = op.id;
                ops.push(Arc::new(op));
                0
            }
            Err(text) => {
                drop(ops);
                services(ctx).say(2, &format!("register_op: {text}"));
                Status::Invalid.code()
            }
        }
    })
}

unsafe extern "C" fn find_op(ctx: *mut c_void, name: c::Str, version: u32, id: *mut u32) -> i32 {
    // SAFETY: see above.
    contained(Status::Internal.code(), || unsafe {
        let Some(op) = services(ctx).find_op(&text(name), version) else { return Status::Unsupported.code() };
        if id.is_null() {
            services(ctx).misuse("find_op", "id is NULL");
            return Status::Invalid.code();
        }
        *id = op.id();
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
    let (pool, validates) = unsafe { (&services(ctx).pool, services(ctx).validate) };
    // SAFETY: see above.
    let misuse = |text: std::fmt::Arguments<'_>| unsafe { services(ctx) }.misuse("threads.run", text);
    if !inside::is_inside() && validates {
        misuse(format_args!(
            "from a thread of the plugin's own; only calls of the host and bodies may use its threads"
        ));
        return Status::Invalid.code();
    }
    let (Some(body), true) = (body, (1..=pool.n_threads()).contains(&(n as usize))) else {
        misuse(format_args!("{n} threads of {}, or no body", pool.n_threads()));
        return Status::Invalid.code();
    };
    let arg = Arg(arg);
    let member = |team: &Team<'_>| {
        let arg = &arg;
        let handle = std::ptr::from_ref(team).cast_mut().cast();
        let _inside = validates.then(inside::enter);
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
