//! L1: what is freed is free, what is computed costs no memory that stays, and `memory()` counts it.

use crate::catalogue::Fixed;
use crate::growth;
use crate::outcome::{Verdict, insist, lacking};
use crate::session::Session;
use crate::work::Chain;
use llmrt_abi::types as c;
use llmrt_host::Device;
use std::sync::Arc;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("memory() counts what is allocated", memory_counts),
    ("freed buffers are free: memory()", memory_returns),
    ("freed buffers are free: this process", buffers_leak),
    ("freed streams are free", streams_leak),
    ("freed events are free", events_leak),
    ("computing over and over takes no memory", computing_leaks),
    ("plans that are gone are free", plans_leak),
];

/// Free bytes of a device whose memory is its own.
fn free(device: &Arc<Device>) -> Verdict<u64> {
    if device.info().kind == c::DEVICE_CPU {
        return lacking("free memory of the host changes by itself");
    }
    let (free, total) = device.memory()?;
    insist(free <= total, || format!("{free} bytes free of {total}"))?;
    Ok(free)
}

/// Other processes use the device too, so an answer is wrong only if it is wrong every time: each time `round` names what it
/// found, or nothing if that is right.
fn once_of_five(mut round: impl FnMut() -> Verdict<Option<String>>) -> Verdict {
    let mut found = String::new();
    for _ in 0..5 {
        match round()? {
            None => return Ok(()),
            Some(wrong) => found = wrong,
        }
    }
    insist(false, || found)
}

fn memory_counts(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let before = free(&device)?;
    let max = device.info().buffer_types[0].max_size;
    let size = (before / 8).min(64 << 20).min(if max == 0 { u64::MAX } else { max });
    if size < 4096 {
        return lacking(format!("the device has {before} bytes free"));
    }
    once_of_five(|| {
        let before = free(&device)?;
        let buffer = device.alloc(0, size, c::USAGE_ANY)?;
        buffer.fill(0, size, 1)?;
        let during = free(&device)?;
        let found = || {
            let found = format!("{before} bytes were free, {during} with a buffer of {size} bytes");
            format!("memory() does not count what is allocated: {found}")
        };
        Ok((during + size / 2 > before).then(found))
    })
}

fn memory_returns(session: &mut Session) -> Verdict {
    const N: u64 = 64;
    let device = session.device()?;
    once_of_five(|| {
        let before = free(&device)?;
        let size = (before / 4 / N).clamp(1, 4 << 20);
        for _ in 0..N {
            device.alloc(0, size, c::USAGE_ANY)?.fill(0, size, 1)?;
        }
        let after = free(&device)?;
        let found = || {
            format!("{before} bytes were free; after {N} buffers of {size} bytes came and went, {after} are")
        };
        Ok((after + N * size / 2 < before).then(found))
    })
}

fn buffers_leak(session: &mut Session) -> Verdict {
    let device = session.device()?;
    growth::none(&device, 1000, "buffers of 4 KiB", || {
        Ok(device.alloc(0, 4096, c::USAGE_ANY)?.fill(0, 4096, 1)?)
    })?;
    growth::none(&device, 16, "buffers of 1 MiB", || {
        Ok(device.alloc(0, 1 << 20, c::USAGE_ANY)?.fill(0, 1 << 20, 1)?)
    })
}

fn streams_leak(session: &mut Session) -> Verdict {
    let device = session.device()?;
    growth::none(&device, 100, "streams", || Ok(device.stream(0)?.synchronize()?))
}

fn events_leak(session: &mut Session) -> Verdict {
    let device = session.device()?;
    if !device.event()?.is_native() {
        return lacking("the device has no events");
    }
    growth::none(&device, 2000, "events", || Ok(device.event().map(drop)?))?;
    let (event, stream) = (device.event()?, device.stream(0)?);
    growth::none(&device, 1000, "records of one event", || {
        stream.record(&event)?;
        stream.wait(&event)?;
        Ok(stream.synchronize()?)
    })
}

fn computing_leaks(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, 1024, 2)?, device.stream(0)?);
    chain.start(1)?;
    growth::none(&device, 500, "computations", || {
        stream.compute(&chain.graph)?;
        Ok(stream.synchronize()?)
    })?;
    // Without waiting in between.
    growth::none(&device, 20, "times 25 computations", || {
        (0..25).try_for_each(|_| stream.compute(&chain.graph))?;
        Ok(stream.synchronize()?)
    })
}

fn plans_leak(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, 1024, 2)?, device.stream(0)?);
    chain.start(1)?;
    growth::none(&device, 200, "plans", || {
        let plan = stream.plan(chain.graph.clone())?;
        stream.run(&plan, 1)?;
        Ok(stream.synchronize()?)
    })
}
