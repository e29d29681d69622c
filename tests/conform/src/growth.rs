//! Finds leaks: work is repeated in rounds, and what grows round after round, however long the rounds get, never stops.
//!
//! What is allocated once, late or for keeps (caches, arenas, threads) makes some rounds grow and then no more, and no
//! faster in longer ones. So rounds without growth clear the work, a suspicion is looked into with longer rounds, and a
//! leak of a few bytes per repetition is still found.
//!
//! One round without growth is not enough: memory that is given back once (a thread's stack, a cache) can be as much as
//! a round's leak, and that round alone would hide it. What was given back is gone, so the next rounds grow again, and
//! the second round without growth clears. The two are half as long as one would be, so clean work takes no more time.
//!
//! Memory can also be given back bit by bit: glibc keeps freed blocks for each thread and counts them as allocated. Where
//! one thread takes blocks from its store and another, whose store is full, frees them, allocated memory shrinks for a
//! hundred repetitions and more, by as much as a small leak adds. The process in which cases run is therefore started
//! without such stores ([`count_exactly`]).

use crate::outcome::{Verdict, wrong};
use crate::session::resident_bytes;
use llmrt_abi::types as c;
use llmrt_host::{Device, heap};
use std::process::Command;
use std::sync::Arc;

/// Rounds that are compared.
const ROUNDS: usize = 7;
/// So many of them without growth clear a meter.
const CLEARING: usize = 2;
/// How many times longer the rounds get while the suspicion lasts.
const LENGTHS: [u64; 3] = [1, 8, 32];
/// Bytes a repetition that a round may take without being suspect, on average.
const SLACK: u64 = 8;
/// Resident memory comes in pages, and not only for what the work does.
const PAGES: u64 = 32 << 10;
/// Growth over as many usual rounds that needs no further proof, of this process, and where other processes count, too.
const CLEAR: u64 = 8 << 20;
const CLEAR_OF_ALL: u64 = 1 << 30;

/// What is looked at.
struct Meter {
    name: &'static str,
    read: Box<dyn Fn() -> Option<u64>>,
    /// Growth that a round of any length may have.
    most: u64,
    /// Whether it counts what other processes take, too, such as the workers that run other cases.
    is_shared: bool,
    /// Bytes in use before the first round and after each. Has its memory from the start, which the meter sees too.
    readings: Vec<u64>,
}

/// Fails if memory of this process or of the device is used up by repeating `work`, at least `n` times.
pub fn none(device: &Arc<Device>, n: u64, what: &str, mut work: impl FnMut() -> Verdict) -> Verdict {
    (0..n / 2 + 8).try_for_each(|_| work())?;
    search(meters(device), n / CLEARING as u64, what, &mut work)
}

/// The same for these meters, with `n` repetitions a round at first.
fn search(mut suspects: Vec<Meter>, n: u64, what: &str, work: &mut dyn FnMut() -> Verdict) -> Verdict {
    for times in LENGTHS {
        let n = n.max(1) * times;
        watch(&mut suspects, n, work)?;
        let Some(meter) = suspects.first() else { return Ok(()) };
        let grown = usual_growth(&meter.readings);
        let clear = if meter.is_shared { CLEAR_OF_ALL } else { CLEAR };
        let is_clear = grown.saturating_mul(ROUNDS as u64) > clear;
        if is_clear || times == LENGTHS[LENGTHS.len() - 1] {
            let n_grown = ROUNDS - n_without_growth(&meter.readings, meter.allowed(n));
            return wrong(format!(
                "leak: {} grew in {n_grown} of {ROUNDS} rounds, usually by {grown} bytes in {n} {what}, {} each",
                meter.name,
                grown / n
            ));
        }
    }
    Ok(())
}

fn meters(device: &Arc<Device>) -> Vec<Meter> {
    let mut meters = vec![
        Meter::new("allocated memory of this process", (0, false), heap::bytes_in_use),
        Meter::new("memory of this process", (PAGES, false), resident_bytes),
    ];
    if device.info().kind != c::DEVICE_CPU {
        let device = device.clone();
        let used = move || device.memory().ok().map(|(free, total)| total.saturating_sub(free));
        meters.push(Meter::new("memory of the device", (0, true), used));
    }
    meters
}

/// Keeps the meters that rounds of `n` do not clear.
fn watch(suspects: &mut Vec<Meter>, n: u64, work: &mut dyn FnMut() -> Verdict) -> Verdict {
    suspects.iter_mut().for_each(|meter| meter.readings.clear());
    suspects.retain_mut(Meter::note);
    for _ in 0..ROUNDS {
        if suspects.is_empty() {
            break;
        }
        (0..n).try_for_each(|_| work())?;
        suspects.retain_mut(|meter| {
            meter.note() && n_without_growth(&meter.readings, meter.allowed(n)) < CLEARING
        });
    }
    Ok(())
}

impl Meter {
    fn new(
        name: &'static str,
        (most, is_shared): (u64, bool),
        read: impl Fn() -> Option<u64> + 'static,
    ) -> Meter {
        Meter { name, read: Box::new(read), most, is_shared, readings: Vec::with_capacity(ROUNDS + 1) }
    }

    /// Reads it; false if it is unknown.
    fn note(&mut self) -> bool {
        let now = (self.read)();
        self.readings.extend(now);
        now.is_some()
    }

    /// Bytes that a round of `n` may take without being suspect.
    fn allowed(&self, n: u64) -> u64 {
        self.most.max(n * SLACK)
    }
}

/// How many rounds took no more than `allowed` bytes.
fn n_without_growth(readings: &[u64], allowed: u64) -> usize {
    readings.windows(2).filter(|pair| pair[1] <= pair[0].saturating_add(allowed)).count()
}

/// Bytes that a round took: the median, which what happens once does not move.
fn usual_growth(readings: &[u64]) -> u64 {
    let mut growth: Vec<u64> = readings.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).collect();
    growth.sort_unstable();
    growth.get(growth.len() / 2).copied().unwrap_or(0)
}

/// Has glibc keep no freed blocks for each thread of that process, so that what it calls allocated is in use. Other C
/// libraries ignore it.
pub fn count_exactly(process: &mut Command) -> &mut Command {
    let mut settings = std::env::var_os("GLIBC_TUNABLES").unwrap_or_default();
    if !settings.is_empty() {
        settings.push(":");
    }
    settings.push("glibc.malloc.tcache_count=0");
    process.env("GLIBC_TUNABLES", settings)
}

#[cfg(test)]
mod tests;
