//! The collectives: what the functions of libhccl and libhcomm do.
//!
//! Sources: the pages of HcclCommInitAll, HcclCommDestroy, HcclAllReduce, HcclAllGather, HcclBroadcast, HcclSetConfig, of the
//! system's constraints and of HCCL_BUFFSIZE, HCCL_CONNECT_TIMEOUT and HCCL_DETERMINISTIC (hccl and hcomm, 9.1; the page of
//! HcclCommInitAll from 8.0 on), and the checks at the beginning of these functions in `op_base.cc` and `op_base_host.cc`.

pub mod ring;

use crate::fault::{Answer, ensure, fault};
use crate::runtime::capture;
use crate::runtime::context::current;
use crate::runtime::stream::resolve;
use crate::sys::*;
use crate::world::{World, api, put};
use ring::{Comm, Kind, Ring, What};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

api! { cann_hccl;
    /// All cards of one process. Each end takes twice HCCL_BUFFSIZE (in MB, 200) of its card for what it sends and receives.
    fn HcclCommInitAll(n: u32, devices: *mut i32, comms: *mut HcclComm) w => {
        current(w).map_err(|f| crate::fault::Fault { code: HCCL_E_RUNTIME, ..f })?;
        ensure(n > 0, HCCL_E_PARA, || "a communicator of no cards".into())?;
        ensure(!devices.is_null() && !comms.is_null(), HCCL_E_PTR, || "NULL".into())?;
        // SAFETY: the header's contract: as many numbers as passed.
        let devices = unsafe { std::slice::from_raw_parts(devices, n as usize) };
        let distinct: BTreeSet<_> = devices.iter().collect();
        ensure(distinct.len() == devices.len(), HCCL_E_PARA, || format!("cards {devices:?} repeat"))?;
        let known = devices.iter().all(|d| usize::try_from(*d).is_ok_and(|d| d < w.cards.len()));
        ensure(known, HCCL_E_PARA, || format!("cards {devices:?} of {}", w.cards.len()))?;
        may_form(w, devices)?;
        let ring = Ring::new(w, devices.iter().map(|d| *d as usize).collect())?;
        for rank in 0..devices.len() {
            let comm = w.comms.insert(Comm { ring: ring.clone(), rank });
            // SAFETY: the header's contract: room for as many as passed.
            put(unsafe { comms.add(rank) }, comm as HcclComm)?;
        }
        Ok(())
    }
    /// Ends what waits for cards that have not called yet; "again" while work of the communicator is on a card.
    fn HcclCommDestroy(comm: HcclComm) w => {
        let end = find(w, comm)?;
        ensure(!end.ring.is_busy(), HCCL_E_AGAIN, || "a collective is on its way".into())?;
        w.comms.remove(comm as usize);
        end.ring.leave(w);
        Ok(())
    }
    fn HcclAllReduce(
        send: *mut c_void, recv: *mut c_void, count: u64, dtype: HcclDataType, op: HcclReduceOp, comm: HcclComm,
        stream: aclrtStream,
    ) w => {
        if count == 0 { return Ok(()) }
        ensure(op == HCCL_REDUCE_SUM, HCCL_E_NOT_SUPPORT, || "the simulator adds up, and nothing else".into())?;
        let sums = [HCCL_DATA_TYPE_FP32, HCCL_DATA_TYPE_INT8].contains(&dtype);
        ensure(sums, HCCL_E_NOT_SUPPORT, || format!("the simulator adds no numbers of type {dtype}"))?;
        enqueue(w, comm, stream, What { kind: Kind::Reduce, count, dtype, root: 0 }, (send, recv))
    }
    fn HcclAllGather(
        send: *mut c_void, recv: *mut c_void, count: u64, dtype: HcclDataType, comm: HcclComm, stream: aclrtStream,
    ) w => {
        if count == 0 { return Ok(()) }
        enqueue(w, comm, stream, What { kind: Kind::Gather, count, dtype, root: 0 }, (send, recv))
    }
    fn HcclBroadcast(
        buf: *mut c_void, count: u64, dtype: HcclDataType, root: u32, comm: HcclComm, stream: aclrtStream,
    ) w => {
        if count == 0 { return Ok(()) }
        ensure(!w.chip.is_310p(), HCCL_E_NOT_SUPPORT, || "no broadcast on a 310P".into())?;
        let n = find(w, comm)?.ring.devices.len();
        ensure((root as usize) < n, HCCL_E_PARA, || format!("root {root} of {n} ranks"))?;
        enqueue(w, comm, stream, What { kind: Kind::Broadcast, count, dtype, root: root as usize }, (buf, buf))
    }
    /// 1: sums in the same order in every run.
    fn HcclSetConfig(config: HcclConfig, value: i32) w => {
        let known = config == HCCL_DETERMINISTIC && (0..=2).contains(&value);
        ensure(known, HCCL_E_PARA, || format!("option {config}, value {value}"))?;
        // The variable takes precedence (op_base.cc).
        if std::env::var_os("HCCL_DETERMINISTIC").is_none() {
            w.deterministic.store(value > 0, Relaxed);
        }
        Ok(())
    }
}

