//! L1: the layout that `seal` returns holds: its bytes, its slices, and what `get` returns of parts.

use crate::catalogue::Fixed;
use crate::l1_seal::weight;
use crate::outcome::{Verdict, insist, lacking};
use crate::session::Session;
use llmrt_abi::{DType, types as c};
use llmrt_graph::Role;
use llmrt_host::sched::bind::describe;
use llmrt_host::{Buffer, HostBytes, Layout, TensorDesc};
use std::sync::Arc;

/// The cases.
pub const CASES: &[Fixed] = &[
    ("a sealed weight stays within alloc_size", |s| each(s, keeps_to_its_bytes)),
    ("a sealed weight needs no byte past stored_bytes", |s| each(s, needs_no_more)),
    ("parts of a sealed weight read back in any order", |s| each(s, parts)),
    ("slices of a sealed weight read back", |s| each(s, slices)),
    ("a sealed weight is written and sealed again", |s| each(s, sealed_again)),
    ("memory of a sealed weight is used again", used_again),
    ("a sealed weight is imported from a copy of its bytes", imported),
];

/// A weight that was sealed, with other bytes around it.
struct Sealed {
    buffer: Buffer,
    /// As it was written.
    desc: TensorDesc<'static>,
    layout: Layout,
    bytes: Vec<u8>,
    /// Bytes that the device requires for it.
    room: u64,
}

/// Bytes before and after the weight.
const MARGIN: u64 = 4096;
const AROUND: u8 = 0xa5;
/// Rows of the weights: a prime, so that slices end with a rest.
const ROWS: u64 = 13;

/// Runs a check on a weight of each of these types, in buffer type 0.
fn each(session: &mut Session, check: fn(&Sealed) -> Verdict<bool>) -> Verdict {
    let mut n_checked = 0;
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        let checked = sealed(session, dtype).and_then(|sealed| check(&sealed));
        n_checked += usize::from(checked.map_err(|t| t.during(dtype.name()))?);
    }
    if n_checked == 0 { lacking("no weight is sealed into a layout that has this") } else { Ok(()) }
}

fn sealed(session: &mut Session, dtype: DType) -> Verdict<Sealed> {
    let device = session.device()?;
    let (case, bytes) = weight(dtype, Role::Matrix, &[512, ROWS], 11)?;
    let at = MARGIN.next_multiple_of(device.alignment());
    let def = &case.graph.tensors[0];
    let desc = TensorDesc { name: "", offset: at, ..TensorDesc::contiguous(def.dtype, def.ne) };
    let desc = TensorDesc { role: def.role as u32, flags: c::TENSOR_WEIGHT, ..desc };
    let room = device.alloc_size(0, &describe(def, None))?;
    let buffer = device.alloc(0, at + room + MARGIN, c::USAGE_WEIGHTS)?;
    buffer.fill(0, at + room + MARGIN, AROUND)?;
    buffer.set(&desc, &bytes, 0)?;
    let layout = buffer.seal(&desc)?;
    Ok(Sealed { buffer, desc, layout, bytes, room })
}

impl Sealed {
    /// As it is read from now on.
    fn now(&self) -> TensorDesc<'static> {
        TensorDesc { layout_id: self.layout.id, ..self.desc }
    }

    /// Fails unless bytes `off..off + n` of the weight are the canonical ones.
    fn expect(&self, off: usize, n: usize, what: &str) -> Verdict {
        let mut found = vec![0; n];
        self.buffer.get(&self.now(), &mut found, off as u64)?;
        let differs = found.iter().zip(&self.bytes[off..]).position(|(a, b)| a != b);
        insist(differs.is_none(), || {
            let i = differs.unwrap_or(0);
            format!(
                "get after seal: {what}: layout `{}`, byte {} is {:#04x}, expected {:#04x}",
                self.layout.name,
                off + i,
                found[i],
                self.bytes[off + i]
            )
        })
    }
}

fn keeps_to_its_bytes(s: &Sealed) -> Verdict<bool> {
    let stored = s.layout.stored_bytes;
    insist((1..=s.room).contains(&stored), || {
        format!("layout `{}` stores {stored} bytes; alloc_size is {}", s.layout.name, s.room)
    })?;
    for (from, n) in [(0, s.desc.offset), (s.desc.offset + s.room, MARGIN)] {
        let mut around = vec![0; n as usize];
        s.buffer.read(from, &mut around)?;
        let written = around.iter().position(|&b| b != AROUND);
        insist(written.is_none(), || {
            format!(
                "seal wrote byte {} of the buffer, which is not the weight's",
                from + written.unwrap_or(0) as u64
            )
        })?;
    }
    Ok(true)
}

/// Bytes past `stored_bytes` are overwritten, and must not be missed.
fn needs_no_more(s: &Sealed) -> Verdict<bool> {
    let rest = s.room.saturating_sub(s.layout.stored_bytes);
    if !s.layout.is_readable() || rest == 0 {
        return Ok(false);
    }
    s.buffer.fill(s.desc.offset + s.layout.stored_bytes, rest, !AROUND)?;
    let what = format!("stored_bytes is {}, and bytes past them are used", s.layout.stored_bytes);
    s.expect(0, s.bytes.len(), &what)?;
    Ok(true)
}

