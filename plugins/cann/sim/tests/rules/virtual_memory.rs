//! Rule 15: addresses and the memory mapped to them.

use super::machine::Machine;
use cann_simulator::sys::*;
use std::ffi::c_void;
use std::ptr::null_mut;

const PAGE: usize = 2 << 20;

fn properties() -> aclrtPhysicalMemProp {
    aclrtPhysicalMemProp {
        handleType: 0,
        allocationType: 0,
        memAttr: ACL_HBM_MEM_HUGE,
        location: aclrtMemLocation { id: 0, type_: ACL_MEM_LOCATION_TYPE_DEVICE },
        reserve: 0,
    }
}

fn reserve(m: &Machine, n: usize) -> *mut c_void {
    let mut ptr = null_mut();
    assert_eq!(acl!(m, aclrtReserveMemAddress(&mut ptr, n, 0, null_mut(), 1)), 0);
    ptr
}

fn physical(m: &Machine, n: usize) -> aclrtDrvMemHandle {
    let mut handle = null_mut();
    assert_eq!(acl!(m, aclrtMallocPhysical(&mut handle, n, &properties(), 0)), 0);
    handle
}

#[test]
fn addresses_are_usable_while_memory_is_mapped_to_them() {
    let m = Machine::new("memory=8m");
    let (at, a, b) = (reserve(&m, 4 * PAGE), physical(&m, PAGE), physical(&m, PAGE));
    let second = at.cast::<u8>().wrapping_add(PAGE).cast::<c_void>();
    assert_eq!(m.write(at, &[1u8]), ACL_ERROR_RT_PARAM_INVALID, "nothing is mapped to them yet");
    assert_eq!(acl!(m, aclrtMapMem(at, PAGE, 0, a, 0)), 0);
    assert_eq!(acl!(m, aclrtMapMem(second, PAGE, 0, b, 0)), 0);
    let both = vec![7u8; PAGE + 8];
    assert_eq!(m.write(at, &both), 0);
    assert_eq!(m.read::<u8>(second, 9)[..9], [7, 7, 7, 7, 7, 7, 7, 7, 255], "over the edge between two");
    assert_eq!(acl!(m, aclrtReleaseMemAddress(at)), ACL_ERROR_RT_PARAM_INVALID, "something is mapped");
    assert_eq!(acl!(m, aclrtFreePhysical(a)), 0, "goes when it is unmapped");
    assert_eq!(m.read::<u8>(at, 1), [7]);
    assert_eq!(acl!(m, aclrtUnmapMem(at)), 0);
    assert_eq!(m.write(at, &[1u8]), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(m, aclrtUnmapMem(at)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!((acl!(m, aclrtUnmapMem(second)), acl!(m, aclrtFreePhysical(b))), (0, 0));
    assert_eq!(acl!(m, aclrtReleaseMemAddress(at)), 0);
    physical(&m, 4 * PAGE);
}

#[test]
fn sizes_and_places_are_whole_pages() {
    let m = Machine::new("");
    let (at, a) = (reserve(&m, 2 * PAGE), physical(&m, PAGE));
    let mut handle = null_mut();
    let odd = acl!(m, aclrtMallocPhysical(&mut handle, PAGE + 4096, &properties(), 0));
    assert_eq!(odd, ACL_ERROR_RT_PARAM_INVALID);
    let offset = |n: usize| at.cast::<u8>().wrapping_add(n).cast::<c_void>();
    let map = |ptr, n| acl!(m, aclrtMapMem(ptr, n, 0, a, 0));
    assert_eq!(map(offset(4096), PAGE), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(map(at, 2 * PAGE), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(map(offset(2 * PAGE), PAGE), ACL_ERROR_RT_PARAM_INVALID, "not reserved");
    assert_eq!(map(at, PAGE), 0);
    assert_eq!(map(at, PAGE), ACL_ERROR_RT_PARAM_INVALID, "mapped already");
}

#[test]
fn units_read_on_past_the_end_of_a_mapping() {
    let m = Machine::new("");
    let (at, a, stream) = (reserve(&m, PAGE), physical(&m, PAGE), m.stream());
    assert_eq!(acl!(m, aclrtMapMem(at, PAGE, 0, a, 0)), 0);
    let at_end = at.cast::<u8>().wrapping_add(PAGE - 64).cast::<c_void>();
    assert_eq!(m.double(at_end, at_end, 8, stream), 0);
    assert_eq!(m.sync(stream), 0, "32 bytes are left");
    assert_eq!(m.double(at_end, at_end, 16, stream), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
}

#[test]
fn a_driver_may_have_no_virtual_memory() {
    let m = Machine::new("vmm=0");
    let mut n = 0;
    let status = acl!(m, aclrtMemGetAllocationGranularity(&mut properties(), 0, &mut n));
    assert_eq!(status, ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}

/// acl_rt.h of CANN 8.1: the flag of an address is the size of its pages; releases before have none.
#[test]
fn huge_pages_go_to_addresses_reserved_for_them() {
    let reserved = |m: &Machine, flags| {
        let mut ptr = null_mut();
        (acl!(m, aclrtReserveMemAddress(&mut ptr, PAGE, 0, null_mut(), flags)), ptr)
    };
    let map = |m: &Machine, ptr| acl!(m, aclrtMapMem(ptr, PAGE, 0, physical(m, PAGE), 0));
    let m = Machine::new("");
    let [normal, huge] = [0, 1].map(|flags| reserved(&m, flags).1);
    assert_eq!((map(&m, normal), map(&m, huge)), (ACL_ERROR_RT_PARAM_INVALID, 0));
    drop(m);
    let m = Machine::new("vmm=no-flags");
    assert_eq!(reserved(&m, 1).0, ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(map(&m, reserved(&m, 0).1), 0);
    drop(m);
    let m = Machine::new("vmm=unmappable");
    assert_eq!(map(&m, reserved(&m, 1).1), ACL_ERROR_RT_PARAM_INVALID);
}
