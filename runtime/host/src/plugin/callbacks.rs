//! The host's side of the contract: the tables a plugin gets in `init`, and their functions.

use super::custom::Registered;
use super::services::Services;
use crate::error::Error;
use crate::threads::Team;
use crate::validate::inside;
use core::ffi::c_void;
use llmrt_abi::{ABI_MINOR, DType, DTypeKind, Status, types as c};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The table of `init`; `ctx` is the address of the [`Services`] that it is of.
pub(super) fn host_api(ctx: *mut c_void) -> c::HostApi {
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

/// The table of `llmrt.host.threads`, with the same `ctx`.
pub(super) fn threads_api(ctx: *mut c_void) -> c::HostThreads {
    c::HostThreads {
        struct_size: size_of::<c::HostThreads>() as u32,
        reserved: 0,
        ctx,
        n_threads: Some(n_threads),
        run: Some(run),
        barrier: Some(barrier),
    }
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
        let Some(value) = services(ctx).read_option(&text(key)) else { return Status::Unsupported.code() };
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
                services(ctx).log_line(2, &format!("register_op: {text}"));
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
    unsafe { services(ctx) }.runs.is_cancelled(run_id).into()
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
    // SAFETY: as documented on the struct.
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
    let panicked = || Err(Error::Threads { problem: "the host's thread pool panicked".into() });
    match contained(panicked(), || pool.run(n as usize, &member)) {
        Ok(()) => 0,
        Err(e) => {
            // The plugin gets a code; the cause and what to do about it are for the user.
            // SAFETY: see above.
            contained((), || unsafe { services(ctx) }.log_line(1, &e.to_string()));
            Status::Internal.code()
        }
    }
}

unsafe extern "C" fn barrier(team: *mut c_void) {
    // SAFETY: `team` is what `run` gave to this member, which is still in its body.
    unsafe { &*team.cast::<Team<'_>>() }.wait();
}
