//! Virtual memory: addresses are reserved, physical memory is taken and mapped to them.

use crate::address::addresses;
use crate::config::Vmm;
use crate::fault::{Answer, Fault, ensure, fault};
use crate::memory::{Bytes, PAGE};
use crate::runtime::context::{card, current};
use crate::sys::*;
use crate::world::{World, api, put};
use parking_lot::Mutex;
use std::ffi::c_void;

/// Physical memory. It goes when it was freed and nothing maps it.
pub struct Physical {
    device: usize,
    charged: u64,
    huge: bool,
    bytes: Bytes,
    use_of: Mutex<Use>,
}

#[derive(Default)]
struct Use {
    n_maps: usize,
    freed: bool,
}

api! { cann_acl;
    fn aclrtReserveMemAddress(
        out: *mut *mut c_void, size: usize, alignment: usize, expected: *mut c_void, flags: u64,
    ) w => {
        current(w)?;
        supported(w)?;
        let most = if w.config.vmm() == Vmm::NoFlags { 0 } else { 1 };
        let good = size > 0 && alignment == 0 && expected.is_null() && flags <= most;
        ensure(good, ACL_ERROR_RT_PARAM_INVALID, || "size 0, or an alignment, address or flag".into())?;
        let address = addresses(size, PAGE);
        let full = || Fault { code: ACL_ERROR_RT_MEMORY_ALLOCATION, text: "no addresses are left".into() };
        let address = address.ok_or_else(full)?;
        w.reserved.lock().insert(address, (size, flags));
        put(out, address as *mut c_void)
    }
    fn aclrtReleaseMemAddress(ptr: *mut c_void) w => {
        let mut reserved = w.reserved.lock();
        let Some((size, _)) = reserved.get(&(ptr as usize)).copied() else {
            return fault(ACL_ERROR_RT_PARAM_INVALID, format!("{ptr:p} is not the start of reserved addresses"));
        };
        let mapped = w.memory.any_in(ptr as usize, ptr as usize + size);
        ensure(!mapped, ACL_ERROR_RT_PARAM_INVALID, || "something is still mapped there".into())?;
        reserved.remove(&(ptr as usize));
        Ok(())
    }
    fn aclrtMallocPhysical(
        handle: *mut aclrtDrvMemHandle, size: usize, prop: *const aclrtPhysicalMemProp, flags: u64,
    ) w => {
        current(w)?;
        supported(w)?;
        let device = device_of(w, prop)?;
        let good = size > 0 && size.is_multiple_of(PAGE) && flags == 0;
        ensure(good, ACL_ERROR_RT_PARAM_INVALID, || format!("{size} bytes are no multiple of {PAGE}"))?;
        let taken = w.memory.take(device, size);
        let (bytes, charged) = taken.map_err(|text| Fault { code: ACL_ERROR_RT_MEMORY_ALLOCATION, text })?;
        w.trace.count("malloc", 1);
        let (free, total) = w.memory.info(device);
        w.trace.peak(&format!("peak.{device}"), total - free);
        // SAFETY: `device_of` read the record.
        let huge = unsafe { (*prop).memAttr } == ACL_HBM_MEM_HUGE;
        let physical = Physical { device, charged, huge, bytes, use_of: Mutex::default() };
        put(handle, w.physical.insert(physical) as aclrtDrvMemHandle)
    }
    fn aclrtFreePhysical(handle: aclrtDrvMemHandle) w => {
        let Some(physical) = w.physical.get(handle as usize) else { return unknown() };
        let idle = {
            let mut use_of = physical.use_of.lock();
            ensure(!use_of.freed, ACL_ERROR_RT_PARAM_INVALID, || "it was freed before".into())?;
            use_of.freed = true;
            use_of.n_maps == 0
        };
        if idle { drop_physical(w, handle as usize) }
        Ok(())
    }
    fn aclrtMapMem(ptr: *mut c_void, size: usize, offset: usize, handle: aclrtDrvMemHandle, flags: u64) w => {
        let Some(physical) = w.physical.get(handle as usize) else { return unknown() };
        let whole = offset == 0 && flags == 0 && size == physical.bytes.lock().len();
        ensure(whole, ACL_ERROR_RT_PARAM_INVALID, || format!("{size} bytes are not the physical size"))?;
        let at = ptr as usize;
        let reserved = w.reserved.lock();
        let range = reserved.range(..=at).next_back();
        let inside = range.is_some_and(|(start, (len, _))| at + size <= start + len && at.is_multiple_of(PAGE));
        ensure(inside, ACL_ERROR_RT_PARAM_INVALID, || format!("{at:#x} is not a reserved page"))?;
        let for_huge = range.is_some_and(|(_, (_, flags))| *flags == 1);
        let fits = match w.config.vmm() {
            Vmm::Paged => for_huge == physical.huge,
            vmm => vmm == Vmm::NoFlags,
        };
        ensure(fits, ACL_ERROR_RT_PARAM_INVALID, || format!("{at:#x} is reserved for pages of another size"))?;
        let taken = w.memory.any_in(at, at + size);
        ensure(!taken, ACL_ERROR_RT_PARAM_INVALID, || format!("{at:#x} is mapped already"))?;
        physical.use_of.lock().n_maps += 1;
        w.memory.map(at, physical.device, handle as usize, &physical.bytes);
        Ok(())
    }
    fn aclrtUnmapMem(ptr: *mut c_void) w => {
        let Some(handle) = w.memory.unmap(ptr as usize) else {
            return fault(ACL_ERROR_RT_PARAM_INVALID, format!("{ptr:p} is not the start of a mapping"));
        };
        if let Some(physical) = w.physical.get(handle) {
            let mut use_of = physical.use_of.lock();
            use_of.n_maps -= 1;
            let gone = use_of.freed && use_of.n_maps == 0;
            drop(use_of);
            if gone { drop_physical(w, handle) }
        }
        Ok(())
    }
    fn aclrtMemGetAllocationGranularity(prop: *mut aclrtPhysicalMemProp, option: i32, granularity: *mut usize) w => {
        current(w)?;
        supported(w)?;
        device_of(w, prop)?;
        ensure((0..=1).contains(&option), ACL_ERROR_INVALID_PARAM, || format!("option {option}"))?;
        put(granularity, PAGE)
    }
}

fn supported(w: &World) -> Answer {
    ensure(w.config.vmm() != Vmm::Absent, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, || {
        "the driver has no virtual memory".into()
    })
}

fn unknown() -> Answer {
    fault(ACL_ERROR_RT_PARAM_INVALID, "no such physical memory")
}

fn device_of(w: &World, prop: *const aclrtPhysicalMemProp) -> Answer<usize> {
    // SAFETY: NULL or a record, by the header's contract.
    let prop = unsafe { prop.as_ref() };
    let Some(prop) = prop else { return fault(ACL_ERROR_INVALID_PARAM, "no properties") };
    let good = prop.handleType == 0
        && prop.allocationType == 0
        && prop.location.type_ == ACL_MEM_LOCATION_TYPE_DEVICE
        && prop.reserve == 0;
    ensure(good, ACL_ERROR_RT_PARAM_INVALID, || "properties of another kind of memory".into())?;
    Ok(card(w, prop.location.id as i32)?.0)
}

fn drop_physical(w: &World, handle: usize) {
    if let Some(physical) = w.physical.remove(handle) {
        w.memory.give(physical.device, physical.charged);
    }
}
