//! Access of devices to each other's memory: with it a copy goes from card to card, without it the driver takes it through
//! the host.

use crate::driver::{CudaDriver, cu};
use crate::gpu::Gpu;
use crate::sys::*;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::Ordering;

/// What a device's context was let at: the other's number, and how often it had been opened by then.
#[derive(Default)]
pub struct Peers(Mutex<BTreeMap<i32, u32>>);

impl Peers {
    /// The context is new: it was let at nothing.
    pub fn forget(&self) {
        self.0.lock().clear();
    }
}

/// Whether a device can reach another's memory at all.
pub fn can_reach(driver: &CudaDriver, device: CUdevice, other: CUdevice) -> bool {
    let mut can: c_int = 0;
    // SAFETY: the output is ours; two devices of the driver.
    device != other
        && unsafe { cu!(driver, cuDeviceCanAccessPeer(&mut can, device, other)) }.is_ok()
        && can != 0
}

/// Lets two open devices at each other's memory, as far as they can. Copies work without it, so what fails here is no
/// error. The calling thread's context may be another afterwards.
pub fn connect(a: &Gpu, b: &Gpu) {
    reach(a, b);
    reach(b, a);
}

/// Lets a device at another's memory, once for these two contexts.
fn reach(gpu: &Gpu, other: &Gpu) {
    let Ok(context) = other.context() else { return };
    let opening = other.n_opened.load(Ordering::Relaxed);
    let mut reached = gpu.peers.0.lock();
    if reached.insert(other.number, opening) == Some(opening)
        || !can_reach(&gpu.driver, gpu.device, other.device)
        || gpu.enter().is_err()
    {
        return;
    }
    // SAFETY: the context of an open device, for the entered one. Another library may have done it before.
    let _ = unsafe { cu!(gpu.driver, cuCtxEnablePeerAccess(context, 0)) };
}
