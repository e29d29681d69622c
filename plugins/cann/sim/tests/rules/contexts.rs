//! Rules 10 to 12 and 17: contexts, cards, start and end, cards that reach each other.

use super::machine::Machine;
use cann_simulator::sys::*;
use std::ptr::null;

#[test]
fn calls_before_the_start_and_a_second_start_are_refused() {
    let m = Machine::raw("");
    assert_eq!(acl!(m, aclrtSetDevice(0)), ACL_ERROR_UNINITIALIZE);
    assert_eq!(acl!(m, aclInit(null())), 0);
    assert_eq!(acl!(m, aclInit(null())), ACL_ERROR_REPEAT_INITIALIZE);
    assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
    assert_eq!(acl!(m, aclFinalize()), 0);
    assert_eq!(acl!(m, aclFinalize()), ACL_ERROR_REPEAT_FINALIZE);
    assert_ne!(acl!(m, aclrtSetDevice(0)), 0);
}

#[test]
fn a_wrong_configuration_is_refused_at_the_start() {
    let m = Machine::raw("queue=soon");
    assert_eq!(acl!(m, aclInit(null())), ACL_ERROR_INVALID_PARAM);
    assert_eq!(m.message(), "[aclInit] LLMRT_CANN_SIM: `queue=soon` is not understood");
}

#[test]
fn a_new_thread_has_no_context() {
    let m = Machine::new("");
    let mut mark = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtCreateEventExWithFlag(&mut mark, ACL_EVENT_SYNC as u32)), 0);
    let mark = mark as usize;
    let check = || {
        let mut status = 0;
        let (mut ptr, mut stream, mut n) = (std::ptr::null_mut(), std::ptr::null_mut(), 0);
        let (mut free, mut total) = (0, 0);
        [
            acl!(m, aclrtMalloc(&mut ptr, 4, 0)),
            acl!(m, aclrtCreateStream(&mut stream)),
            acl!(m, aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)),
            acl!(m, aclrtGetDevice(&mut n)),
            acl!(m, aclrtQueryEventStatus(mark as aclrtEvent, &mut status)),
            acl!(m, aclrtSynchronizeEventWithTimeout(mark as aclrtEvent, 1)),
        ]
    };
    assert_eq!(check(), [0; 6]);
    std::thread::scope(|s| assert_eq!(s.spawn(check).join().unwrap(), [ACL_ERROR_RT_CONTEXT_NULL; 6]));
}

#[test]
fn a_stream_belongs_to_its_context() {
    let m = Machine::new("devices=2");
    let (stream, x) = (m.stream(), m.floats(&[1.0]));
    assert_eq!(acl!(m, aclrtSetDevice(1)), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_STREAM_CONTEXT);
    assert_eq!(acl!(m, aclrtDestroyStream(stream)), ACL_ERROR_RT_STREAM_CONTEXT);
    assert_eq!(acl!(m, aclrtMemsetAsync(x, 4, 0, 4, stream)), ACL_ERROR_RT_STREAM_CONTEXT);
    assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
    assert_eq!(acl!(m, aclrtDestroyStream(stream)), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_PARAM_INVALID, "it is gone");
}

#[test]
fn a_kernel_does_not_see_another_cards_memory() {
    let m = Machine::new("devices=2");
    let x = m.floats(&[1.0]);
    assert_eq!(acl!(m, aclrtSetDevice(1)), 0);
    let stream = m.stream();
    assert_eq!(m.double(x, m.alloc(4), 1, stream), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    assert!(m.message().contains("`x` is on card 0, the kernel on card 1"));
}

#[test]
fn a_card_is_reset_as_often_as_it_was_set() {
    let m = Machine::new("");
    assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
    assert_eq!(acl!(m, aclrtResetDevice(0)), 0);
    m.alloc(4);
    assert_eq!(acl!(m, aclrtResetDevice(0)), 0);
    let mut device = 0;
    assert_eq!(acl!(m, aclrtGetDevice(&mut device)), ACL_ERROR_RT_CONTEXT_NULL);
    assert_eq!(acl!(m, aclrtResetDevice(0)), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn cards_reach_each_other_after_being_let_in() {
    let m = Machine::new("devices=2");
    let x = m.floats(&[5.0]);
    assert_eq!(acl!(m, aclrtSetDevice(1)), 0);
    let (stream, y) = (m.stream(), m.alloc(4));
    let copy = || acl!(m, aclrtMemcpy(y, 4, x, 4, ACL_MEMCPY_DEVICE_TO_DEVICE));
    assert_eq!(copy(), ACL_ERROR_RT_PARAM_INVALID);
    let mut can = 0;
    assert_eq!(acl!(m, aclrtDeviceCanAccessPeer(&mut can, 1, 0)), 0);
    assert_eq!((can, acl!(m, aclrtDeviceCanAccessPeer(&mut can, 1, 1))), (1, ACL_ERROR_RT_PARAM_INVALID));
    assert_eq!(acl!(m, aclrtDeviceEnablePeerAccess(0, 0)), 0);
    assert_eq!(copy(), ACL_ERROR_RT_PARAM_INVALID, "access is one-way");
    assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
    assert_eq!(acl!(m, aclrtDeviceEnablePeerAccess(1, 0)), 0);
    assert_eq!(acl!(m, aclrtSetDevice(1)), 0);
    assert_eq!((copy(), m.sync(stream)), (0, 0));
    assert_eq!(m.read::<f32>(y, 1), [5.0]);
    drop(m);
    let m = Machine::new("devices=2,peers=0");
    assert_eq!(acl!(m, aclrtDeviceEnablePeerAccess(1, 0)), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}

#[test]
fn the_chip_has_a_name_or_none() {
    let m = Machine::new("soc=Ascend310P3");
    let name = acl!(m, aclrtGetSocName());
    // SAFETY: a text that is kept for ever.
    let name = unsafe { std::ffi::CStr::from_ptr(name) };
    assert_eq!(name, c"Ascend310P3");
    drop(m);
    assert!(acl!(Machine::new("soc="), aclrtGetSocName()).is_null());
}
