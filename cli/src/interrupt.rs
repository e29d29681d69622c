//! Ctrl-C: the first asks whatever runs to stop, the second ends the program; while stdin is read the first does.

use crate::error::{Error, Exit, Result};
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether the program waits for stdin, where nothing can be asked to stop.
static READING: AtomicBool = AtomicBool::new(false);

/// Listens for Ctrl-C from now on.
pub fn listen() -> Result<()> {
    let on_signal = || {
        if ASKED.swap(true, Ordering::SeqCst) || READING.load(Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted as i32);
        }
    };
    ctrlc::set_handler(on_signal)
        .map_err(|e| Error::new(Exit::Failure, format!("cannot listen for Ctrl-C: {e}")))
}

/// Runs `read`, which waits for stdin: Ctrl-C ends the program at once.
pub fn while_reading<T>(read: impl FnOnce() -> T) -> T {
    READING.store(true, Ordering::SeqCst);
    let result = read();
    READING.store(false, Ordering::SeqCst);
    result
}

/// Whether Ctrl-C was pressed and nobody has dealt with it.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::SeqCst)
}

/// Forgets Ctrl-C: it has done what it should.
pub fn forget() {
    ASKED.store(false, Ordering::SeqCst);
}
