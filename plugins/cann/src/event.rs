//! Synchronisation points. The newer kind of event is taken where the runtime has it: it can be recorded again at any
//! time, and takes a hardware number only while it is recorded.

use crate::runtime::{Runtime, acl};
use crate::sys::*;
use llmrt_plugin::{Event, Result, Status};
use std::sync::Arc;
use std::time::Duration;

/// An event of a card.
pub struct CardEvent {
    runtime: Arc<Runtime>,
    device: i32,
    raw: aclrtEvent,
}

// SAFETY: a handle that every thread may use after entering the card.
unsafe impl Send for CardEvent {}
// SAFETY: as above.
unsafe impl Sync for CardEvent {}

impl CardEvent {
    /// An event never recorded.
    pub fn new(runtime: &Arc<Runtime>, device: i32) -> Result<CardEvent> {
        runtime.enter(device)?;
        let (mut raw, flags) = (std::ptr::null_mut(), ACL_EVENT_SYNC as u32);
        // SAFETY: the output is ours.
        unsafe {
            acl!(runtime, aclrtCreateEventExWithFlag(&mut raw, flags))
                .or_else(|_| acl!(runtime, aclrtCreateEventWithFlag(&mut raw, flags)))?;
        }
        Ok(CardEvent { runtime: runtime.clone(), device, raw })
    }

    /// For calls of the runtime; valid as long as this event.
    pub fn as_raw(&self) -> aclrtEvent {
        self.raw
    }
}

impl Event for CardEvent {
    fn query(&self) -> Result<bool> {
        self.runtime.enter(self.device)?;
        let mut status = 0;
        // SAFETY: a live event; the output is ours.
        unsafe { acl!(self.runtime, aclrtQueryEventStatus(self.raw, &mut status))? };
        Ok(status == ACL_EVENT_RECORDED_STATUS_COMPLETE)
    }

    fn wait(&self, timeout: Duration) -> Result<bool> {
        self.runtime.enter(self.device)?;
        // 0 is refused by the runtime.
        let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX).max(1);
        // SAFETY: a live event.
        match unsafe { acl!(self.runtime, aclrtSynchronizeEventWithTimeout(self.raw, ms)) } {
            Ok(()) => Ok(true),
            Err(e) if e.status == Status::NotReady => Ok(false),
            Err(e) => Err(e),
        }
    }
}

impl Drop for CardEvent {
    fn drop(&mut self) {
        if self.runtime.enter(self.device).is_ok() {
            // SAFETY: a live event; the host keeps it as long as a stream uses it.
            let _ = unsafe { acl!(self.runtime, aclrtDestroyEvent(self.raw)) };
        }
    }
}
