//! A program run to its end: its output, time and memory.

use super::cases::Case;
use crate::run;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs with the file in or out of the page cache, as the case requires.
pub fn prepared(case: Case, command: &mut Command, model: &Path) -> Result<Out, String> {
    if case == Case::StartCold {
        let mut of = std::ffi::OsString::from("if=");
        of.push(model);
        // dd drops a file's pages from the page cache; it copies none.
        let mut dd = Command::new("dd");
        dd.arg(of).args(["iflag=nocache", "count=0", "status=none"]);
        run(&mut dd)?;
    }
    if matches!(case, Case::StartCold | Case::StartWarm) {
        command.arg("--no-warmup");
    }
    watched(command)
}

/// What a run left.
pub struct Out {
    /// What it printed.
    pub stdout: Vec<u8>,
    time: Duration,
    /// Most bytes resident at one time.
    peak: u64,
}

impl Out {
    /// What counts of it, if `speed` is what the program printed.
    pub fn value(&self, case: Case, speed: Result<f64, String>) -> Result<f64, String> {
        match case {
            Case::StartWarm | Case::StartCold => Ok(self.time.as_secs_f64()),
            Case::Memory => Ok(self.peak as f64 / 1e6),
            _ => speed,
        }
    }
}

/// Runs a program to its end, with an eye on its memory.
pub fn watched(command: &mut Command) -> Result<Out, String> {
    let started = Instant::now();
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let name = command.get_program().to_string_lossy().into_owned();
    let child = child.map_err(|e| format!("{name}: cannot be started: {e}; check the path"))?;
    let status = format!("/proc/{}/status", child.id());
    let (is_done, peak) = (AtomicBool::new(false), AtomicU64::new(0));
    let out = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                peak.fetch_max(most_resident(&status).unwrap_or(0), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let out = child.wait_with_output();
        is_done.store(true, Ordering::Relaxed);
        out
    });
    let time = started.elapsed();
    let out = out.map_err(|e| format!("{name}: {e}"))?;
    if !out.status.success() {
        return Err(format!("{name}: {}\n{}", out.status, String::from_utf8_lossy(&out.stderr)));
    }
    Ok(Out { stdout: out.stdout, time, peak: peak.into_inner() })
}

/// `VmHWM` of a process, in bytes.
pub fn most_resident(status: &str) -> Option<u64> {
    let text = std::fs::read_to_string(status).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|n| n * 1024)
}

/// The one JSON value of an output.
pub fn parsed(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes)
        .map_err(|e| format!("no JSON came: {e}\n{}", String::from_utf8_lossy(bytes)))
}

/// A number of a JSON object.
pub fn number(of: &Value, key: &str) -> Result<f64, String> {
    of[key].as_f64().ok_or_else(|| format!("{key} is missing in the output: {of}"))
}

/// Fails unless a program did what was requested, by the numbers it printed.
pub fn expect(of: &Value, numbers: &[(&str, usize)]) -> Result<(), String> {
    for &(key, expected) in numbers {
        let found = number(of, key)?;
        if found != expected as f64 {
            return Err(format!(
                "{key} is {found}, expected {expected}: another program than is known? {of}"
            ));
        }
    }
    Ok(())
}
