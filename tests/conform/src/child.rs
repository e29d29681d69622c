//! A worker process as its parent sees it: it runs cases under a time limit, and how it died is found out.

use crate::growth;
use crate::outcome::Outcome;
use crate::protocol;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child as Process, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How a worker is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments: they make it call [`crate::worker::serve`].
    pub args: Vec<OsString>,
}

/// A worker process. Killed when dropped.
pub struct Child {
    process: Process,
    stdin: Option<ChildStdin>,
    lines: Receiver<Vec<u8>>,
    /// The end of what it wrote to stderr.
    complaints: Arc<Mutex<Vec<u8>>>,
    n_sent: u64,
}

/// How much of a worker's stderr is kept.
const KEPT: usize = 2048;

impl Child {
    /// Starts a worker.
    pub fn start(launch: &Launch) -> std::io::Result<Child> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = growth::count_exactly(&mut command).spawn()?;
        let (sender, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stdout);
                let mut line = Vec::new();
                while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                    if sender.send(std::mem::take(&mut line)).is_err() {
                        break;
                    }
                }
            });
        }
        let complaints = Arc::new(Mutex::new(Vec::new()));
        if let Some(mut stderr) = process.stderr.take() {
            let kept = complaints.clone();
            std::thread::spawn(move || {
                let mut piece = [0; 1024];
                while let Ok(n @ 1..) = stderr.read(&mut piece) {
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.extend_from_slice(&piece[..n]);
                    let excess = kept.len().saturating_sub(KEPT);
                    kept.drain(..excess);
                }
            });
        }
        let stdin = process.stdin.take();
        Ok(Child { process, stdin, lines, complaints, n_sent: 0 })
    }

    /// Runs a case, unless `is_cancelled` turns true meanwhile. The second value: whether the worker can run another one.
    pub fn run(&mut self, case: &str, limit: Duration, is_cancelled: &dyn Fn() -> bool) -> (Outcome, bool) {
        self.n_sent += 1;
        let question = protocol::question(self.n_sent, case);
        let sent = self
            .stdin
            .as_mut()
            .is_some_and(|stdin| stdin.write_all(question.as_bytes()).and_then(|()| stdin.flush()).is_ok());
        if !sent {
            return (Outcome::Failed(self.death()), false);
        }
        match self.answer(limit, is_cancelled) {
            Ok(line) => match protocol::parse_answer(&String::from_utf8_lossy(&line), self.n_sent) {
                Some(outcome) => {
                    let fit = !matches!(outcome, Outcome::Failed(_));
                    (outcome, fit)
                }
                None => {
                    let shown: String = String::from_utf8_lossy(&line).trim_end().chars().take(80).collect();
                    (Outcome::Failed(format!("the plugin wrote to stdout: `{shown}`")), false)
                }
            },
            Err(RecvTimeoutError::Timeout) if is_cancelled() => {
                (Outcome::Skipped("the run was cancelled".into()), false)
            }
            Err(RecvTimeoutError::Timeout) => {
                let why = format!("did not end within {} s; it was killed", limit.as_secs_f64());
                (Outcome::Failed(why), false)
            }
            Err(RecvTimeoutError::Disconnected) => (Outcome::Failed(self.death()), false),
        }
    }

    /// The next line; a time-out too when the run is cancelled.
    fn answer(&self, limit: Duration, is_cancelled: &dyn Fn() -> bool) -> Result<Vec<u8>, RecvTimeoutError> {
        const SLICE: Duration = Duration::from_millis(50);
        let started = Instant::now();
        loop {
            let left = limit.saturating_sub(started.elapsed());
            match self.lines.recv_timeout(left.min(SLICE)) {
                Err(RecvTimeoutError::Timeout) if left > SLICE && !is_cancelled() => {}
                answer => return answer,
            }
        }
    }

    /// Lets the worker end by itself; how it ended otherwise.
    pub fn end(mut self, limit: Duration) -> Result<(), String> {
        self.stdin = None;
        let started = Instant::now();
        loop {
            match self.process.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => return Err(self.describe(status)),
                Ok(None) if started.elapsed() < limit => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => {
                    return Err(format!("the process did not end within {} s", limit.as_secs_f64()));
                }
                Err(e) => return Err(format!("the process cannot be waited for: {e}")),
            }
        }
    }

    /// How the process ended; it is about to, if it has not yet.
    fn death(&mut self) -> String {
        match self.process.wait() {
            // The last words arrive on a thread of their own.
            Ok(status) => {
                std::thread::sleep(Duration::from_millis(20));
                self.describe(status)
            }
            Err(e) => format!("the process is gone: {e}"),
        }
    }

    fn describe(&self, status: ExitStatus) -> String {
        let how = match (status.signal(), status.code()) {
            (Some(signal), _) => format!("the process ended with signal {signal} ({})", signal_name(signal)),
            (None, Some(code)) => format!("the process ended by itself with exit code {code}"),
            (None, None) => "the process ended".to_string(),
        };
        match self.last_words() {
            Some(words) => format!("{how}; it wrote: {words}"),
            None => how,
        }
    }

    fn last_words(&self) -> Option<String> {
        let kept = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&kept).into_owned();
        let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(3)..].join(" / ");
        Some(last).filter(|text| !text.is_empty())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // One that is gone already cannot be killed, and that is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL, perhaps out of memory",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        _ => "see signal(7)",
    }
}
