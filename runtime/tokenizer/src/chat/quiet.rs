//! Keeps the panics of the template engine off stderr: they are caught, and become errors.

use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `run`, which must not unwind, and prints no message for panics that it catches on this thread.
pub(super) fn without_panic_message<T>(run: impl FnOnce() -> T) -> T {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let others = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !IS_QUIET.get() {
                others(panic);
            }
        }));
    });
    let before = IS_QUIET.replace(true);
    let result = run();
    IS_QUIET.set(before);
    result
}
