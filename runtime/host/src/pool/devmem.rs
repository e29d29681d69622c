//! `llmrt.devmem` of a plugin, for one of its devices.

use super::Mechanism;
use crate::device::{Device, call};
use crate::error::{Error, Result};
use crate::plugin::table;
use llmrt_abi::types as c;
use std::sync::{Arc, Weak};

/// The name under which a plugin offers it.
const NAME: &str = "llmrt.devmem";

/// A device whose plugin lets the host manage scratch memory.
#[derive(Clone)]
pub(crate) struct Devmem {
    vt: Arc<c::DevmemVt>,
    /// Weak, so that a pool which a broken plugin may still use, and which is therefore never freed, keeps no device.
    device: Weak<Device>,
}

// SAFETY: numbers and functions that the ABI lets any thread call.
unsafe impl Send for Devmem {}

impl Devmem {
    /// What the plugin offers for this open device; `None` if nothing, an error if its table is wrong.
    pub(crate) fn of(device: &Arc<Device>) -> Result<Option<Devmem>> {
        let Some(get_extension) = device.plugin.table.get_extension else { return Ok(None) };
        let name = c::Str { ptr: NAME.as_ptr(), len: NAME.len() as u64 };
        // SAFETY: the plugin is initialised; the name is valid for the call.
        let vt = unsafe { get_extension(name, 0) }.cast::<c::DevmemVt>();
        if vt.is_null() {
            return Ok(None);
        }
        // SAFETY: under this name the ABI has this table, valid as long as the plugin.
        let vt = unsafe { table::read(vt) }
            .and_then(|vt: c::DevmemVt| table::mandatory!(vt, "devmem", raw_alloc, raw_free).map(|()| vt))
            .map_err(|e| device.breach("get_extension", e))?;
        Ok(Some(Devmem { vt: Arc::new(vt), device: Arc::downgrade(device) }))
    }

    /// The device, which the pool's stream keeps open.
    fn device(&self) -> Result<Arc<Device>> {
        self.device.upgrade().ok_or_else(|| Error::invalid("pool", "its device is gone"))
    }

    fn has_virtual_memory(&self) -> bool {
        let vt = &self.vt;
        let all =
            [vt.va_reserve.is_some(), vt.va_map.is_some(), vt.va_unmap.is_some(), vt.va_release.is_some()];
        all.iter().all(|has| *has) && vt.granularity.is_power_of_two()
    }
}

impl Mechanism for Devmem {
    fn granularity(&self) -> u64 {
        if self.has_virtual_memory() { self.vt.granularity } else { 0 }
    }

    fn va_limit(&self) -> u64 {
        self.vt.va_limit
    }

    fn raw_alloc(&self, size: u64) -> Result<u64> {
        let (device, mut addr) = (self.device()?, 0);
        // SAFETY: an open device; the output is ours.
        unsafe { call!(device, self.vt, raw_alloc(device.raw, size, &mut addr))? };
        Ok(addr)
    }

    fn raw_free(&self, addr: u64) {
        if let (Some(f), Ok(device)) = (self.vt.raw_free, self.device()) {
            // SAFETY: an open device; the pool frees what `raw_alloc` gave, once.
            unsafe { f(device.raw, addr) }
        }
    }

    fn va_reserve(&self, size: u64) -> Result<u64> {
        let (device, mut addr) = (self.device()?, 0);
        // SAFETY: an open device; the output is ours.
        unsafe { call!(device, self.vt, va_reserve(device.raw, size, &mut addr))? };
        Ok(addr)
    }

    fn va_map(&self, addr: u64, n: u64) -> Result<u64> {
        let (device, mut chunk) = (self.device()?, 0);
        // SAFETY: an open device; the pool maps within what it reserved, in whole units, each once.
        unsafe { call!(device, self.vt, va_map(device.raw, addr, n, &mut chunk))? };
        Ok(chunk)
    }

    fn va_unmap(&self, addr: u64, n: u64, chunk: u64) {
        if let (Some(f), Ok(device)) = (self.vt.va_unmap, self.device()) {
            // SAFETY: an open device; exactly what `va_map` mapped, once.
            unsafe { f(device.raw, addr, n, chunk) }
        }
    }

    fn va_release(&self, addr: u64, size: u64) {
        if let (Some(f), Ok(device)) = (self.vt.va_release, self.device()) {
            // SAFETY: an open device; exactly what `va_reserve` gave, once, with nothing mapped.
            unsafe { f(device.raw, addr, size) }
        }
    }
}
