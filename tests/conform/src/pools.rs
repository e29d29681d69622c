//! L1, L4, L5: scratch memory that the host manages for streams goes back, belongs to one stream meanwhile, and may run out.
//!
//! Each case is there for both policies. A device that offers no memory for pools manages its own, and is skipped.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, lacking};
use crate::products::Products;
use crate::session::Session;
use llmrt_abi::{Scope, Status};
use llmrt_host::{Device, Error, PoolKind, PoolStats, Stream};
use std::sync::Arc;

/// The cases of L1.
pub const MEMORY: &[Fixed] = &[
    ("legacy: scratch memory goes back after each computation", |s| goes_back(s, PoolKind::Legacy)),
    ("vmm: scratch memory goes back after each computation", |s| goes_back(s, PoolKind::Vmm)),
    ("legacy: streams leave each other's scratch memory alone", |s| side_by_side(s, PoolKind::Legacy)),
    ("vmm: streams leave each other's scratch memory alone", |s| side_by_side(s, PoolKind::Vmm)),
];

/// The cases of L4.
pub const PLANS: &[Fixed] = &[
    ("legacy: replays of a plan take no scratch memory", |s| replays(s, PoolKind::Legacy)),
    ("vmm: replays of a plan take no scratch memory", |s| replays(s, PoolKind::Vmm)),
];

/// The cases of L5.
pub const FAULTS: &[Fixed] = &[
    ("legacy: memory runs out at the n-th call of the pool", |s| runs_out(s, PoolKind::Legacy)),
    ("vmm: memory runs out at the n-th call of the pool", |s| runs_out(s, PoolKind::Vmm)),
];

/// Calls of the pool that are made to fail, one after the other.
const MAX_FAILURES: u64 = 12;

/// A stream with a pool of this kind.
fn stream(device: &Arc<Device>, kind: PoolKind) -> Verdict<Stream> {
    if device.pool()?.is_none() {
        return lacking("the device offers no memory for pools (llmrt.devmem)");
    }
    let auto = device.stream_with_pool(0, PoolKind::Auto)?;
    if kind == PoolKind::Vmm && stats(&auto)?.kind != PoolKind::Vmm {
        return lacking("the device offers memory for pools without virtual addresses");
    }
    Ok(device.stream_with_pool(0, kind)?)
}

fn stats(stream: &Stream) -> Verdict<PoolStats> {
    stream.pool_stats().map_or_else(|| lacking("the stream has no pool"), Ok)
}

/// The device, a stream, and products that were run once: to find whether they take scratch memory.
fn prepare(session: &mut Session, kind: PoolKind) -> Verdict<(Arc<Device>, Stream, Products)> {
    let device = session.device()?;
    let (stream, work) = (stream(&device, kind)?, Products::new(&device)?);
    work.start(1)?;
    stream.compute(&work.graph)?;
    stream.synchronize()?;
    work.expect(1, 1, "the first run")?;
    all_back(&stream, "the first run")?;
    if stats(&stream)?.allocs == 0 {
        return lacking("its matrix products take no scratch memory");
    }
    Ok((device, stream, work))
}

fn all_back(stream: &Stream, after: &str) -> Verdict {
    let in_use = stats(stream)?.in_use;
    insist(in_use == 0, || format!("leak: {in_use} bytes of scratch memory are in use after {after}"))
}

fn goes_back(session: &mut Session, kind: PoolKind) -> Verdict {
    let (_, stream, work) = prepare(session, kind)?;
    work.start(2)?;
    let before = stats(&stream)?;
    for n in 1..=200 {
        stream.compute(&work.graph)?;
        all_back(&stream, &format!("{n} computations"))?;
        if n % 40 == 0 {
            stream.synchronize()?;
            work.expect(2, n, &format!("{n} runs"))?;
        }
    }
    let now = stats(&stream)?;
    insist(now.peak == before.peak, || {
        format!("one run takes {} bytes of scratch memory, one of 200 equal ones {}", before.peak, now.peak)
    })
}

