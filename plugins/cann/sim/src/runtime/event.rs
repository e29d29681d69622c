//! Events: marks in streams that other streams, and threads, wait for. The newer kind can be recorded again and again.

use crate::fault::{Answer, ensure, fault};
use crate::runtime::capture::{self, Graph};
use crate::runtime::context::current;
use crate::runtime::queue::Stream;
use crate::runtime::stream::resolve;
use crate::runtime::task::Task;
use crate::sys::*;
use crate::world::{World, api, put};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// An event.
pub struct Event {
    device: usize,
    /// Of the newer kind.
    ex: bool,
    flags: u32,
    record: Mutex<Record>,
    /// Records and waits that are enqueued and not done.
    n_pending: AtomicU64,
}

/// The latest record.
#[derive(Default)]
struct Record {
    at: Option<(Arc<Stream>, u64)>,
    captured: Option<(Arc<Graph>, usize)>,
    time: Arc<Mutex<Option<Instant>>>,
}

api! { cann_acl;
    fn aclrtCreateEvent(event: *mut aclrtEvent) w => {
        create(w, event, false, (ACL_EVENT_SYNC | ACL_EVENT_TIME_LINE) as u32)
    }
    fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flags: u32) w => {
        create(w, event, false, flags)
    }
    fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flags: u32) w => {
        create(w, event, true, flags)
    }
    /// Does not wait for what is enqueued, which is for the program to see to.
    fn aclrtDestroyEvent(event: aclrtEvent) w => {
        let Some(event) = w.events.remove(event as usize) else { return unknown(event) };
        let mut card = w.cards[event.device].lock();
        card.n_events = card.n_events.saturating_sub(1);
        drop(card);
        match event.n_pending.load(SeqCst) {
            0 => Ok(()),
            n => w.doubt(ACL_ERROR_RT_PARAM_INVALID, format!("an event was destroyed with {n} uses enqueued")),
        }
    }
    fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) w => {
        let (event, stream) = (get(w, event)?, resolve(w, stream)?);
        let same = event.device == stream.device;
        ensure(same, ACL_ERROR_RT_PARAM_INVALID, || {
            format!("an event of card {} in a stream of card {}", event.device, stream.device)
        })?;
        let time = Arc::new(Mutex::new(None));
        let (at, pending) = (time.clone(), event.pend());
        let mut record = event.record.lock();
        if let Some(graph) = stream.capture() {
            *record = Record { at: None, captured: Some((graph, stream.handle)), time };
            event.n_pending.fetch_sub(1, SeqCst);
            return Ok(());
        }
        let mark = Task::new("record", move |_| {
            *at.lock() = Some(Instant::now());
            pending.n_pending.fetch_sub(1, SeqCst);
            Ok(())
        });
        let place = stream.enqueue(w, mark)?;
        *record = Record { at: Some((stream, place)), captured: None, time };
        Ok(())
    }
    fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) w => {
        let (event, stream) = (get(w, event)?, resolve(w, stream)?);
        ensure(!event.ex, ACL_ERROR_RT_PARAM_INVALID, || "the newer kind of event is not reset".into())?;
        let reset = Task::new("reset", move |_| {
            *event.record.lock() = Record::default();
            Ok(())
        });
        stream.enqueue(w, reset).map(|_| ())
    }
    /// The latest record counts, as it is now. One never recorded holds nothing up.
    fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) w => {
        let (event, stream) = (get(w, event)?, resolve(w, stream)?);
        let can = event.flags & ACL_EVENT_SYNC as u32 != 0;
        ensure(can, ACL_ERROR_RT_PARAM_INVALID, || "the event was made without the flag SYNC".into())?;
        let (at, captured) = {
            let record = event.record.lock();
            (record.at.clone(), record.captured.clone())
        };
        if let Some((graph, from)) = captured {
            return graph.join(&stream, from);
        }
        let Some((from, place)) = at else { return Ok(()) };
        if capture::is_capturing(&stream) {
            return stream.spoil(w, capture::ISOLATION, "waiting for an event from outside");
        }
        let pending = event.pend();
        let wait = Task::new("wait", move |w| {
            let done = from.wait_until(w, place);
            pending.n_pending.fetch_sub(1, SeqCst);
            done
        });
        stream.enqueue(w, wait).map(|_| ())
    }
    fn aclrtQueryEventStatus(event: aclrtEvent, status: *mut aclrtEventRecordedStatus) w => {
        let event = get(w, event)?;
        event.not_captured()?;
        let at = event.record.lock().at.clone();
        let done = at.is_none_or(|(stream, place)| stream.is_done(place));
        put(status, if done { ACL_EVENT_RECORDED_STATUS_COMPLETE } else { ACL_EVENT_RECORDED_STATUS_NOT_READY })
    }
    fn aclrtSynchronizeEvent(event: aclrtEvent) w => {
        wait(w, event, Duration::from_secs(w.config.watchdog))
    }
    fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, ms: i32) w => {
        ensure(ms == -1 || ms > 0, ACL_ERROR_RT_PARAM_INVALID, || format!("{ms} ms"))?;
        wait(w, event, u64::try_from(ms).map_or(Duration::from_secs(w.config.watchdog), Duration::from_millis))
    }
    fn aclrtEventElapsedTime(ms: *mut f32, start: aclrtEvent, end: aclrtEvent) w => {
        let times = [get(w, start)?, get(w, end)?].map(|event| {
            let flag = event.flags & ACL_EVENT_TIME_LINE as u32 != 0;
            let time = *event.record.lock().time.lock();
            time.filter(|_| flag)
        });
        let [Some(start), Some(end)] = times else {
            return fault(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "no flag TIME_LINE, or not done");
        };
        ensure(start <= end, ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, || "the end was first".into())?;
        put(ms, (end - start).as_secs_f32() * 1e3)
    }
}

