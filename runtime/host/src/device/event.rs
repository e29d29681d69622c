//! A point in a stream that other streams and threads can wait for.

use super::watchdog::watched;
use super::{Device, call};
use crate::error::Result;
use crate::plugin::table::{self, mandatory};
use crate::validate::{inside, live};
use llmrt_abi::{Status, types as c};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A synchronisation point; re-recordable. On a device without events, recording waits for the stream instead.
#[derive(Clone)]
pub struct Event(Arc<Inner>);

struct Inner {
    device: Arc<Device>,
    /// `None` where the device has no events: then every recorded event has been reached.
    raw: Option<(*mut c::Event, c::EventVt)>,
}

// SAFETY: the ABI allows calls on events from any thread.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Event {
    pub(super) fn new(device: &Arc<Device>) -> Result<Event> {
        device.open()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: an open device; the output is ours.
        let raw = match unsafe { call!(device, device.vt, event_create(device.raw, 0, &mut raw)) } {
            Err(e) if e.is_unsupported() => None,
            Err(e) => return Err(e),
            Ok(()) if raw.is_null() => {
                return Err(device.breach("event_create", "returned OK and no event".into()));
            }
            Ok(()) => {
                // SAFETY: the plugin made this event just now; its table is read up to its `struct_size`.
                let vt = unsafe { table::read((*raw).vt) }
                    .and_then(|vt: c::EventVt| mandatory!(vt, "event", destroy, query, wait).map(|()| vt));
                let vt = vt.map_err(|e| device.breach("event_create", e))?;
                // SAFETY: as above; the handle starts with the address of its table.
                unsafe { live::born(&device.plugin, "event_create", live::Kind::Event, raw)? };
                Some((raw, vt))
            }
        };
        Ok(Event(Arc::new(Inner { device: device.clone(), raw })))
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Whether it was reached. One never recorded was.
    pub fn query(&self) -> Result<bool> {
        let Some((raw, vt)) = &self.0.raw else { return Ok(true) };
        self.0.device.alive()?;
        // SAFETY: a live event.
        reached(unsafe { call!(self.0.device, vt, query(*raw)) })
    }

    /// Waits at most this long; whether it was reached.
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        if self.0.raw.is_none() {
            return Ok(true);
        }
        self.0.device.alive()?;
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let inner = self.0.clone();
        reached(watched(&self.0.device, "event_wait", timeout, move || {
            let Some((raw, vt)) = &inner.raw else { return Ok(()) };
            // SAFETY: a live event.
            unsafe { call!(inner.device, vt, wait(*raw, ns)) }
        }))
    }

    /// Waits until it is reached, as long as the watchdog allows.
    pub(super) fn reached(&self) -> Result<()> {
        let started = Instant::now();
        while !self.wait(Duration::from_secs(1))? {
            let device = self.device();
            if let Some(limit) = device.plugin.services.watchdog.filter(|limit| started.elapsed() > *limit) {
                return Err(device.give_up("event_wait", format!("is not reached within {limit:?}")));
            }
        }
        Ok(())
    }

    /// Whether it is the plugin's own, and not a wait for the whole stream.
    pub fn is_native(&self) -> bool {
        self.0.raw.is_some()
    }

    /// The plugin's event, if the device has events.
    pub(super) fn as_ptr(&self) -> Option<*mut c::Event> {
        self.0.raw.as_ref().map(|(raw, _)| *raw)
    }
}

fn reached(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(e) if e.status() == Status::NotReady => Ok(false),
        Err(e) => Err(e),
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let (true, Some((raw, vt))) = (self.device.may_destroy(), &self.raw)
            && let Some(destroy) = vt.destroy
        {
            let _inside = inside::enter();
            live::dies(&self.device.plugin, *raw);
            // SAFETY: the last handle: streams that were given the event hold one until they are synchronised.
            unsafe { destroy(*raw) }
        }
    }
}
