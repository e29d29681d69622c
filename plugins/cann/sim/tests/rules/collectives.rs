//! Rule 14: communicators and collectives.

use super::machine::Machine;
use cann_simulator::door::{count, reports};
use cann_simulator::sys::*;
use std::ffi::c_void;
use std::thread::scope;

/// Calls a function of the collectives.
macro_rules! hccl {
    ($m:expr, $name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: arguments as the header specifies them, or wrong in a way that the test is about.
        unsafe { $m.t.hccl.$name.expect(stringify!($name))($($arg),*) }
    };
}

/// A card's end, stream and memory, for the thread of the card.
#[derive(Clone, Copy)]
struct Rank {
    card: i32,
    comm: HcclComm,
    stream: aclrtStream,
    x: *mut c_void,
}

// SAFETY: handles, which every thread may use after setting the card.
unsafe impl Send for Rank {}

fn init(m: &Machine, devices: &[i32]) -> (i32, Vec<HcclComm>) {
    let (mut devices, mut comms) = (devices.to_vec(), vec![std::ptr::null_mut(); devices.len()]);
    let status = hccl!(m, HcclCommInitAll(devices.len() as u32, devices.as_mut_ptr(), comms.as_mut_ptr()));
    (status, comms)
}

/// Ends of these many cards, with one number on each.
fn ranks(m: &Machine, n: usize) -> Vec<Rank> {
    let cards: Vec<i32> = (0..n as i32).collect();
    let (status, comms) = init(m, &cards);
    assert_eq!(status, 0, "{}", m.message());
    let rank = |(&card, &comm): (&i32, &HcclComm)| {
        assert_eq!(acl!(m, aclrtSetDevice(card)), 0);
        Rank { card, comm, stream: m.stream(), x: m.floats(&[card as f32 + 1.0, 0.0]) }
    };
    cards.iter().zip(&comms).map(rank).collect()
}

/// A sum in place, called on the thread of the rank's card.
fn sum(m: &Machine, r: Rank, n: u64) -> i32 {
    assert_eq!(acl!(m, aclrtSetDevice(r.card)), 0);
    hccl!(m, HcclAllReduce(r.x, r.x, n, HCCL_DATA_TYPE_FP32, HCCL_REDUCE_SUM, r.comm, r.stream))
}

/// The machine, for several threads: its tables are functions.
struct Shared<'a>(&'a Machine);

// SAFETY: the functions may be called on every thread; the turn stays with the test's own.
unsafe impl Sync for Shared<'_> {}

impl Shared<'_> {
    fn machine(&self) -> &Machine {
        self.0
    }
}

