//! The streams of a device that live: memory goes only when none of them may still use it.
//!
//! Waiting for the whole context would do, but the driver refuses that while any stream of the context is captured, and
//! ends the capture, be it ours on another thread or another library's.

use crate::driver::{CudaDriver, cu};
use crate::sys::*;
use llmrt_plugin::Result;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};

/// Streams of a device, those that are gone left out.
#[derive(Default)]
pub struct LiveStreams(Mutex<Vec<Weak<LiveStream>>>);

/// A stream of the driver's until it is destroyed. The lock's holder captures it, waits for it or ends it.
pub struct LiveStream(Mutex<Option<Handle>>);

/// The driver's handle.
pub struct Handle(CUstream);

// SAFETY: a handle that every thread may use after entering the device.
unsafe impl Send for Handle {}

impl LiveStreams {
    /// Remembers a stream.
    pub fn add(&self, raw: CUstream) -> Arc<LiveStream> {
        let stream = Arc::new(LiveStream(Mutex::new(Some(Handle(raw)))));
        let mut all = self.0.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&stream));
        stream
    }

    /// Waits for all that they hold; those that are captured right now are waited for when that is over.
    pub fn wait(&self, driver: &CudaDriver) -> Result<()> {
        let all = self.0.lock().clone();
        all.iter().filter_map(Weak::upgrade).try_for_each(|stream| match &*stream.lock() {
            // SAFETY: a stream that is neither destroyed nor captured while it is locked, of the entered device.
            Some(handle) => unsafe { cu!(driver, cuStreamSynchronize(handle.0)) },
            None => Ok(()),
        })
    }
}

impl LiveStream {
    /// No other thread waits for it while the guard lives.
    pub fn lock(&self) -> MutexGuard<'_, Option<Handle>> {
        self.0.lock()
    }
}
