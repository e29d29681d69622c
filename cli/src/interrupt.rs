//! Ctrl-C: the first requests that the command stops, the second ends the program. Where there is nothing to stop, as
//! while stdin is read, the first one ends it.

use crate::error::{Error, Exit, Result};
use llmrt_host::CancelToken;
use llmrt_tokenizer::Limits;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Set by Ctrl-C, until it is dealt with.
static TOKEN: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);

/// Whether Ctrl-C ends the program at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// Listens for Ctrl-C from now on.
pub fn listen() -> Result<()> {
    let token = token();
    let on_signal = move || {
        if token.is_cancelled() || AT_ONCE.load(Ordering::SeqCst) {
            std::process::exit(Exit::Interrupted as i32);
        }
        token.cancel();
    };
    ctrlc::set_handler(on_signal)
        .map_err(|e| Error::new(Exit::Failure, format!("cannot listen for Ctrl-C: {e}")))
}

/// What Ctrl-C sets, for whatever can stop by itself.
pub fn token() -> CancelToken {
    TOKEN.clone()
}

/// Runs `body`, which does not look at the token and leaves nothing half done: Ctrl-C ends the program at once.
pub fn ending_at_once<T>(body: impl FnOnce() -> T) -> T {
    AT_ONCE.store(true, Ordering::SeqCst);
    let result = body();
    AT_ONCE.store(false, Ordering::SeqCst);
    result
}

/// Whether Ctrl-C was pressed and is not dealt with yet.
pub fn is_requested() -> bool {
    TOKEN.is_cancelled()
}

/// What encoding text for a context of `n_ctx` tokens may cost. A prompt that is somewhat too long is still counted, for
/// the message.
pub fn limits(n_ctx: usize) -> Limits<'static> {
    Limits { max_tokens: n_ctx.max(4096).saturating_mul(4), is_cancelled: &is_requested }
}

/// No limit on the number of tokens, but Ctrl-C ends the work.
pub const UNTIL_INTERRUPTED: Limits<'static> = Limits { max_tokens: usize::MAX, is_cancelled: &is_requested };

/// Ctrl-C has been dealt with.
pub fn forget() {
    TOKEN.reset();
}
