//! L2: work of a stream happens in order, from any thread, and is done after `synchronize`.

use crate::catalogue::Fixed;
use crate::l1_sharing::on_threads;
use crate::l2_sticky::graph_of;
use crate::outcome::{Verdict, insist, wrong};
use crate::session::Session;
use crate::work::{Chain, bytes_of, near};
use llmrt_abi::Scope;
use llmrt_host::{RawGraph, RawGraphBuilder};
use std::time::Duration;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("an empty graph is computed", empty_graph),
    ("synchronize on an idle stream returns", idle),
    ("many computes, one synchronize", delaying),
    ("work is done when synchronize returns", done_after_synchronize),
    ("uploads and computes keep their order", uploads_in_order),
    ("asynchronous reads see what was enqueued before them", reads_in_order),
    ("synchronous set and get between computes", synchronous_moves),
    ("set and get beside queued work on other bytes", moves_beside_work),
    ("a stream moves from thread to thread", migrates),
    ("threads take turns on one stream", shared),
    ("streams work side by side", side_by_side),
    ("streams end with work in flight", ends_busy),
    ("buffers and graphs may go before the stream is waited for", objects_go_first),
    ("a refused node is named and the stream goes on", refused_node),
    ("a copy on one device waits for what it copies", copy_between_streams),
    ("the floating point mode stays", float_mode),
];

const SMALL: usize = 4096;
const LARGE: usize = 1 << 16;

fn no_nodes() -> RawGraph {
    RawGraphBuilder::new().build()
}

fn empty_graph(session: &mut Session) -> Verdict {
    let stream = session.device()?.stream(0)?;
    for _ in 0..3 {
        stream.compute(&no_nodes())?;
    }
    Ok(stream.synchronize()?)
}

fn idle(session: &mut Session) -> Verdict {
    let stream = session.device()?.stream(0)?;
    (0..100).try_for_each(|_| Ok(stream.synchronize()?))
}

fn delaying(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, SMALL, 4)?, device.stream(0)?);
    let first = chain.start(1)?;
    const N: usize = 500;
    for _ in 0..N {
        stream.compute(&chain.graph)?;
    }
    stream.synchronize()?;
    chain.expect(&chain.b(), &chain.after(&first, N), "after 500 computes and one synchronize")
}

fn done_after_synchronize(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, LARGE, 64)?, device.stream(0)?);
    for round in 0..3 {
        let first = chain.start(round)?;
        let n = chain.keep_busy(&stream, Duration::from_millis(20))?;
        stream.synchronize()?;
        chain.expect(&chain.b(), &chain.after(&first, n), "right after synchronize")?;
    }
    Ok(())
}

fn uploads_in_order(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, LARGE, 16)?, device.stream(0)?);
    chain.start(1)?;
    chain.keep_busy(&stream, Duration::from_millis(5))?;
    for round in 2..6 {
        let values = chain.values(round);
        stream.set_async(&chain.buffer, &chain.b(), bytes_of(&values).into(), 0)?;
        stream.compute(&chain.reader)?;
        stream.compute(&chain.graph)?;
        // Overwrites what the graph before it reads.
        stream.set_async(&chain.buffer, &chain.b(), bytes_of(&chain.values(99)).into(), 0)?;
        let read = stream.get_async(&chain.buffer, &chain.out(), 0, LARGE as u64 * 4)?;
        near(&stream.take(read)?, &chain.read_of(&values), "computed between two uploads")?;
    }
    chain.expect(&chain.b(), &chain.values(99), "the last upload")
}

fn reads_in_order(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, LARGE, 32)?, device.stream(0)?);
    let first = chain.start(3)?;
    let n = chain.keep_busy(&stream, Duration::from_millis(10))?;
    let early = stream.get_async(&chain.buffer, &chain.b(), 0, LARGE as u64 * 4)?;
    stream.compute(&chain.graph)?;
    let late = stream.get_async(&chain.buffer, &chain.b(), 8, LARGE as u64 * 4 - 8)?;
    let (early, late) = (stream.take(early)?, stream.take(late)?);
    near(&early, &chain.after(&first, n), "read before the last compute")?;
    near(&late, &chain.after(&first, n + 1)[2..], "read after the last compute")
}

fn synchronous_moves(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, SMALL, 2)?, device.stream(0)?);
    chain.start(1)?;
    for round in 0..20 {
        let values = chain.values(round);
        chain.buffer.set(&chain.b(), &bytes_of(&values), 0)?;
        stream.compute(&chain.graph)?;
        stream.synchronize()?;
        chain.expect(&chain.b(), &chain.after(&values, 1), "set, compute, synchronize, get")?;
    }
    Ok(())
}

/// `set`, `get` and `fill` of bytes that no queued work uses are done at once and leave the work alone.
fn moves_beside_work(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, LARGE, 64)?, device.stream(0)?);
    let first = chain.start(1)?;
    let n = chain.keep_busy(&stream, Duration::from_millis(20))?;
    for round in 0..4 {
        let values = chain.values(round);
        chain.buffer.set(&chain.out(), &bytes_of(&values), 0)?;
        chain.expect(&chain.out(), &values, "set and read while a stream works on other bytes")?;
        let out = chain.out();
        chain.buffer.fill(out.offset, LARGE as u64 * 4, 0)?;
        chain.expect(&out, &vec![0.0; LARGE], "filled while a stream works on other bytes")?;
    }
    stream.synchronize()?;
    chain.expect(&chain.b(), &chain.after(&first, n), "computed beside set, get and fill")
}