fn create(w: &Arc<World>, out: *mut aclrtEvent, ex: bool, flags: u32) -> Answer {
    let device = current(w)?.device;
    ensure(flags != 0 && flags < 0x80, ACL_ERROR_RT_PARAM_INVALID, || format!("flags {flags:#x}"))?;
    let limit = if w.config.events > 0 { w.config.events } else { w.chip.events };
    let mut card = w.cards[device].lock();
    let full = || format!("card {device} has {limit} events already");
    ensure(card.n_events < limit, ACL_ERROR_RT_NO_EVENT_RESOURCE, full)?;
    card.n_events += 1;
    drop(card);
    let event = Event { device, ex, flags, record: Mutex::default(), n_pending: AtomicU64::new(0) };
    put(out, w.events.insert(event) as *mut c_void)
}

/// For any thread with a context: other cards' streams wait for an event too.
fn get(w: &World, event: aclrtEvent) -> Answer<Arc<Event>> {
    current(w)?;
    w.events.get(event as usize).map_or_else(|| unknown(event), Ok)
}

fn unknown<T>(event: aclrtEvent) -> Answer<T> {
    fault(ACL_ERROR_RT_PARAM_INVALID, format!("{event:p} is no event"))
}

fn wait(w: &Arc<World>, event: aclrtEvent, timeout: Duration) -> Answer {
    let event = get(w, event)?;
    event.not_captured()?;
    w.trace.count("sync", 1);
    let Some((stream, place)) = event.record.lock().at.clone() else { return Ok(()) };
    let done = stream.reach(place, timeout);
    ensure(done, ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, || "the event did not come in time".into())
}

impl Event {
    fn pend(self: &Arc<Event>) -> Arc<Event> {
        self.n_pending.fetch_add(1, SeqCst);
        self.clone()
    }

    fn not_captured(&self) -> Answer {
        let captured = self.record.lock().captured.clone();
        let Some((graph, _)) = captured.filter(|(graph, _)| graph.is_open()) else { return Ok(()) };
        graph.invalidate();
        fault(ACL_ERROR_RT_EVENT_CAPTURED, "waiting for an event that was recorded in a capture")
    }
}
