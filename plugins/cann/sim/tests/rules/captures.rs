//! Rule 25: graphs.

use super::machine::Machine;
use cann_simulator::door::count;
use cann_simulator::sys::*;
use std::ptr::null_mut;

const GLOBAL: i32 = ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
const RELAXED: i32 = ACL_MODEL_RI_CAPTURE_MODE_RELAXED;

fn begin(m: &Machine, stream: aclrtStream, mode: i32) {
    assert_eq!(acl!(m, aclmdlRICaptureBegin(stream, mode)), 0);
}

fn end(m: &Machine, stream: aclrtStream) -> (i32, aclmdlRI) {
    let mut graph = null_mut();
    (acl!(m, aclmdlRICaptureEnd(stream, &mut graph)), graph)
}

#[test]
fn captured_work_runs_when_its_graph_is_launched_and_as_often() {
    let m = Machine::new("queue=sync");
    let (stream, x) = (m.stream(), m.floats(&[1.0]));
    let t = m.tensor(ACL_FLOAT, &[1], x);
    let (_, size, executor) = plan!(m, math.aclnnMuls(t, m.scalar(2.0), t));
    let workspace = m.alloc(size as usize);
    begin(&m, stream, GLOBAL);
    assert_eq!(launch!(m, math.aclnnMuls, workspace, size, executor, stream), 0);
    let mut status = -1;
    assert_eq!(acl!(m, aclmdlRICaptureGetInfo(stream, &mut status, null_mut())), 0);
    assert_eq!(status, ACL_MODEL_RI_CAPTURE_STATUS_ACTIVE);
    let (ended, graph) = end(&m, stream);
    assert_eq!((ended, m.sync(stream)), (0, 0));
    assert_eq!(m.read::<f32>(x, 1), [1.0], "recorded, not run");
    (0..3).for_each(|_| assert_eq!(acl!(m, aclmdlRIExecuteAsync(graph, stream)), 0));
    assert_eq!(acl!(m, aclmdlRIDestroy(graph)), ACL_ERROR_RT_MODEL_RUNNING);
    assert_eq!(m.sync(stream), 0);
    assert_eq!((m.read::<f32>(x, 1), count("graph")), (vec![8.0], 3));
    assert_eq!(acl!(m, aclmdlRIDestroy(graph)), 0);
}