fn migrates(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, LARGE, 8)?, device.stream(0)?);
    let first = chain.start(1)?;
    for _ in 0..6 {
        on_threads(1, &|_| Ok(stream.compute(&chain.graph)?))?;
        stream.compute(&chain.graph)?;
    }
    on_threads(1, &|_| Ok(stream.synchronize()?))?;
    on_threads(1, &|_| chain.expect(&chain.b(), &chain.after(&first, 12), "computed from 7 threads"))
}

fn shared(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (chain, stream) = (Chain::new(&device, SMALL, 2)?, device.stream(0)?);
    let first = chain.start(1)?;
    on_threads(8, &|_| (0..25).try_for_each(|_| Ok(stream.compute(&chain.graph)?)))?;
    stream.synchronize()?;
    chain.expect(&chain.b(), &chain.after(&first, 200), "computed by 8 threads in turns")
}

fn side_by_side(session: &mut Session) -> Verdict {
    let device = session.device()?;
    on_threads(4, &|i| {
        let (chain, stream) = (Chain::new(&device, SMALL * 3, 8)?, device.stream(0)?);
        let first = chain.start(i)?;
        (0..50).try_for_each(|_| stream.compute(&chain.graph))?;
        stream.synchronize()?;
        chain.expect(&chain.b(), &chain.after(&first, 50), "one of four streams")
    })
}

fn ends_busy(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let chain = Chain::new(&device, LARGE, 32)?;
    let first = chain.start(1)?;
    let stream = device.stream(0)?;
    let n = chain.keep_busy(&stream, Duration::from_millis(10))?;
    // Destroying waits, as the host frees what the work uses afterwards.
    drop(stream);
    chain.expect(&chain.b(), &chain.after(&first, n), "after the stream was destroyed")
}

fn objects_go_first(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let stream = device.stream(0)?;
    for _ in 0..10 {
        let chain = Chain::new(&device, LARGE, 8)?;
        chain.start(1)?;
        let event = device.event()?;
        stream.compute(&chain.graph)?;
        stream.record(&event)?;
    }
    let (chain, other) = (Chain::new(&device, SMALL, 2)?, device.stream(0)?);
    let first = chain.start(2)?;
    other.compute(&chain.graph)?;
    other.synchronize()?;
    stream.synchronize()?;
    chain.expect(&chain.b(), &chain.after(&first, 1), "beside work whose objects are gone")
}

fn refused_node(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (bad, stream) = (graph_of(&device, 0x7fff_fff0)?, device.stream(0)?);
    for _ in 0..3 {
        let e = match stream.compute(&bad).and_then(|()| stream.synchronize()) {
            Ok(()) => return wrong("a node with an unknown op was computed without an error"),
            Err(e) => e,
        };
        insist(e.is_unsupported(), || format!("expected UNSUPPORTED for an unknown op, got: {e}"))?;
        let node = e.call().and_then(|call| call.node);
        insist(node == Some(0), || format!("the error names node {node:?}; it was node 0: {e}"))?;
        insist(e.scope() == Scope::Call, || format!("nothing broke, and the scope is {:?}: {e}", e.scope()))?;
    }
    stream.compute(&no_nodes())?;
    stream.synchronize()?;
    let Ok(chain) = Chain::new(&device, SMALL, 2) else { return Ok(()) };
    let first = chain.start(1)?;
    stream.compute(&chain.graph)?;
    stream.synchronize()?;
    chain.expect(&chain.b(), &chain.after(&first, 1), "after a refused node")
}

fn copy_between_streams(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (from, to) = (Chain::new(&device, LARGE, 64)?, Chain::new(&device, LARGE, 2)?);
    let (one, two) = (device.stream(0)?, device.stream(0)?);
    let first = from.start(5)?;
    to.start(6)?;
    let n = from.keep_busy(&one, Duration::from_millis(20))?;
    two.copy_async(&one, (&to.buffer, &to.b()), (&from.buffer, &from.b()))?;
    two.compute(&to.reader)?;
    two.synchronize()?;
    let copied = from.after(&first, n);
    to.expect(&to.b(), &copied, "copied after a long job")?;
    to.expect(&to.out(), &to.read_of(&copied), "computed from the copy")?;
    Ok(one.synchronize()?)
}

/// Numbers below the smallest normal one are still there, and halves round to even.
fn float_mode(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let stream = device.stream(0)?;
    match Chain::new(&device, LARGE, 8) {
        Ok(chain) => {
            chain.start(1)?;
            stream.compute(&chain.graph)?;
        }
        Err(_) => stream.compute(&no_nodes())?,
    }
    stream.synchronize()?;
    let tiny = std::hint::black_box(f32::MIN_POSITIVE) / std::hint::black_box(4.0);
    insist(tiny > 0.0, || "subnormal numbers are flushed to zero on the calling thread".into())?;
    let rounded = std::hint::black_box(16_777_216f32) + std::hint::black_box(1.0);
    insist(rounded == 16_777_216.0, || "the calling thread rounds otherwise than to nearest even".into())
}
