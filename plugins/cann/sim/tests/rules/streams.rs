//! Rules 4, 20, 26, 28 and 31: order, sticky faults, limits, messages, counters.

use super::machine::Machine;
use cann_simulator::door::count;
use cann_simulator::sys::*;

#[test]
fn a_streams_work_is_done_in_order_in_every_mode() {
    for queue in ["now", "delay", "sync"] {
        let m = Machine::new(&format!("queue={queue},seed=3"));
        let (stream, x) = (m.stream(), m.floats(&[1.0]));
        (0..10).for_each(|_| assert_eq!(m.double(x, x, 1, stream), 0));
        assert_eq!(m.sync(stream), 0);
        assert_eq!(m.read::<f32>(x, 1), [1024.0], "{queue}");
    }
}

#[test]
fn without_a_wait_nothing_may_have_happened() {
    let m = Machine::new("queue=sync");
    let (stream, x) = (m.stream(), m.floats(&[1.0]));
    assert_eq!(m.double(x, x, 1, stream), 0);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(m.read::<f32>(x, 1), [1.0]);
    let mut status = -1;
    assert_eq!(acl!(m, aclrtStreamQuery(stream, &mut status)), 0);
    assert_eq!(status, ACL_STREAM_STATUS_NOT_READY);
    while status == ACL_STREAM_STATUS_NOT_READY {
        assert_eq!(acl!(m, aclrtStreamQuery(stream, &mut status)), 0);
    }
    assert_eq!(m.read::<f32>(x, 1), [2.0], "a query makes the queue proceed");
}

#[test]
fn two_streams_are_not_ordered() {
    let m = Machine::new("queue=sync");
    let (a, b, x, y) = (m.stream(), m.stream(), m.floats(&[1.0]), m.alloc(4));
    assert_eq!(m.double(x, x, 1, a), 0);
    assert_eq!(m.double(x, y, 1, b), 0);
    assert_eq!(m.sync(b), 0);
    assert_eq!(m.read::<f32>(y, 1), [2.0], "the first stream has not run");
    assert_eq!(acl!(m, aclrtSynchronizeDevice()), 0);
    assert_eq!(m.read::<f32>(x, 1), [2.0]);
}

#[test]
fn a_fault_stays_and_its_card_is_unusable_until_it_is_reset() {
    let m = Machine::new("");
    let (stream, x) = (m.stream(), m.floats(&[1.0; 8]));
    assert_eq!(m.double(x, m.alloc(4), 8, stream), 0);
    for _ in 0..2 {
        assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    }
    assert_eq!(m.double(x, x, 8, stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION, "a later launch fails at once");
    assert_eq!(acl!(m, aclrtDestroyStream(stream)), 0);
    assert_eq!((acl!(m, aclrtResetDevice(0)), acl!(m, aclrtSetDevice(0))), (0, 0));
    let stream = m.stream();
    assert_eq!(m.double(x, x, 8, stream), 0);
    assert_eq!(m.sync(stream), 0);
}

#[test]
fn work_after_a_fault_still_runs() {
    let m = Machine::new("sticky=0,queue=sync");
    let (stream, x) = (m.stream(), m.floats(&[1.0; 8]));
    assert_eq!(m.double(x, m.alloc(4), 8, stream), 0);
    assert_eq!(m.double(x, x, 8, stream), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    assert_eq!(m.read::<f32>(x, 1), [2.0]);
}

#[test]
fn streams_run_out() {
    let m = Machine::new("streams=2");
    let (a, _) = (m.stream(), m.stream());
    let mut stream = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtCreateStream(&mut stream)), ACL_ERROR_RT_NO_STREAM_RESOURCE);
    assert_eq!(acl!(m, aclrtDestroyStream(a)), 0);
    assert_eq!(acl!(m, aclrtCreateStream(&mut stream)), 0);
}

#[test]
fn a_full_queue_holds_the_caller_up() {
    let m = Machine::new("queue=sync,depth=2");
    let (stream, x) = (m.stream(), m.floats(&[1.0]));
    (0..3).for_each(|_| assert_eq!(m.double(x, x, 1, stream), 0));
    assert_eq!(m.read::<f32>(x, 1), [2.0], "the first had to run to make room");
}

#[test]
fn a_wait_gives_up_after_its_timeout_and_the_work_goes_on() {
    let m = Machine::new("queue=sync");
    let (stream, n) = (m.stream(), 512);
    let [x, y] = [m.floats(&vec![1.0; n * n]), m.floats(&vec![0.0; n * n])];
    let [tx, ty] = [x, y].map(|ptr| m.tensor(ACL_FLOAT, &[n as i64, n as i64], ptr));
    let mut mark = std::ptr::null_mut();
    assert_eq!(run!(m, nn.aclnnMm(tx, tx, ty, 0), stream), 0);
    assert_eq!(acl!(m, aclrtCreateEventExWithFlag(&mut mark, ACL_EVENT_SYNC as u32)), 0);
    assert_eq!(acl!(m, aclrtRecordEvent(mark, stream)), 0);
    assert_eq!(acl!(m, aclrtSynchronizeStreamWithTimeout(stream, 0)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(m, aclrtSynchronizeStreamWithTimeout(stream, 1)), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
    assert_eq!(acl!(m, aclrtSynchronizeEventWithTimeout(mark, 1)), ACL_ERROR_RT_EVENT_SYNC_TIMEOUT);
    assert_eq!(m.sync(stream), 0);
    assert_eq!(m.read::<f32>(y, 1), [n as f32]);
}

#[test]
fn without_a_timeout_the_watchdog_ends_a_wait() {
    let m = Machine::new("queue=sync,watchdog=0");
    let (stream, x) = (m.stream(), m.floats(&[1.0; 4096]));
    (0..100).for_each(|_| assert_eq!(m.double(x, x, 4096, stream), 0));
    assert_eq!(m.sync(stream), ACL_ERROR_RT_STREAM_SYNC_TIMEOUT);
}

#[test]
fn a_message_is_read_once_and_belongs_to_its_thread() {
    let m = Machine::new("");
    assert_eq!(m.message(), "");
    assert_eq!(acl!(m, aclrtSetDevice(9)), ACL_ERROR_RT_INVALID_DEVICEID);
    std::thread::scope(|s| s.spawn(|| assert_eq!(m.message(), "")).join().unwrap());
    assert_eq!(m.message(), "[aclrtSetDevice] device 9 is none of 1");
    assert_eq!(m.message(), "");
}

#[test]
fn counters_count_the_calls_by_name() {
    let m = Machine::new("");
    let (stream, x) = (m.stream(), m.floats(&[1.0, 2.0]));
    assert_eq!(m.double(x, x, 2, stream), 0);
    assert_eq!(m.sync(stream), 0);
    m.read::<f32>(x, 2);
    for (name, n) in [("h2d", 1), ("h2d.bytes", 8), ("d2h", 1), ("sync", 1), ("launch", 1), ("aclnnMuls", 1)]
    {
        assert_eq!(count(name), n, "{name}");
    }
    assert_eq!(count("malloc"), 2, "one for the numbers, one for the workspace");
}

#[test]
fn a_trace_has_a_line_per_call() {
    let path = std::env::temp_dir().join(format!("llmrt-cann-sim-{}.trace", std::process::id()));
    let m = Machine::new(&format!("trace={}", path.display()));
    acl!(m, aclrtSetDevice(9));
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(text, "aclInit ok\naclrtSetDevice ok\naclrtSetDevice device 9 is none of 1\n");
}