/// What chips refuse.
fn may_form(w: &World, devices: &[i32]) -> Answer {
    ensure(!w.config.hccl_refuses, HCCL_E_NOT_SUPPORT, || "refused, as configured".into())?;
    ensure(!w.chip.is_310b(), HCCL_E_NOT_SUPPORT, || "a 310B forms no communicator".into())?;
    let few = !w.chip.is_first_910() || [1, 2, 4, 8].contains(&devices.len());
    ensure(few, HCCL_E_PARA, || format!("{} cards; the first 910 takes 1, 2, 4 or 8", devices.len()))?;
    let used = devices.iter().map(|d| w.memory.info(*d as usize)).any(|(free, total)| free < total);
    match w.chip.is_310p() && used {
        true => w.doubt(
            HCCL_E_MEMORY,
            "on a 310P a communicator comes before all other memory of its cards".into(),
        ),
        false => Ok(()),
    }
}

fn find(w: &World, comm: HcclComm) -> Answer<Arc<Comm>> {
    w.comms.get(comm as usize).map_or_else(|| fault(HCCL_E_PARA, format!("{comm:p} is no communicator")), Ok)
}

/// One rank's call of a collective.
fn enqueue(
    w: &Arc<World>,
    comm: HcclComm,
    stream: aclrtStream,
    what: What,
    (send, recv): (*mut c_void, *mut c_void),
) -> Answer {
    let end = find(w, comm)?;
    let null = send.is_null() || recv.is_null() || stream.is_null();
    ensure(!null, HCCL_E_PTR, || "a NULL address or stream".into())?;
    let card = end.ring.devices[end.rank];
    let here = current(w)?.device;
    ensure(here == card, HCCL_E_RUNTIME, || {
        format!("rank {} is card {card}; the thread's is {here}", end.rank)
    })?;
    let bytes = bytes(what.dtype);
    ensure(bytes > 0, HCCL_E_PARA, || format!("type {}", what.dtype))?;
    let bf16 = what.dtype != HCCL_DATA_TYPE_BFP16 || w.chip.bf16;
    ensure(bf16, HCCL_E_NOT_SUPPORT, || "no BF16 on this chip".into())?;
    let aligned = [send, recv].iter().all(|at| (*at as usize).is_multiple_of(bytes as usize));
    ensure(aligned, HCCL_E_PARA, || format!("{send:p} and {recv:p} of {bytes}-byte numbers"))?;
    let stream = resolve(w, stream)?;
    ensure(!capture::is_capturing(&stream), HCCL_E_NOT_SUPPORT, || {
        "the simulator captures no collectives".into()
    })?;
    end.ring.call(w, &end, &stream, what, (send as usize, recv as usize))
}

/// Bytes of a number; 0 of an unknown type.
pub(crate) fn bytes(dtype: HcclDataType) -> u64 {
    match dtype {
        HCCL_DATA_TYPE_INT8 => 1,
        HCCL_DATA_TYPE_FP16 | HCCL_DATA_TYPE_BFP16 => 2,
        HCCL_DATA_TYPE_FP32 => 4,
        _ => 0,
    }
}
