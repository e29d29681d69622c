//! L1: bytes come back as they were written, and running out of memory is an answer.

use crate::catalogue::Fixed;
use crate::outcome::{Verdict, insist, lacking, wrong};
use crate::session::Session;
use llmrt_abi::{DType, Status, types as c};
use llmrt_host::{Buffer, Device, TensorDesc};
use std::sync::Arc;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("bytes at odd offsets and lengths come back, and no others change", odd_ranges),
    ("nothing is moved by a set or get of 0 bytes", no_bytes),
    ("fill sets its range and nothing else", fill),
    ("tensors are written whole and in parts", tensors),
    ("a buffer of 64 MiB keeps all its bytes", large),
    ("buffers of 1 byte work", tiny),
    ("every buffer type keeps bytes", every_buffer_type),
    ("memory that is not there is OOM, and the device goes on", absurd_size),
    ("buffers are aligned as their type requires", alignment),
    ("buffers do not overlap", no_overlap),
    ("copies between buffers arrive", copies),
];

/// Bytes that differ from their neighbours: no shift of them looks the same.
pub fn pattern(n: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..n).map(|_| step()).collect()
}

/// Fails unless the buffer holds these bytes.
pub fn expect(buffer: &Buffer, expected: &[u8]) -> Verdict {
    let mut found = vec![0; expected.len()];
    buffer.read(0, &mut found)?;
    match expected.iter().zip(&found).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(i) => {
            let n = expected.len();
            wrong(format!("byte {i} of {n} is {:#04x}, expected {:#04x}", found[i], expected[i]))
        }
    }
}

/// A buffer full of a pattern, and the pattern.
fn filled(device: &Arc<Device>, bt: u32, n: usize) -> Verdict<(Buffer, Vec<u8>)> {
    let buffer = device.alloc(bt, n as u64, c::USAGE_ANY)?;
    let bytes = pattern(n, 1);
    buffer.write(0, &bytes)?;
    Ok((buffer, bytes))
}

const LENGTHS: [usize; 13] = [1, 2, 3, 7, 8, 31, 63, 64, 65, 255, 1000, 4097, 65_537];

fn odd_ranges(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (buffer, mut expected) = filled(&device, 0, 200_003)?;
    let whole = TensorDesc::bytes(0, 200_003);
    for (i, n) in LENGTHS.into_iter().enumerate() {
        for off in [0, 1, 3, 63, 64, 4095, 99_999, 200_003 - n] {
            let bytes = pattern(n, (i * 100_000 + off) as u64 + 2);
            buffer.set(&whole, &bytes, off as u64)?;
            expected[off..off + n].copy_from_slice(&bytes);
            let mut back = vec![0; n];
            buffer.get(&whole, &mut back, off as u64)?;
            insist(back == bytes, || format!("{n} bytes at {off} came back otherwise"))?;
        }
    }
    expect(&buffer, &expected)
}

fn no_bytes(session: &mut Session) -> Verdict {
    let (buffer, expected) = filled(&session.device()?, 0, 100)?;
    let whole = TensorDesc::bytes(0, 100);
    for off in [0, 50, 100] {
        buffer.set(&whole, &[], off)?;
        buffer.get(&whole, &mut [], off)?;
        buffer.fill(off, 0, 0)?;
    }
    expect(&buffer, &expected)
}

fn fill(session: &mut Session) -> Verdict {
    let (buffer, mut expected) = filled(&session.device()?, 0, 70_001)?;
    for (i, n) in LENGTHS.into_iter().enumerate() {
        for off in [0usize, 1, 13, 64, 4001, 70_001 - n] {
            let byte = (i * 17 + off) as u8;
            buffer.fill(off as u64, n as u64, byte)?;
            expected[off..off + n].fill(byte);
            expect(&buffer, &expected).map_err(|t| t.during(&format!("after {n} bytes from {off}")))?;
        }
    }
    Ok(())
}

fn tensors(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let align = device.alignment();
    let (buffer, mut expected) = filled(&device, 0, (align * 4) as usize + 100_000)?;
    for (i, (dtype, ne)) in
        [(DType::F32, [33, 7, 3, 2]), (DType::F16, [5, 1, 1, 1]), (DType::Q4_0, [96, 5, 1, 1])]
            .into_iter()
            .enumerate()
    {
        let t = TensorDesc { offset: align * (i as u64 + 1), ..TensorDesc::contiguous(dtype, ne) };
        let n = t.nbytes()? as usize;
        let at = t.offset as usize;
        let whole = pattern(n, 50 + i as u64);
        buffer.set(&t, &whole, 0)?;
        expected[at..at + n].copy_from_slice(&whole);
        let part = pattern(n / 3, 70 + i as u64);
        buffer.set(&t, &part, 1)?;
        expected[at + 1..at + 1 + part.len()].copy_from_slice(&part);
        let mut back = vec![0; n - 2];
        buffer.get(&t, &mut back, 2)?;
        insist(back == expected[at + 2..at + n], || format!("{dtype} {ne:?} came back otherwise"))?;
    }
    expect(&buffer, &expected)
}

