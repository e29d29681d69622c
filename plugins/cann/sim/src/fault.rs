//! What goes wrong in a call, and how a thread hears of it: a status, and a text that reading clears.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

/// A status and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Fault {
    /// The vendor's number.
    pub code: i32,
    /// What was found and what was expected.
    pub text: String,
}

/// A result, or what went wrong.
pub type Answer<T = ()> = Result<T, Fault>;

/// A fault.
pub fn fault<T>(code: i32, text: impl Into<String>) -> Answer<T> {
    Err(Fault { code, text: text.into() })
}

/// This fault, unless the condition holds.
pub fn ensure(condition: bool, code: i32, text: impl FnOnce() -> String) -> Answer {
    if condition { Ok(()) } else { fault(code, text()) }
}

thread_local! {
    /// The newest message, and the one that was read last, which its reader may still look at.
    static MESSAGES: RefCell<(Option<CString>, Option<CString>)> = const { RefCell::new((None, None)) };
}

/// Leaves a message for the calling thread.
pub fn set_message(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    MESSAGES.with_borrow_mut(|(newest, _)| *newest = Some(text));
}

/// The calling thread's message, which goes; NULL if there is none.
pub fn take_message() -> *const c_char {
    MESSAGES.with_borrow_mut(|(newest, read)| match newest.take() {
        Some(text) => read.insert(text).as_ptr(),
        None => std::ptr::null(),
    })
}
