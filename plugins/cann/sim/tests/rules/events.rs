//! Rule 13: events.

use super::machine::Machine;
use cann_simulator::door::reports;
use cann_simulator::sys::*;

fn event(m: &Machine, ex: bool, flags: i32) -> aclrtEvent {
    let mut event = std::ptr::null_mut();
    let status = match ex {
        true => acl!(m, aclrtCreateEventExWithFlag(&mut event, flags as u32)),
        false => acl!(m, aclrtCreateEventWithFlag(&mut event, flags as u32)),
    };
    assert_eq!(status, 0);
    event
}

#[test]
fn a_stream_waits_for_the_latest_record_at_the_time_of_the_call() {
    let m = Machine::new("queue=sync");
    let (a, b, x, y) = (m.stream(), m.stream(), m.floats(&[1.0]), m.alloc(4));
    let done = event(&m, true, ACL_EVENT_SYNC);
    assert_eq!(m.double(x, x, 1, a), 0);
    assert_eq!(acl!(m, aclrtRecordEvent(done, a)), 0);
    assert_eq!(acl!(m, aclrtStreamWaitEvent(b, done)), 0);
    assert_eq!(m.double(x, y, 1, b), 0);
    assert_eq!(m.double(x, x, 1, a), 0);
    assert_eq!(acl!(m, aclrtRecordEvent(done, a)), 0);
    assert_eq!(m.sync(b), 0);
    assert_eq!(m.read::<f32>(y, 1), [4.0], "the first doubling came before, the second did not");
}

#[test]
fn an_event_never_recorded_is_complete_and_holds_nothing_up() {
    let m = Machine::new("queue=sync");
    let (stream, never) = (m.stream(), event(&m, true, ACL_EVENT_SYNC));
    let mut status = -1;
    assert_eq!(acl!(m, aclrtQueryEventStatus(never, &mut status)), 0);
    assert_eq!(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    assert_eq!(acl!(m, aclrtStreamWaitEvent(stream, never)), 0);
    assert_eq!((m.sync(stream), acl!(m, aclrtSynchronizeEvent(never))), (0, 0));
}

#[test]
fn done_has_another_number_for_events_than_for_streams() {
    let m = Machine::new("queue=sync");
    let (stream, mark) = (m.stream(), event(&m, true, ACL_EVENT_SYNC));
    assert_eq!(acl!(m, aclrtRecordEvent(mark, stream)), 0);
    let mut status = -1;
    assert_eq!(acl!(m, aclrtQueryEventStatus(mark, &mut status)), 0);
    assert_eq!(status, ACL_EVENT_RECORDED_STATUS_NOT_READY);
    assert_eq!(m.sync(stream), 0);
    assert_eq!(acl!(m, aclrtQueryEventStatus(mark, &mut status)), 0);
    assert_eq!(status, ACL_EVENT_RECORDED_STATUS_COMPLETE);
    assert_ne!(ACL_EVENT_RECORDED_STATUS_COMPLETE, ACL_STREAM_STATUS_COMPLETE);
}

#[test]
fn only_the_older_kind_is_reset_and_only_time_lines_have_times() {
    let m = Machine::new("");
    let (stream, newer, older) =
        (m.stream(), event(&m, true, ACL_EVENT_SYNC), event(&m, false, ACL_EVENT_SYNC));
    assert_eq!(acl!(m, aclrtResetEvent(newer, stream)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(acl!(m, aclrtResetEvent(older, stream)), 0);
    let mut ms = -1.0;
    let status = acl!(m, aclrtEventElapsedTime(&mut ms, newer, older));
    assert_eq!(status, ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID);
    let marks = [event(&m, false, ACL_EVENT_TIME_LINE), event(&m, false, ACL_EVENT_TIME_LINE)];
    marks.iter().for_each(|mark| assert_eq!(acl!(m, aclrtRecordEvent(*mark, stream)), 0));
    assert_eq!(m.sync(stream), 0);
    assert_eq!(acl!(m, aclrtEventElapsedTime(&mut ms, marks[0], marks[1])), 0);
    assert!(ms >= 0.0);
    assert_eq!(
        acl!(m, aclrtStreamWaitEvent(stream, marks[0])),
        ACL_ERROR_RT_PARAM_INVALID,
        "made without SYNC"
    );
}

#[test]
fn an_event_is_recorded_on_its_own_card() {
    let m = Machine::new("devices=2");
    let mark = event(&m, true, ACL_EVENT_SYNC);
    assert_eq!(acl!(m, aclrtSetDevice(1)), 0);
    assert_eq!(acl!(m, aclrtRecordEvent(mark, m.stream())), ACL_ERROR_RT_PARAM_INVALID);
}

#[test]
fn an_event_destroyed_while_it_is_in_use_is_reported() {
    let m = Machine::new("queue=sync");
    let mark = event(&m, true, ACL_EVENT_SYNC);
    assert_eq!(acl!(m, aclrtRecordEvent(mark, m.stream())), 0);
    assert_eq!(acl!(m, aclrtDestroyEvent(mark)), ACL_ERROR_RT_PARAM_INVALID);
    assert_eq!(reports(), ["an event was destroyed with 1 uses enqueued"]);
}

#[test]
fn events_run_out_sooner_on_the_310p() {
    let m = Machine::new("soc=Ascend310P3");
    let events: Vec<_> = (0..1023).map(|_| event(&m, true, ACL_EVENT_SYNC)).collect();
    let mut one = std::ptr::null_mut();
    assert_eq!(acl!(m, aclrtCreateEvent(&mut one)), ACL_ERROR_RT_NO_EVENT_RESOURCE);
    assert_eq!(acl!(m, aclrtDestroyEvent(events[0])), 0);
    assert_eq!(acl!(m, aclrtCreateEvent(&mut one)), 0);
}