fn side_by_side(session: &mut Session, kind: PoolKind) -> Verdict {
    let (device, first, work) = prepare(session, kind)?;
    let (second, other) = (stream(&device, kind)?, Products::new(&device)?);
    for round in 0..3 {
        work.start(round)?;
        other.start(round + 50)?;
        const RUNS: usize = 30;
        for _ in 0..RUNS {
            first.compute(&work.graph)?;
            second.compute(&other.graph)?;
        }
        // The second one first: whichever waits for the other is found.
        second.synchronize()?;
        other.expect(round + 50, RUNS, "on a second stream")?;
        first.synchronize()?;
        work.expect(round, RUNS, "beside a second stream")?;
    }
    Ok(())
}

fn replays(session: &mut Session, kind: PoolKind) -> Verdict {
    let (device, stream, work) = prepare(session, kind)?;
    if !stream.has_plans() {
        return lacking("the device has no plans of its own");
    }
    work.start(3)?;
    let plan = stream.plan(work.graph.clone())?;
    stream.run(&plan, 1)?;
    let before = stats(&stream)?;
    for _ in 1..50 {
        stream.run(&plan, 1)?;
    }
    stream.synchronize()?;
    work.expect(3, 50, "50 runs of a plan")?;
    let now = stats(&stream)?;
    insist(now.allocs == before.allocs, || {
        format!("49 replays of a plan called the pool {} times", now.allocs - before.allocs)
    })?;

    // What a plan was given is handed out again, and must serve both.
    let other = Products::new(&device)?;
    work.start(4)?;
    other.start(5)?;
    for _ in 0..20 {
        stream.run(&plan, 1)?;
        stream.compute(&other.graph)?;
    }
    stream.synchronize()?;
    work.expect(4, 20, "a plan between computations")?;
    other.expect(5, 20, "computations between runs of a plan")?;
    drop(plan);
    all_back(&stream, "the end of the plan")
}

fn runs_out(session: &mut Session, kind: PoolKind) -> Verdict {
    let (device, stream, work) = prepare(session, kind)?;
    for n in 1..=stats(&stream)?.allocs.min(MAX_FAILURES) {
        let at = |what: &str| format!("{what} with no memory at call {n} of the pool");
        work.start(6)?;
        stream.fail_scratch_at(n);
        let outcome = stream.compute(&work.graph).and_then(|()| stream.synchronize());
        goes_on(&device, &stream, &work, outcome, &at("compute"))?;

        stream.fail_scratch_at(n);
        let outcome = stream.plan(work.graph.clone()).and_then(|plan| {
            stream.run(&plan, 1)?;
            stream.synchronize()
        });
        goes_on(&device, &stream, &work, outcome, &at("a plan"))?;
    }
    Ok(())
}

/// Fails unless it ran out of memory in the right words, and stream, device and graph are as good as before. A device
/// that finds a way without the memory may.
fn goes_on(
    device: &Arc<Device>,
    stream: &Stream,
    work: &Products,
    outcome: Result<(), Error>,
    what: &str,
) -> Verdict {
    stream.fail_scratch_at(0);
    if let Err(e) = outcome {
        insist(e.status() == Status::OomDevice, || format!("{what}: expected OOM_DEVICE, got: {e}"))?;
        insist(e.scope() == Scope::Call, || format!("{what}: it broke more than the call: {e}"))?;
        let requested = e.call().map_or(0, |call| call.bytes_requested);
        insist(requested > 0, || format!("{what}: the error lacks the number of bytes requested: {e}"))?;
    }
    all_back(stream, what)?;
    let after = |t: crate::outcome::Trouble| t.during(&format!("after {what}"));
    let again = || -> Verdict {
        stream.synchronize()?;
        work.start(7)?;
        stream.compute(&work.graph)?;
        stream.synchronize()?;
        work.expect(7, 1, "the same graph on the same stream")?;
        let other = device.stream(0)?;
        other.compute(&work.graph)?;
        other.synchronize()?;
        work.expect(7, 2, "the same graph on another stream")
    };
    again().map_err(after)
}
