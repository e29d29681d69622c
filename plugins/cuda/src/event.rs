//! Synchronisation points.

use crate::driver::cu;
use crate::gpu::Gpu;
use crate::sys::*;
use llmrt_plugin::{Event, Result, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An event of a device.
pub struct GpuEvent {
    gpu: Arc<Gpu>,
    raw: CUevent,
}

// SAFETY: a handle that every thread may use after entering the device.
unsafe impl Send for GpuEvent {}
// SAFETY: as above.
unsafe impl Sync for GpuEvent {}

impl GpuEvent {
    /// An event never recorded.
    pub fn new(gpu: &Arc<Gpu>) -> Result<GpuEvent> {
        gpu.enter()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the output is ours.
        unsafe { cu!(gpu.driver, cuEventCreate(&mut raw, CU_EVENT_DISABLE_TIMING))? };
        Ok(GpuEvent { gpu: gpu.clone(), raw })
    }

    /// For calls of the driver; valid as long as this event.
    pub fn as_raw(&self) -> CUevent {
        self.raw
    }
}

impl Event for GpuEvent {
    fn query(&self) -> Result<bool> {
        self.gpu.enter()?;
        // SAFETY: a live event.
        match unsafe { cu!(self.gpu.driver, cuEventQuery(self.raw)) } {
            Err(e) if e.status == Status::NotReady => Ok(false),
            result => result.map(|()| true),
        }
    }

    /// The driver has no wait with a limit: it is queried in a loop, at first without a pause.
    fn wait(&self, timeout: Duration) -> Result<bool> {
        let start = Instant::now();
        loop {
            if self.query()? {
                return Ok(true);
            }
            match start.elapsed() {
                passed if passed >= timeout => return Ok(false),
                passed if passed < Duration::from_micros(200) => std::hint::spin_loop(),
                _ => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

impl Drop for GpuEvent {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: a live event; the host keeps it as long as a stream uses it.
            let _ = unsafe { cu!(self.gpu.driver, cuEventDestroy_v2(self.raw)) };
        }
    }
}
