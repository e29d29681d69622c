//! For tests: the machine replaced, counters and reports read. The vendor's library has none of this.

use crate::world::{World, world};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// Another machine, described as in the environment. Handles of the old one are dead.
#[unsafe(no_mangle)]
unsafe extern "C" fn llmrt_sim_configure(text: *const c_char) {
    let text = as_text(text);
    let new = World::new(&text);
    *world() = new;
}

/// A counter: the name of a function or of a kernel that was launched, or one of launch, graph, sync, h2d, d2h, d2d, peer,
/// staged; kernels for those that ran; waits for streams; left for objects that live.
#[unsafe(no_mangle)]
unsafe extern "C" fn llmrt_sim_count(name: *const c_char) -> u64 {
    let name = as_text(name);
    world().counter(&name)
}

/// Report `i`; NULL after the last. Valid until the thread's next call.
#[unsafe(no_mangle)]
unsafe extern "C" fn llmrt_sim_report(i: usize) -> *const c_char {
    thread_local! {
        static LAST: RefCell<CString> = RefCell::default();
    }
    let text = world().reports().get(i).and_then(|text| CString::new(text.as_str()).ok());
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
