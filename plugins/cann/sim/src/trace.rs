//! What was called how often, and a file with a line per call where one is configured.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

/// Counters and the file.
#[derive(Default)]
pub struct Trace(Mutex<State>);

#[derive(Default)]
struct State {
    counts: BTreeMap<String, u64>,
    reports: Vec<String>,
    file: Option<File>,
}

impl Trace {
    /// Counters at zero; lines go to `path` unless it is empty.
    pub fn new(path: &str) -> Trace {
        let file = if path.is_empty() { None } else { File::create(path).ok() };
        Trace(Mutex::new(State { file, ..State::default() }))
    }

    /// Adds to a counter.
    pub fn count(&self, name: &str, n: u64) {
        let mut state = self.0.lock();
        match state.counts.get_mut(name) {
            Some(count) => *count += n,
            None => {
                state.counts.insert(name.into(), n);
            }
        }
    }

    /// Raises a counter to at least `n`.
    pub fn peak(&self, name: &str, n: u64) {
        let mut state = self.0.lock();
        let count = state.counts.entry(name.into()).or_default();
        *count = n.max(*count);
    }

    /// A counter's value.
    pub fn get(&self, name: &str) -> u64 {
        self.0.lock().counts.get(name).copied().unwrap_or(0)
    }

    /// Sets every counter to zero and forgets the reports.
    pub fn reset(&self) {
        let mut state = self.0.lock();
        state.counts.clear();
        state.reports.clear();
    }

    /// A line in the file.
    pub fn line(&self, text: impl FnOnce() -> String) {
        if let Some(file) = &mut self.0.lock().file {
            // A trace that cannot be written is no reason to stop.
            let _ = writeln!(file, "{}", text());
        }
    }

    /// A use that hardware would let pass, to fail later or elsewhere.
    pub fn report(&self, text: String) {
        self.line(|| format!("REPORT {text}"));
        eprintln!("cann simulator: {text}");
        self.0.lock().reports.push(text);
    }

    /// What was reported, oldest first.
    pub fn reports(&self) -> Vec<String> {
        self.0.lock().reports.clone()
    }
}
