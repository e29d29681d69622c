//! What this code and its simulator assume of a card and its release, tried on the card: with option `cann.probe=1`, when a
//! card is opened. Each probe is a line of the log with target `cann.probe`: "as simulated", or a warning with what differs.
//! Before them, and once per process, what the machine is: versions, libraries, environment. `cann.probe=all` adds copies
//! between cards, which may leave a card of no use until it is reset.

mod copies;
mod environment;
mod executors;
mod products;

use crate::bench::{Bench, trial};
use crate::chip::Chip;
use crate::error;
use crate::options::Probes;
use crate::runtime::Runtime;
use crate::stream::CardStream;
use llmrt_plugin::{Host, Level, Result, Scope};
use std::cell::RefCell;
use std::sync::Arc;

/// Where lines go, and what is probed.
pub struct Probe<'p> {
    host: Host,
    runtime: &'p Arc<Runtime>,
    device: i32,
    chip: Chip,
    /// The probe at which the card was lost.
    lost_at: RefCell<Option<String>>,
}

/// Runs the probes on an open card and logs what they find. After a fault that makes the card unusable, no more are tried.
pub fn run(host: Host, runtime: &Arc<Runtime>, device: i32, chip: Chip, probes: Probes) {
    let probe = Probe { host, runtime, device, chip, lost_at: RefCell::default() };
    let is_first = runtime.is_first_report();
    if is_first {
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
    if is_first && probes == Probes::All {
        copies::between_cards(&probe);
    }
    if let Some(what) = &*probe.lost_at.borrow() {
        probe.log(Level::Warn, &format!("later probes: not tried: the card faulted at \"{what}\""));
    }
}

impl Probe<'_> {
    fn log(&self, level: Level, text: &str) {
        self.host.log(level, "cann.probe", &format!("card {}: {text}", self.device));
    }

    /// Logs what was found of what is expected, unless the card was lost before. An error is a finding, too: "refused" where
    /// the vendor's code is one of a refusal, and else something that differs.
    fn line(&self, what: &str, expected: &str, found: Result<String>) {
        if self.is_lost() {
            return;
        }
        let as_simulated = match &found {
            Ok(found) if found == expected => Some(found.clone()),
            Err(e) if expected == REFUSED && error::is_code_of_refusal(e.vendor_code) => {
                Some(format!("{REFUSED}, {}", e.vendor_code))
            }
            _ => None,
        };
        if let Err(e) = &found
            && e.scope == Scope::Device
        {
            *self.lost_at.borrow_mut() = Some(what.to_string());
        }
        let found = found.unwrap_or_else(|e| e.message);
        match as_simulated {
            Some(text) => self.log(Level::Info, &format!("{what}: as simulated ({text})")),
            None => self.log(Level::Warn, &format!("{what}: differs: {found}, simulated as {expected}")),
        }
    }

    fn is_lost(&self) -> bool {
        self.lost_at.borrow().is_some()
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
        if !self.is_lost() {
            self.line(what, expected, trial(stream, found));
        }
    }
}

/// Expected of what the vendor's library or driver does not take.
const REFUSED: &str = "refused";

/// "taken", or the error.
fn taken<T>(result: Result<T>) -> Result<String> {
    result.map(|_| "taken".into())
}
