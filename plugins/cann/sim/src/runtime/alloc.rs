//! Memory of cards, and pinned memory of the host.

use crate::fault::{Fault, ensure, fault};
use crate::runtime::capture::forbid;
use crate::runtime::context::current;
use crate::sys::*;
use crate::world::{World, api, put};
use std::ffi::c_void;

api! { cann_acl;
    fn aclrtMalloc(out: *mut *mut c_void, size: usize, policy: aclrtMemMallocPolicy) w => {
        ensure(size > 0, ACL_ERROR_INVALID_PARAM, || "0 bytes".into())?;
        ensure((0..=7).contains(&(policy & 0xff)), ACL_ERROR_INVALID_PARAM, || format!("policy {policy}"))?;
        let device = current(w)?.device;
        forbid(w, "aclrtMalloc")?;
        let address = w.memory.alloc(device, size);
        let address = address.map_err(|text| Fault { code: ACL_ERROR_RT_MEMORY_ALLOCATION, text })?;
        w.trace.count("malloc", 1);
        let (free, total) = w.memory.info(device);
        w.trace.peak(&format!("peak.{device}"), total - free);
        put(out, address as *mut c_void)
    }
    /// At once: work that still uses the memory faults.
    fn aclrtFree(ptr: *mut c_void) w => {
        ensure(!ptr.is_null(), ACL_ERROR_INVALID_PARAM, || "NULL".into())?;
        current(w)?;
        forbid(w, "aclrtFree")?;
        let freed = w.memory.free(ptr as usize);
        freed.map_err(|text| Fault { code: ACL_ERROR_RT_PARAM_INVALID, text })
    }
    fn aclrtMallocHost(out: *mut *mut c_void, size: usize) w => {
        ensure(size > 0, ACL_ERROR_INVALID_PARAM, || "0 bytes".into())?;
        current(w)?;
        // Eight words more than it takes, to start at a multiple of 64.
        let (n, mut block) = (size.div_ceil(8) + 8, Vec::new());
        let room = block.try_reserve_exact(n);
        ensure(room.is_ok(), ACL_ERROR_BAD_ALLOC, || format!("{size} bytes of the host"))?;
        block.resize(n, u64::MAX);
        let block = block.into_boxed_slice();
        let address = (block.as_ptr() as usize).next_multiple_of(64);
        w.pinned.lock().insert(address, block);
        put(out, address as *mut c_void)
    }
    fn aclrtFreeHost(ptr: *mut c_void) w => {
        ensure(!ptr.is_null(), ACL_ERROR_INVALID_PARAM, || "NULL".into())?;
        let block = w.pinned.lock().remove(&(ptr as usize));
        ensure(block.is_some(), ACL_ERROR_RT_PARAM_INVALID, || format!("{ptr:p} is not pinned memory"))
    }
    /// A card has HBM or DDR, and 0 bytes of the other.
    fn aclrtGetMemInfo(attr: aclrtMemAttr, free: *mut usize, total: *mut usize) w => {
        let device = current(w)?.device;
        if !(0..=17).contains(&attr) {
            return fault(ACL_ERROR_INVALID_PARAM, format!("attribute {attr}"));
        }
        // Of DDR: all of it, its huge and its normal pages, and those for other cards (acl_rt.h).
        let is_hbm = !matches!(attr, ACL_DDR_MEM | 2 | 3 | 6 | 7);
        let (n_free, n_total) = if is_hbm == w.chip.has_hbm() { w.memory.info(device) } else { (0, 0) };
        put(free, n_free as usize)?;
        put(total, n_total as usize)
    }
}

/// Whether all of some host memory is pinned.
pub fn is_pinned(w: &World, address: usize, n: usize) -> bool {
    let pinned = w.pinned.lock();
    let before = pinned.range(..=address).next_back();
    before.is_some_and(|(start, block)| address + n <= start + (block.len() - 8) * 8)
}
