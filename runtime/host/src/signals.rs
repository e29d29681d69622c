//! Signals that would end the process where a system call can return an error instead.

/// From now on a write beyond the file size limit (`ulimit -f`) returns `EFBIG`, and SIGXFSZ does not end the process.
pub fn ignore_file_size_signal() {
    #[cfg(unix)]
    // SAFETY: SIG_IGN is a disposition that runs no code, so nothing of this process runs in a signal handler.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}
