//! Finds leaks: work is repeated in rounds, and whatever grows in every round never stops.
//!
//! What is allocated once, late or for keeps (caches, arenas of the C library, threads) grows in some rounds and not in
//! all. So one round without growth clears the work, and a leak of a few bytes per repetition is still found.

use crate::outcome::{Verdict, insist};
use crate::session::resident_bytes;
use llmrt_abi::types as c;
use llmrt_host::{Device, heap};
use std::sync::Arc;

/// Rounds that are compared.
const ROUNDS: usize = 6;
/// Bytes a repetition that a round may take without being suspect, on average.
const SLACK: u64 = 4;
/// Resident memory comes in pages, and not only for what the work does.
const PAGES: u64 = 64 << 10;

/// What is looked at.
struct Meter {
    name: &'static str,
    read: Box<dyn Fn() -> Option<u64>>,
    /// Growth that a round may have.
    most: u64,
}

/// Fails if memory of this process or of the device is used up by repeating `work`, `n` times a round.
pub fn none(device: &Arc<Device>, n: u64, what: &str, mut work: impl FnMut() -> Verdict) -> Verdict {
    let mut meters = vec![
        Meter {
            name: "allocated memory of this process",
            read: Box::new(heap::bytes_in_use),
            most: n * SLACK,
        },
        Meter { name: "memory of this process", read: Box::new(resident_bytes), most: PAGES },
    ];
    if device.info().kind != c::DEVICE_CPU {
        let device = device.clone();
        let used = move || device.memory().ok().map(|(free, total)| total.saturating_sub(free));
        meters.push(Meter { name: "memory of the device", read: Box::new(used), most: n * SLACK });
    }
    (0..n / 2 + 8).try_for_each(|_| work())?;
    let read = |meters: &[Meter]| meters.iter().map(|meter| (meter.read)()).collect::<Vec<_>>();
    let first = read(&meters);
    let (mut before, mut suspects) = (first.clone(), vec![true; meters.len()]);
    let mut n_rounds = 0;
    while n_rounds < ROUNDS && suspects.contains(&true) {
        (0..n).try_for_each(|_| work())?;
        let now = read(&meters);
        for (i, meter) in meters.iter().enumerate() {
            suspects[i] &= matches!((before[i], now[i]), (Some(a), Some(b)) if b > a + meter.most);
        }
        (before, n_rounds) = (now, n_rounds + 1);
    }
    let leak = suspects.iter().position(|&s| s);
    insist(leak.is_none(), || {
        let i = leak.unwrap_or(0);
        let grown = before[i].unwrap_or(0).saturating_sub(first[i].unwrap_or(0));
        let times = n * ROUNDS as u64;
        let each = grown / times.max(1);
        format!(
            "leak: {} grew by {grown} bytes in {times} {what}, {each} each, in every one of {ROUNDS} rounds",
            meters[i].name
        )
    })
}
