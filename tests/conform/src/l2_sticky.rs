//! L2: an error of stream scope stays with its stream, whatever is called, until it is destroyed; no other is affected.
//!
//! No work that a host gives breaks a stream of a healthy device. So the cases inject it: they compute a node with the
//! op number [`BREAK_STREAM`], which no op will ever have. A device whose errors are to be tested answers it with an
//! error of stream scope, from `compute` or from the next `synchronize`; any other refuses it like all unknown ops.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, lacking, wrong};
use crate::session::Session;
use crate::work::Chain;
use llmrt_abi::{DType, Scope, Status, types as c};
use llmrt_host::{Device, Error, NodeDesc, RawGraph, RawGraphBuilder, Stream, TensorDesc};
use std::sync::Arc;

/// The op number at which a device breaks the stream that computes it.
pub const BREAK_STREAM: u32 = 0x7fff_fff1;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("errors of stream scope stay", stays),
    ("errors of stream scope leave other streams alone", others_go_on),
    ("the host answers for a broken stream", host_answers),
];

/// A graph of one node with an op that no header has.
pub fn graph_of(device: &Arc<Device>, op: u32) -> Verdict<RawGraph> {
    let buffer = device.alloc(0, 1 << 16, c::USAGE_COMPUTE)?;
    let mut g = RawGraphBuilder::new();
    let x = TensorDesc { buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [16, 1, 1, 1]) };
    let y = TensorDesc { offset: device.alignment().max(64), ..x };
    let (x, y) = (g.tensor(&x)?, g.tensor(&y)?);
    g.node(&NodeDesc { op, op_version: 1, dst: y, srcs: &[Some(x)], params: &[] })?;
    Ok(g.build())
}

/// A stream that broke, and its error.
fn broken(device: &Arc<Device>) -> Verdict<(Stream, Error)> {
    let (bad, stream) = (graph_of(device, BREAK_STREAM)?, device.stream(0)?);
    match stream.compute(&bad).and_then(|()| stream.synchronize()) {
        Err(e) if e.scope() == Scope::Stream => Ok((stream, e)),
        Err(e) if e.is_unsupported() => lacking("the device breaks no stream on request"),
        Err(e) => wrong(format!("expected UNSUPPORTED, or an error of stream scope, got: {e}")),
        Ok(()) => wrong("a node with an unknown op was computed without an error"),
    }
}

fn stays(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (stream, first) = broken(&device)?;
    let (buffer, event) = (device.alloc(0, 256, c::USAGE_COMPUTE)?, device.event()?);
    let (empty, t) = (RawGraphBuilder::new().build(), TensorDesc::bytes(0, 64));
    let other = device.stream(0)?;
    for round in 0..3 {
        // The host would answer by itself: each call is to reach the plugin.
        let expect = |call: &str, answer: &dyn Fn() -> llmrt_host::Result<()>| -> Verdict {
            stream.forget_error();
            let again = answer();
            let same = |e: &Error| e.scope() == Scope::Stream && e.status() == first.status();
            insist(again.as_ref().is_err_and(same), || {
                let now = again.as_ref().map_or_else(ToString::to_string, |()| "OK".into());
                format!(
                    "errors are not sticky: the stream broke ({first}), and then {call} answered: {now} (round {round})"
                )
            })
        };
        expect("compute", &|| stream.compute(&empty))?;
        expect("synchronize", &|| stream.synchronize())?;
        expect("set_async", &|| stream.set_async(&buffer, &t, vec![1; 64].into(), 0))?;
        expect("get_async", &|| stream.get_async(&buffer, &t, 0, 64).map(drop))?;
        expect("event_record", &|| stream.record(&event))?;
        if event.is_native() {
            expect("event_wait", &|| stream.wait(&event))?;
        }
        expect("copy_async", &|| stream.copy_async(&other, (&buffer, &t), (&buffer, &t)))?;
        if stream.has_plans() {
            expect("plan_create", &|| stream.plan(empty.clone()).map(drop))?;
        }
    }
    Ok(())
}

/// Streams made before and after, with the broken one alive and gone, compute.
fn others_go_on(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let before = device.stream(0)?;
    let (stream, _) = broken(&device)?;
    let works = |stream: &Stream, which: &str| -> Verdict {
        let chain = Chain::new(&device, 4096, 2)?;
        let first = chain.start(1)?;
        stream.compute(&chain.graph)?;
        stream.synchronize()?;
        chain.expect(&chain.b(), &chain.after(&first, 1), which)
    };
    let check = |stream: &Stream, which: &str| works(stream, which).map_err(|t| t.during(which));
    check(&before, "another stream, beside the broken one")?;
    check(&device.stream(0)?, "a new stream, beside the broken one")?;
    drop(stream);
    check(&before, "another stream, after the broken one")?;
    check(&device.stream(0)?, "a new stream, after the broken one")?;
    device.memory()?;
    Ok(())
}

/// Unless it is made to forget, the host returns the error itself.
fn host_answers(session: &mut Session) -> Verdict {
    let (stream, first) = broken(&session.device()?)?;
    let again = [stream.synchronize(), stream.compute(&RawGraphBuilder::new().build())];
    for answer in again {
        insist(answer.as_ref() == Err(&first), || {
            format!("the stream broke ({first}), and then: {answer:?}")
        })?;
    }
    let device = stream.device();
    insist(device.stream(0).is_ok() && first.status() != Status::DeviceLost, || {
        format!("an error of stream scope took the device with it: {first}")
    })
}
