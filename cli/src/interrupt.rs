//! Signals. Ctrl-C: the first requests that the command stops, the second ends the program. Where there is nothing to
//! stop, as while stdin is read, the first one ends it. SIGTERM, SIGHUP and SIGQUIT end it in any case. Before the end
//! the terminal is as it was, and files that are not whole are removed.

use crate::error::{Error, Exit, Result};
use crate::new_file;
use llmrt_host::CancelToken;
use llmrt_host::signals::{self, TerminalMode};
use llmrt_tokenizer::Limits;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, OnceLock};

/// Set by Ctrl-C, until it is dealt with.
static TOKEN: LazyLock<CancelToken> = LazyLock::new(CancelToken::new);

/// Whether Ctrl-C ends the program at once.
static AT_ONCE: AtomicBool = AtomicBool::new(false);

/// How the terminal was set before a line editor changed it.
static TERMINAL: OnceLock<TerminalMode> = OnceLock::new();

/// Listens for signals from now on.
pub fn listen() -> Result<()> {
    let token = token();
    let on_signal = move |signal| match signal {
        signals::INTERRUPT if !token.is_cancelled() && !AT_ONCE.load(Ordering::SeqCst) => token.cancel(),
        signals::INTERRUPT => end(Exit::Interrupted.code()),
        signal => end(128 + signal as u8),
    };
    signals::listen(on_signal)
        .map_err(|e| Error::new(Exit::Failure, format!("cannot listen for Ctrl-C: {e}")))
}

/// Ends the program with this exit code.
fn end(code: u8) -> ! {
    if TERMINAL.get().is_some_and(TerminalMode::restore) {
        // The line editor has made the terminal mark pasted text.
        let _ = std::io::stdout().write_all(b"\x1b[?2004l\n").and_then(|()| std::io::stdout().flush());
    }
    let _no_more = new_file::remove_unfinished();
    signals::exit_at_once(code)
}

/// A program that ends from now on leaves the terminal as it is at this moment.
pub fn keep_terminal_mode() {
    if let Some(mode) = TerminalMode::now() {
        let _ = TERMINAL.set(mode);
    }
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
