//! [`Event`] as the ABI's event table.

use super::{guard, guard_value};
use crate::{Error, Event, Status};
use llmrt_abi::types as c;
use std::time::Duration;

/// What `*mut c::Event` points to.
#[repr(C)]
struct Shell {
    abi: c::Event,
    inner: Box<dyn Event>,
}

static VT: c::EventVt = c::EventVt {
    struct_size: size_of::<c::EventVt>() as u32,
    reserved: 0,
    destroy: Some(destroy),
    query: Some(query),
    wait: Some(wait),
};

/// Gives an event to the host.
pub(crate) fn into_raw(inner: Box<dyn Event>) -> *mut c::Event {
    let abi = c::Event { vt: &VT, imp: std::ptr::null_mut() };
    Box::into_raw(Box::new(Shell { abi, inner })).cast()
}

/// # Safety
/// `event` came from [`into_raw`] and was not destroyed.
pub(crate) unsafe fn inner<'a>(event: *mut c::Event) -> &'a dyn Event {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &*(*event.cast::<Shell>()).inner }
}

// In every function below `event` came from `into_raw`.

unsafe extern "C" fn destroy(event: *mut c::Event) {
    // SAFETY: see above; the host destroys once.
    guard_value((), || drop(unsafe { Box::from_raw(event.cast::<Shell>()) }));
}

unsafe extern "C" fn query(event: *mut c::Event, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || reached(inner(event).query()?)) }
}

unsafe extern "C" fn wait(event: *mut c::Event, timeout_ns: u64, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || reached(inner(event).wait(Duration::from_nanos(timeout_ns))?)) }
}

fn reached(yes: bool) -> crate::Result<()> {
    if yes { Ok(()) } else { Err(Error::new(Status::NotReady, "work is still going on")) }
}
