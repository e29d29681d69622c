//! For tests: the header's tables filled, the machine replaced, counters and reports read. Vendors' libraries have none
//! of this.

use crate::sys::*;
use crate::world::{replace, world};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// Every function of the header.
pub struct Tables {
    /// libascendcl.
    pub acl: cann_acl,
    /// libnnopbase.
    pub object: cann_object,
    /// libhccl and libhcomm.
    pub hccl: cann_hccl,
    /// libopapi_math.
    pub math: cann_math,
    /// libopapi_nn.
    pub nn: cann_nn,
    /// libopapi_cv.
    pub cv: cann_cv,
    /// libopapi_transformer.
    pub transformer: cann_transformer,
}

/// The tables. What a file does not fill stays NULL.
pub fn tables() -> Tables {
    // SAFETY: tables hold nothing but functions that may be NULL, which is zero.
    let mut t: Tables = unsafe { std::mem::zeroed() };
    crate::runtime::fill(&mut t.acl);
    crate::object::fill(&mut t.object);
    crate::hccl::fill(&mut t.hccl);
    crate::ops::fill(&mut t.math, &mut t.nn, &mut t.cv, &mut t.transformer);
    t
}

/// Another machine, as [`llmrt_sim_configure`].
pub fn configure(text: &str) {
    replace(text);
}

/// A counter, as [`llmrt_sim_count`].
pub fn count(name: &str) -> u64 {
    match name {
        "left" => world().objects.n_left() as u64,
        "left.graphs" => world().graphs.len() as u64,
        name => world().trace.get(name),
    }
}

/// What was reported.
pub fn reports() -> Vec<String> {
    world().trace.reports()
}

/// Another machine, described as in the environment. Handles of the old one are dead, contexts of threads too.
#[unsafe(no_mangle)]
unsafe extern "C" fn llmrt_sim_configure(text: *const c_char) {
    replace(&as_text(text));
}

/// A counter: the name of a function, of an operator also with `.bytes` (what its launches move), or one of h2d, d2h, d2d,
/// collective (each also `.bytes`), collective.waits for calls that waited for other ranks' first, collective.begun for works
/// begun on cards, sync, malloc, plan, launch, graph, layout.nz, layout.nd, layout.columns, layout.rows for products by the
/// layout of their weight, ai_cpu, refused, peak.N for the most bytes in use of card N, left for tensors, scalars, arrays,
/// lists and plans that live.
#[unsafe(no_mangle)]
unsafe extern "C" fn llmrt_sim_count(name: *const c_char) -> u64 {
    count(&as_text(name))
}

/// Sets every counter to 0 and forgets the reports.
#[unsafe(no_mangle)]
unsafe extern "C" fn llmrt_sim_reset() {
    world().trace.reset();
}

/// Report `i`; NULL after the last. Valid until the thread's next call.
#[unsafe(no_mangle)]
unsafe extern "C" fn llmrt_sim_report(i: usize) -> *const c_char {
    thread_local! {
        static LAST: RefCell<CString> = RefCell::default();
    }
    let text = world().trace.reports().get(i).and_then(|text| CString::new(text.as_str()).ok());
    text.map_or(std::ptr::null(), |text| {
        LAST.with_borrow_mut(|last| {
            *last = text;
            last.as_ptr()
        })
    })
}

fn as_text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: a text that ends, as every caller passes.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}