fn large(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let (free, max) = (device.memory()?.0, device.info().buffer_types[0].max_size);
    let most = (free / 4).min(if max == 0 { u64::MAX } else { max });
    let n = (64 << 20) + 13;
    if most < n {
        return lacking(format!("the device has {free} bytes free, and buffers of at most {max}"));
    }
    let (buffer, expected) = filled(&device, 0, n as usize)?;
    expect(&buffer, &expected)
}

fn tiny(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let buffers: Vec<_> = (0..100).map(|_| filled(&device, 0, 1)).collect::<Verdict<_>>()?;
    buffers.iter().try_for_each(|(buffer, expected)| expect(buffer, expected))?;
    // A buffer without bytes is allocated with one.
    device.alloc(0, 0, c::USAGE_ANY).map(drop).map_err(Into::into)
}

fn every_buffer_type(session: &mut Session) -> Verdict {
    let device = session.device()?;
    for bt in 0..device.info().buffer_types.len() as u32 {
        for usage in [c::USAGE_ANY, c::USAGE_WEIGHTS, c::USAGE_COMPUTE, c::USAGE_STATE] {
            let buffer = device.alloc(bt, 5001, usage)?;
            let bytes = pattern(5001, u64::from(bt) + 9);
            buffer.write(0, &bytes)?;
            expect(&buffer, &bytes).map_err(|t| t.during(&format!("buffer type {bt}, usage {usage}")))?;
        }
    }
    Ok(())
}

fn absurd_size(session: &mut Session) -> Verdict {
    let device = session.device()?;
    for bt in 0..device.info().buffer_types.len() as u32 {
        let info = &device.info().buffer_types[bt as usize];
        for size in [1 << 60, u64::MAX / 2, u64::MAX - 4095] {
            let e = match device.alloc(bt, size, c::USAGE_ANY) {
                Ok(_) => return wrong(format!("buffer type {bt} gave {size} bytes")),
                Err(e) => e,
            };
            // Memory of the host runs out as memory of the host.
            let of_host = [c::BUFFER_HOST, c::BUFFER_HOST_PINNED].contains(&info.kind)
                || device.info().kind == c::DEVICE_CPU;
            let is_code = e.status() == Status::OomDevice || (of_host && e.status() == Status::OomHost);
            insist(is_code, || format!("{size} bytes in buffer type {bt}: expected OOM_DEVICE, got: {e}"))?;
            let node = e.call().and_then(|call| call.node);
            insist(node.is_none(), || {
                format!("buffer_alloc has no graph, and its error names node {node:?} (`node_index`): {e}")
            })?;
            let requested = e.call().map_or(0, |call| call.bytes_requested);
            insist(requested >= size, || {
                format!("{size} bytes in buffer type {bt}: the error has {requested} bytes requested: {e}")
            })?;
        }
    }
    let (buffer, expected) = filled(&device, 0, 1000)?;
    expect(&buffer, &expected).map_err(|t| t.during("after running out of memory"))
}

fn alignment(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let mut n_checked = 0;
    for (bt, info) in device.info().buffer_types.iter().enumerate() {
        let buffers: Vec<_> = (0..40)
            .map(|i| device.alloc(bt as u32, 1 + i * 37, c::USAGE_ANY))
            .collect::<llmrt_host::Result<_>>()?;
        for (i, address) in buffers.iter().enumerate().filter_map(|(i, b)| Some((i, b.host_ptr()?))) {
            let address = address.as_ptr() as usize as u64;
            n_checked += 1;
            insist(address.is_multiple_of(info.alignment), || {
                format!(
                    "buffer {i} of type {bt} starts at {address:#x}; its type promises multiples of {}",
                    info.alignment
                )
            })?;
        }
    }
    if n_checked == 0 { lacking("no buffer has an address in host memory") } else { Ok(()) }
}

fn no_overlap(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let buffers: Vec<_> = (0..64)
        .map(|i| {
            let bytes = pattern(300 + i * 41, i as u64 + 3);
            let buffer = device.alloc(0, bytes.len() as u64, c::USAGE_ANY)?;
            buffer.write(0, &bytes)?;
            Ok((buffer, bytes))
        })
        .collect::<Verdict<_>>()?;
    buffers.iter().try_for_each(|(buffer, bytes)| expect(buffer, bytes))?;
    // Every second one goes; the others stay.
    let kept: Vec<_> = buffers.into_iter().step_by(2).collect();
    let _new: Vec<_> = (0..32).map(|_| filled(&device, 0, 777)).collect::<Verdict<_>>()?;
    kept.iter().try_for_each(|(buffer, bytes)| expect(buffer, bytes))
}

fn copies(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let align = device.alignment();
    let (from, source) = filled(&device, 0, 100_000)?;
    let (to, mut expected) = filled(&device, 0, 100_000 + align as usize)?;
    let src = TensorDesc { offset: 0, ..TensorDesc::contiguous(DType::F32, [1001, 3, 2, 1]) };
    let dst = TensorDesc { offset: align, ..src };
    to.fill(0, 100_000, 0)?;
    expected[..100_000].fill(0);
    to.copy(&dst, &from, &src)?;
    let n = src.nbytes()? as usize;
    expected[align as usize..][..n].copy_from_slice(&source[..n]);
    expect(&to, &expected)?;
    expect(&from, &source).map_err(|t| t.during("the source"))
}