#[test]
fn memory_of_a_graph_has_to_stay() {
    let m = Machine::new("");
    let (stream, x) = (m.stream(), m.floats(&[1.0]));
    begin(&m, stream, RELAXED);
    assert_eq!(m.double(x, x, 1, stream), 0);
    let (_, graph) = end(&m, stream);
    assert_eq!(acl!(m, aclrtFree(x)), 0);
    assert_eq!(acl!(m, aclmdlRIExecuteAsync(graph, stream)), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
}

/// The answer to a call while capturing, and then to the end of the capture.
fn check(mode: i32, call: impl FnOnce(&Machine, aclrtStream) -> i32, answer: i32, ended: i32) {
    let m = Machine::new("queue=sync");
    let stream = m.stream();
    begin(&m, stream, mode);
    assert_eq!(call(&m, stream), answer, "{}", m.message());
    assert_eq!(end(&m, stream).0, ended);
}

#[test]
fn waiting_ends_a_capture() {
    let invalid = ACL_ERROR_RT_CAPTURE_INVALIDATED;
    check(GLOBAL, |m, s| m.sync(s), ACL_ERROR_RT_STREAM_CAPTURED, invalid);
    check(RELAXED, |m, s| m.sync(s), ACL_ERROR_RT_STREAM_CAPTURED, invalid);
    check(RELAXED, |m, s| acl!(m, aclrtStreamQuery(s, &mut 0)), ACL_ERROR_RT_STREAM_CAPTURED, invalid);
    check(GLOBAL, |m, _| acl!(m, aclrtSynchronizeDevice()), ACL_ERROR_RT_STREAM_CAPTURED, invalid);
    let event = |m: &Machine, s| {
        let mut event = null_mut();
        assert_eq!(acl!(m, aclrtCreateEventExWithFlag(&mut event, ACL_EVENT_SYNC as u32)), 0);
        assert_eq!(acl!(m, aclrtRecordEvent(event, s)), 0);
        acl!(m, aclrtSynchronizeEvent(event))
    };
    check(GLOBAL, event, ACL_ERROR_RT_EVENT_CAPTURED, invalid);
}

#[test]
fn allocating_and_blocking_copies_end_a_capture_unless_it_is_relaxed() {
    let invalid = ACL_ERROR_RT_CAPTURE_INVALIDATED;
    let malloc = |m: &Machine, _| acl!(m, aclrtMalloc(&mut null_mut(), 64, 0));
    check(GLOBAL, malloc, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, invalid);
    check(RELAXED, malloc, 0, 0);
    let copy = |m: &Machine, _| {
        let x = [0u8; 4];
        acl!(m, aclrtMemcpy(x.as_ptr() as *mut _, 4, x.as_ptr().cast(), 4, 0))
    };
    check(GLOBAL, copy, ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT, invalid);
}

#[test]
fn pageable_memory_and_the_default_stream_end_a_capture() {
    let invalid = ACL_ERROR_RT_CAPTURE_INVALIDATED;
    let m = Machine::new("");
    let (stream, x, plain) = (m.stream(), m.alloc(4), [0u8; 4]);
    begin(&m, stream, GLOBAL);
    let copied = acl!(m, aclrtMemcpyAsync(x, 4, plain.as_ptr().cast(), 4, 1, stream));
    assert_eq!((copied, end(&m, stream).0), (ACL_ERROR_RT_STREAM_CAPTURE_CONFLICT, invalid));
    begin(&m, stream, GLOBAL);
    let filled = acl!(m, aclrtMemsetAsync(x, 4, 0, 4, null_mut()));
    assert_eq!((filled, end(&m, stream).0), (ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, invalid));
    assert_eq!(end(&m, stream).0, ACL_ERROR_RT_STREAM_NOT_CAPTURED);
}

#[test]
fn a_capture_is_ended_by_the_thread_that_began_it() {
    let m = Machine::new("");
    let stream = m.stream() as usize;
    begin(&m, stream as aclrtStream, GLOBAL);
    let elsewhere = || {
        assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
        end(&m, stream as aclrtStream).0
    };
    let answer = std::thread::scope(|s| s.spawn(elsewhere).join().unwrap());
    assert_eq!(answer, ACL_ERROR_RT_STREAM_CAPTURE_WRONG_THREAD);
    assert_eq!(end(&m, stream as aclrtStream).0, 0);
}

#[test]
fn a_second_stream_comes_in_by_an_event_and_has_to_be_waited_for() {
    for joined in [false, true] {
        let m = Machine::new("");
        let (a, b, x) = (m.stream(), m.stream(), m.alloc(4));
        let [fork, join] = [(), ()].map(|()| {
            let mut event = null_mut();
            assert_eq!(acl!(m, aclrtCreateEventExWithFlag(&mut event, ACL_EVENT_SYNC as u32)), 0);
            event
        });
        begin(&m, a, GLOBAL);
        assert_eq!(acl!(m, aclrtRecordEvent(fork, a)), 0);
        assert_eq!(acl!(m, aclrtStreamWaitEvent(b, fork)), 0);
        assert_eq!(acl!(m, aclrtMemsetAsync(x, 4, 1, 4, b)), 0);
        if joined {
            assert_eq!(acl!(m, aclrtRecordEvent(join, b)), 0);
            assert_eq!(acl!(m, aclrtStreamWaitEvent(a, join)), 0);
        }
        assert_eq!(end(&m, a).0, if joined { 0 } else { ACL_ERROR_RT_STREAM_UNJOINED });
    }
}

#[test]
fn graphs_take_streams_of_their_card_and_some_chips_have_none() {
    let m = Machine::new("streams=2");
    let stream = m.stream();
    begin(&m, stream, GLOBAL);
    assert_eq!(end(&m, stream).0, 0);
    begin(&m, stream, GLOBAL);
    assert_eq!(end(&m, stream).0, ACL_ERROR_RT_RESOURCE_ALLOC_FAIL);
    drop(m);
    let m = Machine::new("soc=Ascend310B1");
    assert_eq!(acl!(m, aclmdlRICaptureBegin(m.stream(), GLOBAL)), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
}