fn parts(s: &Sealed) -> Verdict<bool> {
    if !s.layout.is_readable() {
        return Ok(false);
    }
    let n = s.bytes.len();
    let row = n / ROWS as usize;
    for (off, len) in
        [(n - 1, 1), (0, 1), (1, 1), (row - 1, 2), (row + 3, 3 * row), (n / 2, n - n / 2), (5, 0), (0, n)]
    {
        s.expect(off, len, &format!("{len} bytes from byte {off}"))?;
    }
    Ok(true)
}

/// Views of whole rows, as many as `row_granularity` of the layout.
fn slices(s: &Sealed) -> Verdict<bool> {
    if !s.layout.is_readable() || s.layout.flags & c::LAYOUT_ROW_SLICEABLE == 0 {
        return Ok(false);
    }
    let step = s.layout.row_granularity;
    insist((1..=ROWS).contains(&step), || {
        format!("layout `{}`: slices of {step} rows, of a weight with {ROWS}", s.layout.name)
    })?;
    let row = s.desc.nb[1];
    for first in (0..ROWS).step_by(step as usize) {
        for n_rows in [step.min(ROWS - first), ROWS - first] {
            let mut ne = s.desc.ne;
            ne[1] = n_rows;
            let (from, n) = (first * row, n_rows * row);
            let slice = TensorDesc { offset: s.desc.offset + from, ne, ..s.now() };
            let slice = TensorDesc { nb: TensorDesc::contiguous(s.desc.dtype, ne).nb, ..slice };
            let mut found = vec![0; n as usize];
            s.buffer.get(&slice, &mut found, 0)?;
            insist(found == s.bytes[from as usize..(from + n) as usize], || {
                format!(
                    "layout `{}` can be sliced every {step} rows, and rows {first}..{} came back otherwise",
                    s.layout.name,
                    first + n_rows
                )
            })?;
        }
    }
    Ok(true)
}

/// With other bytes the weight gets the same layout, and those are read back. Of a weight that stayed canonical some are written.
fn sealed_again(s: &Sealed) -> Verdict<bool> {
    let (_, mut bytes) = weight(s.desc.dtype, Role::Matrix, &[512, ROWS], 12)?;
    let row = bytes.len() / ROWS as usize;
    s.buffer.unseal(&s.desc)?;
    match s.layout.id {
        0 => {
            let changed = 3 * row..4 * row;
            s.buffer.set(&s.desc, &bytes[changed.clone()], changed.start as u64)?;
            let new = bytes[changed.clone()].to_vec();
            bytes.copy_from_slice(&s.bytes);
            bytes[changed].copy_from_slice(&new);
        }
        _ => s.buffer.set(&s.desc, &bytes, 0)?,
    }
    let layout = s.buffer.seal(&s.desc)?;
    insist(layout.id == s.layout.id, || {
        format!("layout `{}` when it was sealed first, `{}` when it was again", s.layout.name, layout.name)
    })?;
    let mut found = vec![0; bytes.len()];
    if !layout.is_readable() {
        return Ok(true);
    }
    s.buffer.get(&s.now(), &mut found, 0)?;
    insist(found == bytes, || format!("layout `{}`: other bytes than those written last", layout.name))?;
    Ok(true)
}

/// Layouts that may be stored: their bytes elsewhere, for reading only, are the same weight.
fn imported(session: &mut Session) -> Verdict {
    let device = session.device()?;
    let mut n_checked = 0;
    for dtype in [DType::F32, DType::F16, DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q6_K] {
        let s = sealed(session, dtype).map_err(|t| t.during(dtype.name()))?;
        if s.layout.flags & c::LAYOUT_STORABLE == 0 {
            continue;
        }
        let mut bytes = vec![0; s.layout.stored_bytes as usize];
        s.buffer.read(s.desc.offset, &mut bytes)?;
        let Some(memory) = HostBytes::new(&bytes, true) else { return lacking("no host memory") };
        let buffer = device.import_host(Arc::new(memory))?;
        let moved = Sealed { buffer, desc: TensorDesc { offset: 0, ..s.desc }, ..s };
        moved.expect(0, moved.bytes.len(), "imported from a copy").map_err(|t| t.during(dtype.name()))?;
        n_checked += 1;
    }
    if n_checked == 0 { lacking("no layout of a weight may be stored") } else { Ok(()) }
}

/// A buffer whose weight is gone has none any more: the next one at its address is canonical until it is sealed.
fn used_again(session: &mut Session) -> Verdict {
    let device = session.device()?;
    for dtype in [DType::F32, DType::Q4_0, DType::F32, DType::Q8_0] {
        let s = sealed(session, dtype)?;
        let size = s.buffer.size();
        drop(s);
        let bytes = crate::l1_memory::pattern(size as usize, 3);
        let buffer = device.alloc(0, size, c::USAGE_WEIGHTS)?;
        buffer.write(0, &bytes)?;
        crate::l1_memory::expect(&buffer, &bytes).map_err(|t| t.during("after a sealed weight was freed"))?;
    }
    Ok(())
}
