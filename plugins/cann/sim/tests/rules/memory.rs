//! Rules 1 to 7, 14 and 16: private memory, poison, bounds, order of copies, freed memory, alignment, amounts.

use super::machine::Machine;
use cann_simulator::door::count;
use cann_simulator::sys::*;

#[test]
fn the_host_cannot_read_a_cards_memory() {
    let m = Machine::new("");
    let ptr = m.alloc(64) as usize;
    // A child reads it, so that only the child faults.
    // SAFETY: the child calls nothing but `_exit` after reading.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: it faults, which is what the test is about.
        unsafe { libc::_exit(i32::from(std::ptr::read_volatile(ptr as *const u8))) };
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "status {status}");
}

#[test]
fn new_memory_holds_no_zeros_and_no_former_contents() {
    let m = Machine::new("");
    let x = m.floats(&[1.0; 8]);
    assert_eq!(acl!(m, aclrtFree(x)), 0);
    assert!(m.read::<f32>(m.alloc(32), 8).iter().all(|x| x.is_nan()));
    let m = {
        drop(m);
        Machine::new("poison=a5")
    };
    assert_eq!(m.read::<u8>(m.alloc(4), 4), [0xa5; 4]);
}

#[test]
fn a_view_past_its_allocation_faults_when_the_kernel_runs_and_is_reported_by_the_next_synchronise() {
    let m = Machine::new("queue=sync");
    let (stream, x) = (m.stream(), m.floats(&[1.0; 16]));
    assert_eq!(m.double(x, m.alloc(60), 16, stream), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    let message = m.message();
    assert!(
        message.contains("aclnnMuls: `out`")
            && message.contains("0 bytes past the end of an allocation of 60"),
        "{message}"
    );
}

#[test]
fn a_matrix_products_fault_is_the_cube_units() {
    let m = Machine::new("");
    let (stream, a) = (m.stream(), m.floats(&[1.0; 4]));
    let [a, b] = [m.tensor(ACL_FLOAT, &[2, 2], a), m.view(ACL_FLOAT, &[2, 2], &[100, 1], 0, a)];
    let y = m.tensor(ACL_FLOAT, &[2, 2], m.alloc(16));
    assert_eq!(run!(m, nn.aclnnMm(a, b, y, 0), stream), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_AICORE_EXCEPTION);
}

#[test]
fn a_blocking_copy_does_not_wait_for_kernels() {
    let m = Machine::new("queue=sync");
    let (stream, x, y) = (m.stream(), m.floats(&[1.0]), m.floats(&[7.0]));
    assert_eq!(m.double(x, y, 1, stream), 0);
    assert_eq!(m.read::<f32>(y, 1), [7.0]);
    assert_eq!(m.sync(stream), 0);
    assert_eq!(m.read::<f32>(y, 1), [2.0]);
}

#[test]
fn pinned_memory_is_read_when_the_stream_gets_there_and_other_memory_before_the_call_returns() {
    let m = Machine::new("queue=sync");
    let (stream, x) = (m.stream(), m.alloc(4));
    let mut pinned = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtMallocHost(&mut pinned, 4)), 0);
    // SAFETY: pinned memory of 4 bytes.
    let set = |value: f32| unsafe { pinned.cast::<f32>().write(value) };
    set(1.0);
    assert_eq!(acl!(m, aclrtMemcpyAsync(x, 4, pinned, 4, 1, stream)), 0);
    set(2.0);
    assert_eq!(m.sync(stream), 0);
    assert_eq!(m.read::<f32>(x, 1), [2.0], "the source was changed before the copy ran");

    let plain = 3f32;
    assert_eq!(acl!(m, aclrtMemcpyAsync(x, 4, (&raw const plain).cast(), 4, 1, stream)), 0);
    assert_eq!(m.read::<f32>(x, 1), [3.0]);
    assert_eq!(acl!(m, aclrtFreeHost(pinned)), 0);
}

#[test]
fn copies_with_pageable_memory_are_counted() {
    let m = Machine::new("");
    let (stream, x, plain) = (m.stream(), m.alloc(8), [0u8; 8]);
    let mut pinned = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtMallocHost(&mut pinned, 8)), 0);
    for from in [pinned.cast_const(), plain.as_ptr().cast()] {
        assert_eq!(acl!(m, aclrtMemcpyAsync(x, 8, from, 8, 1, stream)), 0);
        assert_eq!(acl!(m, aclrtMemcpy(x, 8, from, 8, 1)), 0);
    }
    assert_eq!(acl!(m, aclrtMemcpy(pinned, 8, x, 8, 2)), 0);
    assert_eq!(m.sync(stream), 0);
    let counts = ["h2d", "h2d.pageable", "d2h", "d2h.pageable"].map(cann_simulator::door::count);
    assert_eq!(counts, [4, 2, 1, 0]);
    assert_eq!(acl!(m, aclrtFreeHost(pinned)), 0);
}

