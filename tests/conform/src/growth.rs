//! Finds leaks: work is repeated in rounds, and whatever grows in every round, however long the rounds get, never stops.
//!
//! What is allocated once, late or for keeps (caches of the C library's allocator, arenas, threads) grows in some rounds
//! and not in all, and no faster in longer ones. So one round without growth clears the work, a suspicion is looked into
//! with longer rounds, and a leak of a few bytes per repetition is still found.

use crate::outcome::{Verdict, wrong};
use crate::session::resident_bytes;
use llmrt_abi::types as c;
use llmrt_host::{Device, heap};
use std::sync::Arc;

/// Rounds that are compared.
const ROUNDS: usize = 6;
/// How many times longer the rounds get while the suspicion lasts.
const LENGTHS: [u64; 3] = [1, 4, 16];
/// Bytes a repetition that a round may take without being suspect, on average.
const SLACK: u64 = 8;
/// Resident memory comes in pages, and not only for what the work does.
const PAGES: u64 = 64 << 10;
/// Growth over all rounds that needs no further proof.
const CLEAR: u64 = 8 << 20;

/// What is looked at.
struct Meter {
    name: &'static str,
    read: Box<dyn Fn() -> Option<u64>>,
    /// Growth that a round of any length may have.
    most: u64,
}

/// Fails if memory of this process or of the device is used up by repeating `work`, `n` times a round at first.
pub fn none(device: &Arc<Device>, n: u64, what: &str, mut work: impl FnMut() -> Verdict) -> Verdict {
    (0..n / 2 + 8).try_for_each(|_| work())?;
    let mut suspects = meters(device);
    for times in LENGTHS {
        let n = n * times;
        let first = read(&suspects);
        let Some((meter, grown)) = grows_always(&mut suspects, n, &first, &mut work)? else { return Ok(()) };
        if grown > CLEAR || times == LENGTHS[LENGTHS.len() - 1] {
            let n_done = n * ROUNDS as u64;
            return wrong(format!(
                "leak: {meter} grew by {grown} bytes in {n_done} {what}, {} each, in every one of {ROUNDS} rounds",
                grown / n_done.max(1)
            ));
        }
    }
    Ok(())
}

fn meters(device: &Arc<Device>) -> Vec<Meter> {
    let (heap, pages) = ("allocated memory of this process", "memory of this process");
    let mut meters = vec![
        Meter { name: heap, read: Box::new(heap::bytes_in_use), most: 0 },
        Meter { name: pages, read: Box::new(resident_bytes), most: PAGES },
    ];
    if device.info().kind != c::DEVICE_CPU {
        let device = device.clone();
        let used = move || device.memory().ok().map(|(free, total)| total.saturating_sub(free));
        meters.push(Meter { name: "memory of the device", read: Box::new(used), most: 0 });
    }
    meters
}

fn read(meters: &[Meter]) -> Vec<Option<u64>> {
    meters.iter().map(|meter| (meter.read)()).collect()
}

/// Keeps the meters that grow in every round of `n`; the first of them and its growth, if there is one.
fn grows_always(
    suspects: &mut Vec<Meter>,
    n: u64,
    first: &[Option<u64>],
    work: &mut impl FnMut() -> Verdict,
) -> Verdict<Option<(&'static str, u64)>> {
    let (mut start, mut before) = (first.to_vec(), first.to_vec());
    for _ in 0..ROUNDS {
        (0..n).try_for_each(|_| work())?;
        let now = read(suspects);
        let grew = |i: usize, meter: &Meter| matches!((before[i], now[i]), (Some(a), Some(b)) if b > a + meter.most.max(n * SLACK));
        let kept: Vec<bool> = suspects.iter().enumerate().map(|(i, meter)| grew(i, meter)).collect();
        keep(suspects, &kept);
        keep(&mut start, &kept);
        before = now;
        keep(&mut before, &kept);
        if suspects.is_empty() {
            return Ok(None);
        }
    }
    Ok(Some((suspects[0].name, before[0].unwrap_or(0).saturating_sub(start[0].unwrap_or(0)))))
}

/// Keeps those that are marked.
fn keep<T>(items: &mut Vec<T>, kept: &[bool]) {
    let mut marks = kept.iter();
    items.retain(|_| *marks.next().unwrap_or(&false));
}
