//! L2: events signal when work is done, to other streams, threads and devices.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, lacking};
use crate::session::Session;
use crate::work::{Chain, near};
use llmrt_host::{Device, Event};
use std::sync::Arc;
use std::time::Duration;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("an event that was never recorded is reached", fresh),
    ("work before a reached event is done", reached_means_done),
    ("a stream that waits for an event sees what came before it", across_streams),
    ("an event is recorded again and again", again),
    ("an event is waited for on other threads", on_other_threads),
    ("waiting with a time limit returns", limited_wait),
    ("an event goes before its stream and after it", order_of_ends),
    ("a device that waits for another one's event sees its work", across_devices),
];

const N: usize = 1 << 16;
const LONG: Duration = Duration::from_millis(25);

/// An event of the device's own.
fn event(device: &Arc<Device>) -> Verdict<Event> {
    let event = device.event()?;
    if event.is_native() { Ok(event) } else { lacking("the device has no events") }
}

fn wait(event: &Event) -> Verdict {
    let reached = event.wait(Duration::from_secs(30))?;
    insist(reached, || "an event was not reached within 30 s".into())?;
    insist(event.query()?, || "an event was reached, and query returns that it was not".into())
}

fn fresh(session: &mut Session) -> Verdict {
    let event = event(&session.device()?)?;
    insist(event.query()?, || "query returns NOT_READY".into())?;
    insist(event.wait(Duration::ZERO)?, || "wait returns NOT_READY".into())
}

fn reached_means_done(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let event = event(&device)?;
    let (chain, stream) = (Chain::new(&device, N, 64)?, device.stream(0)?);
    for round in 0..3 {
        let first = chain.start(round)?;
        let n = chain.keep_busy(&stream, LONG)?;
        stream.record(&event)?;
        wait(&event)?;
        chain.expect(&chain.b(), &chain.after(&first, n), "event ignored: read after it was reached")?;
        stream.synchronize()?;
    }
    Ok(())
}

fn across_streams(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let event = event(&device)?;
    let (chain, one, two) = (Chain::new(&device, N, 64)?, device.stream(0)?, device.stream(0)?);
    for round in 0..3 {
        let first = chain.start(round)?;
        let n = chain.keep_busy(&one, LONG)?;
        one.record(&event)?;
        two.wait(&event)?;
        two.compute(&chain.reader)?;
        two.synchronize()?;
        let b = chain.after(&first, n);
        let what = "event ignored: computed on another stream that waited for it";
        chain.expect(&chain.out(), &chain.read_of(&b), what)?;
        one.synchronize()?;
    }
    Ok(())
}

fn again(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let event = event(&device)?;
    let (chain, stream) = (Chain::new(&device, 4096, 4)?, device.stream(0)?);
    let first = chain.start(1)?;
    for i in 1..=100 {
        stream.compute(&chain.graph)?;
        stream.record(&event)?;
        if i % 10 == 0 {
            wait(&event)?;
            chain.expect(&chain.b(), &chain.after(&first, i), "event ignored: recorded again")?;
        }
    }
    Ok(stream.synchronize()?)
}

fn on_other_threads(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let event = event(&device)?;
    let (chain, stream) = (Chain::new(&device, N, 64)?, device.stream(0)?);
    let first = chain.start(1)?;
    let n = chain.keep_busy(&stream, LONG)?;
    stream.record(&event)?;
    crate::l1_sharing::on_threads(4, &|_| wait(&event))?;
    chain.expect(&chain.b(), &chain.after(&first, n), "event ignored: waited for on four threads")?;
    Ok(stream.synchronize()?)
}

fn limited_wait(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let event = event(&device)?;
    let (chain, stream) = (Chain::new(&device, N, 64)?, device.stream(0)?);
    chain.start(1)?;
    chain.keep_busy(&stream, LONG)?;
    stream.record(&event)?;
    // Either answer may be right; it must come.
    event.wait(Duration::from_nanos(1))?;
    event.query()?;
    wait(&event)?;
    Ok(stream.synchronize()?)
}

fn order_of_ends(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let chain = Chain::new(&device, 4096, 4)?;
    for events_first in [false, true] {
        chain.start(1)?;
        let (event, stream) = (event(&device)?, device.stream(0)?);
        stream.compute(&chain.graph)?;
        stream.record(&event)?;
        if events_first {
            drop(event);
            stream.synchronize()?;
        } else {
            drop(stream);
            insist(event.query()?, || "its stream ended, and the event is not reached".into())?;
        }
    }
    Ok(())
}

fn across_devices(session: &mut Session) -> Verdict {
    let (device, others) = (session.device()?, session.other_devices()?);
    if others.is_empty() {
        return lacking("the plugin has one device that can be used");
    }
    others.iter().try_for_each(|other| {
        waits_for_another(&device, other).map_err(|t| t.during(&format!("{} waits", other.name())))
    })
}

/// A stream of `other` waits for an event of `device`, and then looks at what came before it in every way it can.
fn waits_for_another(device: &Arc<Device>, other: &Arc<Device>) -> Verdict {
    let event = event(device)?;
    let (from, to) = (Chain::new(device, N, 64)?, Chain::new(other, N, 2)?);
    let (one, two) = (device.stream(0)?, other.stream(0)?);
    // Busy, and the event recorded and waited for; returns what `b` of `from` is then.
    let ordered = |round: u64| -> Verdict<Vec<f32>> {
        let first = from.start(round)?;
        to.start(round + 1)?;
        let n = from.keep_busy(&one, LONG)?;
        one.record(&event)?;
        two.wait(&event)?;
        Ok(from.after(&first, n))
    };

    let b = ordered(1)?;
    two.synchronize()?;
    from.expect(&from.b(), &b, "event ignored: another device waited for it and is done")?;
    one.synchronize()?;

    let b = ordered(3)?;
    two.copy_async(&one, (&to.buffer, &to.b()), (&from.buffer, &from.b()))?;
    two.compute(&to.reader)?;
    two.synchronize()?;
    let what = "event ignored: copied to and computed on another device that waited for it";
    to.expect(&to.out(), &to.read_of(&b), what)?;
    one.synchronize()?;

    if other.accepts(device, 0) {
        let b = ordered(5)?;
        let n = b.len() as u64 * 4;
        let read = two.get_async(&from.buffer, &from.b(), 0, n)?;
        near(&two.take(read)?, &b, "event ignored: read in place by another device that waited for it")?;
        one.synchronize()?;
    }
    Ok(())
}