#[test]
fn older_drivers_refuse_asynchronous_copies_from_pageable_memory() {
    let m = Machine::new("pageable=refuse");
    let plain = 3f32;
    let status = acl!(m, aclrtMemcpyAsync(m.alloc(4), 4, (&raw const plain).cast(), 4, 1, m.stream()));
    assert_eq!(status, ACL_ERROR_RT_INVALID_HANDLE);
}

#[test]
fn memory_freed_before_its_kernel_ran_is_found_by_the_kernel() {
    let m = Machine::new("queue=sync");
    let (stream, x, y) = (m.stream(), m.floats(&[1.0]), m.alloc(4));
    assert_eq!(m.double(x, y, 1, stream), 0);
    assert_eq!(acl!(m, aclrtFree(x)), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    assert!(m.message().contains("in memory that was freed"));
}

#[test]
fn sizes_and_addresses_are_checked() {
    let m = Machine::new("");
    let mut ptr = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtMalloc(&mut ptr, 0, 0)), ACL_ERROR_INVALID_PARAM);
    assert_eq!(acl!(m, aclrtFree(std::ptr::null_mut())), ACL_ERROR_INVALID_PARAM);
    let x = m.alloc(64);
    assert_eq!((x as usize % 64, x as usize % 128), (0, 64), "64 bytes are promised, and no more");
    assert_eq!(acl!(m, aclrtFree(x.cast::<u8>().wrapping_add(64).cast())), ACL_ERROR_RT_PARAM_INVALID);
    let bytes = [0u8; 8];
    assert_eq!(acl!(m, aclrtMemcpy(x, 4, bytes.as_ptr().cast(), 8, 1)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(m, aclrtMemcpy(x, 0, bytes.as_ptr().cast(), 0, 1)), 0);
    assert!(
        m.tensor(ACL_FLOAT, &[4], x.cast::<u8>().wrapping_add(4).cast()).is_null(),
        "not a multiple of 32"
    );
}

#[test]
fn rows_are_copied_with_gaps() {
    let m = Machine::new("");
    let x = m.floats(&[0.0; 6]);
    let rows = [1f32, 2.0, 3.0, 4.0];
    assert_eq!(acl!(m, aclrtMemcpy2d(x, 12, rows.as_ptr().cast(), 8, 8, 2, 1)), 0);
    assert_eq!(m.read::<f32>(x, 6), [1.0, 2.0, 0.0, 3.0, 4.0, 0.0]);
    assert_eq!(acl!(m, aclrtMemcpy2d(x, 4, rows.as_ptr().cast(), 8, 8, 2, 1)), ACL_ERROR_RT_PARAM_INVALID);
}

/// A chip has HBM or DDR.
#[test]
fn a_card_has_no_memory_of_the_other_kind() {
    for (soc, own, other) in [
        ("Ascend910B3", ACL_HBM_MEM, ACL_DDR_MEM),
        ("Ascend910A", ACL_HBM_MEM, ACL_DDR_MEM),
        ("Ascend310P3", ACL_DDR_MEM, ACL_HBM_MEM),
        ("Ascend310B1", ACL_DDR_MEM, ACL_HBM_MEM),
    ] {
        let m = Machine::new(&format!("memory=8m,soc={soc}"));
        let total = |attr| {
            let (mut free, mut total) = (1, 1);
            assert_eq!(acl!(m, aclrtGetMemInfo(attr, &mut free, &mut total)), 0);
            (free, total)
        };
        assert_eq!((total(own), total(other)), ((8 << 20, 8 << 20), (0, 0)), "{soc}");
    }
}

#[test]
fn memory_runs_out_at_its_limit_and_at_the_configured_allocation() {
    let m = Machine::new("memory=8m");
    let info = || {
        let (mut free, mut total) = (0, 0);
        assert_eq!(acl!(m, aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)), 0);
        (free >> 20, total >> 20)
    };
    let x = m.alloc(3 << 20);
    assert_eq!(info(), (4, 8), "large allocations take pages of 2 MiB");
    let mut ptr = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtMalloc(&mut ptr, 5 << 20, 0)), ACL_ERROR_RT_MEMORY_ALLOCATION);
    assert!(m.message().contains("4194304 of 8388608 are free"));
    assert_eq!(acl!(m, aclrtFree(x)), 0);
    assert_eq!((info(), count("peak.0")), ((8, 8), 4 << 20));

    drop(m);
    let m = Machine::new("oom=2");
    m.alloc(4);
    let mut ptr = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtMalloc(&mut ptr, 4, 0)), ACL_ERROR_RT_MEMORY_ALLOCATION);
}
