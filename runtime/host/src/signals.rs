//! Signals that end the process: some return an error instead, others run a function of the program first.

use libc::c_int;
use signal_hook::iterator::Signals;
use std::io;

/// From now on a write beyond the file size limit (`ulimit -f`) returns `EFBIG`, and SIGXFSZ does not end the process.
pub fn ignore_file_size_signal() {
    // SAFETY: SIG_IGN is a disposition that runs no code, so nothing of this process runs in a signal handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Ctrl-C.
pub const INTERRUPT: i32 = libc::SIGINT;

/// What ends a process from outside: `kill`, a terminal that closes, Ctrl-\.
const ENDING: [c_int; 3] = [libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Runs `on_signal`, with the signal's number, on a thread of its own after each Ctrl-C, SIGTERM, SIGHUP and SIGQUIT.
/// Of the last three those stay ignored that the parent ignores, as `nohup` does. To be called once.
pub fn listen(on_signal: impl Fn(i32) + Send + 'static) -> io::Result<()> {
    let ending = ENDING.into_iter().filter(|&signal| !is_ignored(signal));
    let mut signals = Signals::new(std::iter::once(INTERRUPT).chain(ending))?;
    let forward = move || signals.forever().for_each(on_signal);
    std::thread::Builder::new().name("signals".into()).spawn(forward)?;
    Ok(())
}

fn is_ignored(signal: c_int) -> bool {
    // SAFETY: `sigaction` writes a struct that lives during the call, for which all zeros is a valid value.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Ends the process at once: no destructor and no function that a library registered for the exit runs, since other
/// threads still use what these would free.
pub fn exit_at_once(code: u8) -> ! {
    // SAFETY: `_exit` takes no memory and does not return.
    unsafe { libc::_exit(code.into()) }
}

/// How the terminal at stdin is set.
#[derive(Clone, Copy)]
pub struct TerminalMode(libc::termios);

impl TerminalMode {
    /// The mode now; `None` where stdin is no terminal.
    pub fn now() -> Option<TerminalMode> {
        // SAFETY: `tcgetattr` writes a struct that lives during the call, for which all zeros is a valid value.
        unsafe {
            let mut mode: libc::termios = std::mem::zeroed();
            (libc::tcgetattr(libc::STDIN_FILENO, &mut mode) == 0).then_some(TerminalMode(mode))
        }
    }

    /// Sets the mode again; returns whether it had changed. A process in the background leaves the terminal to the one
    /// in the foreground.
    pub fn restore(&self) -> bool {
        let flags = |mode: &libc::termios| [mode.c_iflag, mode.c_oflag, mode.c_cflag, mode.c_lflag];
        let has_changed = TerminalMode::now().is_some_and(|now| flags(&now.0) != flags(&self.0));
        // SAFETY: `tcsetattr` reads a struct that `tcgetattr` wrote; the others read no memory.
        unsafe {
            has_changed
                && libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp()
                && libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &self.0) == 0
        }
    }
}
