//! Ctrl-C: the first asks whatever runs to stop, the second ends the program.

use crate::error::{Error, Exit, Result};
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Listens for Ctrl-C from now on.
pub fn listen() -> Result<()> {
    let on_signal = || {
        if ASKED.swap(true, Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted as i32);
        }
    };
    ctrlc::set_handler(on_signal)
        .map_err(|e| Error::new(Exit::Failure, format!("cannot listen for Ctrl-C: {e}")))
}

/// Whether Ctrl-C was pressed and nobody has dealt with it.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Forgets Ctrl-C: it has done what it should.
pub fn forget() {
    ASKED.store(false, Ordering::SeqCst);
}
