//! Where a thread is: inside a call of the host, or in a body of the host's threads. Plugins may use the host's threads
//! only from there.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static IN_INIT: Cell<bool> = const { Cell::new(false) };
}

/// This thread is inside a call until this is dropped.
pub(crate) struct Inside {
    was_in_init: bool,
}

/// This thread enters a call of a plugin, or a body of the host's threads.
pub(crate) fn enter() -> Inside {
    DEPTH.set(DEPTH.get() + 1);
    Inside { was_in_init: IN_INIT.get() }
}

/// This thread enters `init`.
pub(crate) fn enter_init() -> Inside {
    let inside = enter();
    IN_INIT.set(true);
    inside
}

/// Whether this thread is inside a call or a body.
pub(crate) fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Whether this thread is inside `init`.
pub(crate) fn is_in_init() -> bool {
    IN_INIT.get()
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
        IN_INIT.set(self.was_in_init);
    }
}
