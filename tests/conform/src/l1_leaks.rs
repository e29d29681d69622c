//! L1: what is freed is free.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, lacking};
use crate::session::{Session, resident_bytes};
use llmrt_abi::types as c;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("freed buffers are free: memory()", memory_returns),
    ("freed buffers are free: this process", buffers_leak),
    ("freed streams are free", streams_leak),
    ("freed events are free", events_leak),
];

fn memory_returns(session: &mut Session) -> Verdict {
    let device = session.device()?;
    if device.info().kind == c::DEVICE_CPU {
        return lacking("free memory of the host changes by itself");
    }
    const N: u64 = 64;
    let (before, _) = device.memory()?;
    let size = (before / 4 / N).clamp(1, 4 << 20);
    for _ in 0..N {
        device.alloc(0, size, c::USAGE_ANY)?.fill(0, size, 1)?;
    }
    let (after, _) = device.memory()?;
    insist(after + N * size / 2 >= before, || {
        format!("{before} bytes were free; after {N} buffers of {size} bytes came and went, {after} are")
    })
}

/// Fails if this process grows by more than 2 MiB while `work` is repeated, after it was a tenth of that often.
fn leaks(n: usize, what: &str, mut work: impl FnMut() -> Verdict) -> Verdict {
    const MOST: u64 = 2 << 20;
    for _ in 0..n / 10 {
        work()?;
    }
    let Some(before) = resident_bytes() else {
        return lacking("the system does not say what a process uses");
    };
    for _ in 0..n {
        work()?;
    }
    let grown = resident_bytes().unwrap_or(before).saturating_sub(before);
    insist(grown <= MOST, || {
        format!("leak: this process grew by {grown} bytes while {n} {what} came and went")
    })
}

fn buffers_leak(session: &mut Session) -> Verdict {
    let device = session.device()?;
    leaks(5000, "buffers of 4 KiB", || Ok(device.alloc(0, 4096, c::USAGE_ANY)?.fill(0, 4096, 1)?))?;
    leaks(64, "buffers of 1 MiB", || Ok(device.alloc(0, 1 << 20, c::USAGE_ANY)?.fill(0, 1 << 20, 1)?))
}

fn streams_leak(session: &mut Session) -> Verdict {
    let device = session.device()?;
    leaks(800, "streams", || Ok(device.stream(0)?.synchronize()?))
}

fn events_leak(session: &mut Session) -> Verdict {
    let device = session.device()?;
    if !device.event()?.is_native() {
        return lacking("the device has no events");
    }
    leaks(40_000, "events", || Ok(device.event().map(drop)?))
}