/// The same on a thread for each rank; statuses by rank.
fn on_threads(m: &Machine, ranks: &[Rank], call: impl Fn(&Machine, Rank) -> i32 + Sync) -> Vec<i32> {
    let (m, call) = (&Shared(m), &call);
    scope(|s| {
        let threads: Vec<_> = ranks.iter().map(|&r| s.spawn(move || call(m.machine(), r))).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn a_communicator_has_each_card_once_and_needs_a_card_on_the_thread() {
    let m = Machine::new("devices=2,memory=1g");
    assert_eq!(init(&m, &[0, 0]).0, HCCL_E_PARA);
    assert_eq!(init(&m, &[0, 2]).0, HCCL_E_PARA);
    assert_eq!(init(&m, &[]).0, HCCL_E_PARA);
    let shared = &Shared(&m);
    let elsewhere = scope(|s| s.spawn(move || init(shared.machine(), &[0, 1]).0).join().unwrap());
    assert_eq!(elsewhere, HCCL_E_RUNTIME);
    assert_eq!(init(&m, &[1, 0]).0, 0);
}

#[test]
fn chips_form_what_their_pages_list() {
    for (soc, cards, status) in [
        ("Ascend310B1", 2, HCCL_E_NOT_SUPPORT),
        ("Ascend910A", 3, HCCL_E_PARA),
        ("Ascend910A", 4, 0),
        ("Ascend310P3", 2, 0),
        ("Ascend910B3", 3, 0),
    ] {
        let m = Machine::new(&format!("soc={soc},devices=4,memory=1g"));
        assert_eq!(init(&m, &[0, 1, 2, 3][..cards]).0, status, "{cards} × {soc}");
    }
    let m = Machine::new("soc=Ascend310P3,devices=2,memory=1g");
    let ends = ranks(&m, 2);
    let r = ends[0];
    assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
    let status = hccl!(m, HcclBroadcast(r.x, 1, HCCL_DATA_TYPE_FP32, 0, r.comm, r.stream));
    assert_eq!(status, HCCL_E_NOT_SUPPORT, "no broadcast on a 310P");
}

#[test]
fn on_a_310p_a_communicator_comes_before_other_memory() {
    let m = Machine::new("soc=Ascend310P3,devices=2,memory=1g");
    m.alloc(64);
    assert_eq!(init(&m, &[0, 1]).0, HCCL_E_MEMORY);
    assert_eq!(reports().len(), 1);
    drop(m);
    let m = Machine::new("devices=2,memory=1g");
    m.alloc(64);
    assert_eq!(init(&m, &[0, 1]).0, 0, "other chips take it at any time");
}

#[test]
fn each_end_takes_its_buffers_of_the_card() {
    let m = Machine::new("devices=2,memory=300m");
    assert_eq!(init(&m, &[0, 1]).0, HCCL_E_MEMORY);
    let (mut free, mut total) = (0, 0);
    assert_eq!(acl!(m, aclrtGetMemInfo(ACL_HBM_MEM, &mut free, &mut total)), 0);
    assert_eq!(free, total, "nothing stays taken");
}

/// The first call of a kind waits in the calling thread for the other ranks': one thread cannot make it for two.
#[test]
fn ranks_that_never_call_leave_the_others_waiting_and_are_reported() {
    let m = Machine::new("devices=2,memory=1g,watchdog=1");
    let ends = ranks(&m, 2);
    assert_eq!(sum(&m, ends[0], 1), HCCL_E_TIMEOUT);
    assert!(reports()[0].contains("ranks {0} of 2 have called"), "{:?}", reports());
}

#[test]
fn later_calls_return_and_the_card_waits() {
    let m = Machine::new("devices=2,memory=1g,watchdog=1,queue=delay");
    let ends = ranks(&m, 2);
    assert_eq!(on_threads(&m, &ends, |m, r| sum(m, r, 1)), [0, 0]);
    assert_eq!(sum(&m, ends[0], 1), 0, "its ways to the others are there");
    assert_eq!(m.sync(ends[0].stream), ACL_ERROR_RT_TASK_TIMEOUT);
    assert!(reports()[0].contains("ranks [0] of 2 wait"), "{:?}", reports());
}

#[test]
fn sums_are_of_all_ranks_in_the_order_of_their_streams() {
    for queue in ["delay", "now", "sync"] {
        let m = Machine::new(&format!("devices=2,memory=1g,queue={queue}"));
        let ends = ranks(&m, 2);
        for expected in [3.0, 6.0, 12.0] {
            assert_eq!(on_threads(&m, &ends, |m, r| sum(m, r, 1)), [0, 0]);
            for r in &ends {
                assert_eq!(acl!(m, aclrtSetDevice(r.card)), 0);
                assert_eq!(m.sync(r.stream), 0);
                assert_eq!(m.read::<f32>(r.x, 2), [expected, 0.0], "{queue}, card {}", r.card);
            }
        }
        assert_eq!((count("collective"), reports().len()), (3, 0));
    }
}

#[test]
fn ranks_call_the_same_in_the_same_order() {
    let m = Machine::new("devices=2,memory=1g,watchdog=1");
    let ends = ranks(&m, 2);
    assert_eq!(on_threads(&m, &ends, |m, r| sum(m, r, 1)), [0, 0]);
    let mut statuses = on_threads(&m, &ends, |m, r| sum(m, r, 1 + r.card as u64));
    statuses.sort_unstable();
    assert_eq!(statuses, [0, HCCL_E_PARA], "another count");
    assert!(reports()[0].contains("count: 1") && reports()[0].contains("count: 2"), "{:?}", reports());
}

#[test]
fn a_rank_is_called_on_its_card_with_its_own_addresses() {
    let m = Machine::new("devices=2,memory=1g,watchdog=1,strict=0");
    let ends = ranks(&m, 2);
    let wrong = Rank { comm: ends[1].comm, ..ends[0] };
    assert_eq!(sum(&m, wrong, 1), HCCL_E_RUNTIME, "rank 1 on card 0");
    let swapped = [Rank { x: ends[1].x, ..ends[0] }, ends[1]];
    assert_eq!(on_threads(&m, &swapped, |m, r| sum(m, r, 1)), [0, 0]);
    assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
    assert_eq!(m.sync(ends[0].stream), ACL_ERROR_RT_PARAM_INVALID, "memory of another card");
    let odd = Rank { x: ends[0].x.wrapping_byte_add(2), ..ends[0] };
    assert_eq!(sum(&m, odd, 1), HCCL_E_PARA, "numbers begin at multiples of their size");
    assert_eq!(sum(&m, Rank { x: std::ptr::null_mut(), ..ends[0] }, 1), HCCL_E_PTR);
}

/// Waits for a counter.
fn until(name: &str, n: u64) {
    while count(name) < n {
        std::thread::yield_now();
    }
}

#[test]
fn what_waits_ends_with_the_communicator_or_the_stream() {
    let m = Machine::new("devices=2,memory=1g,watchdog=20");
    let ends = ranks(&m, 2);
    let (shared, first) = (&Shared(&m), ends[0]);
    let waiting = scope(|s| {
        let call = s.spawn(move || sum(shared.machine(), first, 1));
        until("collective.waits", 1);
        assert_eq!(hccl!(m, HcclCommDestroy(first.comm)), 0);
        call.join().unwrap()
    });
    assert_eq!(waiting, HCCL_E_INTERNAL, "it waited for the other rank's first call");
    drop(m);

    let m = Machine::new("devices=2,memory=1g,watchdog=20,queue=delay");
    let ends = ranks(&m, 2);
    assert_eq!(on_threads(&m, &ends, |m, r| sum(m, r, 1)), [0, 0]);
    for r in ends.iter().rev() {
        assert_eq!(acl!(m, aclrtSetDevice(r.card)), 0);
        assert_eq!(m.sync(r.stream), 0, "else the other rank's work waits for what is aborted");
    }
    assert_eq!(sum(&m, ends[0], 1), 0);
    until("collective.begun", 3); // what has not begun is dropped
    assert_eq!(hccl!(m, HcclCommDestroy(ends[0].comm)), HCCL_E_AGAIN, "its work is on the card");
    assert_eq!(acl!(m, aclrtStreamAbort(ends[0].stream)), 0);
    assert_eq!(m.sync(ends[0].stream), ACL_ERROR_RT_STREAM_ABORT);
    // The stream is done a moment before its work is gone.
    let again = || hccl!(m, HcclCommDestroy(ends[0].comm)) == HCCL_E_AGAIN;
    assert!(
        (0..10_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            !again()
        }),
        "nothing is on its way"
    );
    assert_eq!(hccl!(m, HcclCommDestroy(ends[0].comm)), HCCL_E_PARA, "destroyed twice");
    assert_eq!(sum(&m, ends[1], 1), HCCL_E_PARA, "no end is left to call with");
}

#[test]
fn streams_are_aborted_on_a2_and_a3() {
    let m = Machine::new("soc=Ascend310P3");
    assert_eq!(acl!(m, aclrtStreamAbort(m.stream())), ACL_ERROR_RT_FEATURE_NOT_SUPPORT);
    drop(m);
    let m = Machine::new("queue=sync");
    let (stream, x) = (m.stream(), m.floats(&[1.0]));
    assert_eq!(m.double(x, x, 1, stream), 0);
    assert_eq!(acl!(m, aclrtStreamAbort(stream)), 0);
    assert_eq!(m.sync(stream), 0);
    assert_eq!(m.read::<f32>(x, 1), [1.0], "what had not begun is dropped");
}

/// On an A2 sums are in any order unless that is set.
#[test]
fn sums_repeat_where_that_is_set() {
    let sums = |deterministic: bool| {
        let m = Machine::new("devices=4,memory=1g,queue=now");
        assert_eq!(hccl!(m, HcclSetConfig(HCCL_DETERMINISTIC, i32::from(deterministic))), 0);
        let ends = ranks(&m, 4);
        let one = || {
            for (r, x) in ends.iter().zip([1e8f32, 1.0, -1e8, 1.0]) {
                assert_eq!(acl!(m, aclrtSetDevice(r.card)), 0);
                assert_eq!(m.write(r.x, &[x]), 0);
            }
            assert_eq!(on_threads(&m, &ends, |m, r| sum(m, r, 1)), [0; 4]);
            // The thread's card is the last one.
            assert_eq!(m.sync(ends[3].stream), 0);
            m.read::<f32>(ends[3].x, 1)[0]
        };
        let mut all: Vec<f32> = (0..8).map(|_| one()).collect();
        all.sort_by(f32::total_cmp);
        all.dedup();
        all.len()
    };
    assert_eq!(sums(true), 1);
    assert!(sums(false) > 1);
    let m = Machine::new("");
    assert_eq!(hccl!(m, HcclSetConfig(7, 1)), HCCL_E_PARA);
}
