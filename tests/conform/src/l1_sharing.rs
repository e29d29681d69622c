//! L1: memory with several users: the host's own, and buffers on several threads.

use crate::catalogue::Fixed;
use crate::l1_memory::{expect, pattern};
use crate::outcome::{Verdict, insist, lacking, wrong};
use crate::session::Session;
use llmrt_abi::types as c;
use llmrt_host::HostBytes;
use std::sync::Arc;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("host memory is used in place", import_host),
    ("read-only host memory stays as it is", import_read_only),
    ("buffers are used from several threads", threads),
    ("disjoint ranges of one buffer are set from several threads", disjoint_sets),
];

fn import_host(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let mut bytes = pattern(3 * 4096 + 5, 4);
    let Some(memory) = HostBytes::new(&bytes, false) else { return lacking("no host memory") };
    let buffer = match device.import_host(Arc::new(memory)) {
        Err(e) if e.is_unsupported() => return lacking("the device does not use host memory in place"),
        other => other?,
    };
    expect(&buffer, &bytes)?;
    buffer.write(101, &[1, 2, 3])?;
    bytes[101..104].copy_from_slice(&[1, 2, 3]);
    expect(&buffer, &bytes)
}

fn import_read_only(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let bytes = pattern(4096 + 5, 4);
    let Some(memory) = HostBytes::new(&bytes, true) else { return lacking("no host memory") };
    let buffer = match device.import_host(Arc::new(memory)) {
        Err(e) if e.is_unsupported() => return lacking("the device does not use host memory in place"),
        other => other?,
    };
    for answer in [buffer.write(7, &[1]), buffer.fill(0, 10, 0)] {
        insist(answer.is_err(), || "a write to memory imported read-only was accepted".into())?;
    }
    expect(&buffer, &bytes)
}

fn threads(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let one = |seed: u64| -> Verdict {
        for round in 0..50 {
            let bytes = pattern(1000 + round * 7, seed * 1000 + round as u64);
            let buffer = device.alloc(0, bytes.len() as u64, c::USAGE_ANY)?;
            buffer.write(0, &bytes)?;
            device.memory()?;
            expect(&buffer, &bytes)?;
        }
        Ok(())
    };
    on_threads(8, &one)
}

fn disjoint_sets(session: &mut Session) -> Verdict {
    let device = session.device()?;
    const PIECE: usize = 10_007;
    let buffer = device.alloc(0, (8 * PIECE) as u64, c::USAGE_ANY)?;
    on_threads(8, &|i| {
        let at = i as usize * PIECE;
        let piece = pattern(PIECE, i);
        for (k, bytes) in piece.chunks(999).enumerate() {
            buffer.write((at + k * 999) as u64, bytes)?;
        }
        Ok(())
    })?;
    expect(&buffer, &(0..8).flat_map(|i| pattern(PIECE, i)).collect::<Vec<_>>())
}

/// Runs `work` with 0..n, each on a thread of its own; the first failure counts.
pub fn on_threads(n: u64, work: &(dyn Fn(u64) -> Verdict + Sync)) -> Verdict {
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..n).map(|i| scope.spawn(move || work(i))).collect();
        let join = |h: std::thread::ScopedJoinHandle<'_, Verdict>| {
            h.join().unwrap_or_else(|_| wrong("a thread of the case panicked"))
        };
        handles.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
    })
}
