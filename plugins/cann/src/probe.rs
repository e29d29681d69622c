//! What this code and its simulator assume of a card and its release, tried on the card: with option `cann.probe=1`, when a
//! card is opened. Each probe is a line of the log with target `cann.probe`: "as simulated", or a warning with what differs.
//! Before them, what the machine is: versions, libraries, environment.

mod copies;
mod environment;
mod executors;
mod products;

use crate::bench::{Bench, trial};
use crate::chip::Chip;
use crate::runtime::Runtime;
use crate::stream::CardStream;
use llmrt_plugin::{Host, Level, Result};
use std::sync::Arc;

/// Where lines go, and what is probed.
pub struct Probe<'p> {
    host: Host,
    runtime: &'p Arc<Runtime>,
    device: i32,
    chip: Chip,
}

/// Runs the probes on an open card and logs what they find. The last one may leave a real card of no use until it is reset.
pub fn run(host: Host, runtime: &Arc<Runtime>, device: i32, chip: Chip) {
    let probe = Probe { host, runtime, device, chip };
    if device == 0 {
        environment::report(&probe);
    }
    match probe.stream() {
        Ok(mut stream) => {
            executors::report(&probe, &mut stream);
            products::report(&probe, &mut stream);
        }
        Err(e) => probe.line("a stream", "made", Err(e)),
    }
    copies::report(&probe);
}

impl Probe<'_> {
    fn log(&self, level: Level, text: &str) {
        self.host.log(level, "cann.probe", &format!("card {}: {text}", self.device));
    }

    /// Logs what was found of what is expected; an error is a finding, too.
    fn line(&self, what: &str, expected: &str, found: Result<String>) {
        let found = found.unwrap_or_else(|e| e.message);
        match found == expected {
            true => self.log(Level::Info, &format!("{what}: as simulated ({found})")),
            false => self.log(Level::Warn, &format!("{what}: differs: {found}, simulated as {expected}")),
        }
    }

    fn stream(&self) -> Result<CardStream> {
        CardStream::new(self.host, self.runtime, self.device, self.chip, None, 0)
    }

    /// One probe, with memory of its own.
    fn of(
        &self,
        stream: &mut CardStream,
        (what, expected): (&str, &str),
        found: impl FnOnce(&mut Bench<'_, '_>) -> Result<String>,
    ) {
        self.line(what, expected, trial(stream, found));
    }
}

/// "taken", or "refused".
fn taken<T>(result: Result<T>) -> Result<String> {
    Ok(if result.is_ok() { "taken" } else { "refused" }.into())
}
