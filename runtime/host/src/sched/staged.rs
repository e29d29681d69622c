//! Inputs on their way to a device, and results on their way back: through pinned memory where the device has it, allocated
//! once and as large as the largest step requires.

use super::arena::Arena;
use super::executor::producer;
use super::resolve::Resolved;
use crate::device::{Buffer, Device, Staging, Stream, TensorDesc};
use crate::error::{Error, Result};
use llmrt_graph::Tensor;
use std::ops::Range;
use std::sync::Arc;

/// The most pinned memory for results: 64 rows of logits of a vocabulary of 262 144 tokens. Larger ones are read in pieces.
const RESULTS: u64 = 64 << 20;

/// Bytes of pinned memory per device: its inputs, or its largest result.
pub fn staging_bytes(resolved: &Resolved, devices: &[Arc<Device>], arenas: &[Arena]) -> Vec<u64> {
    let g = &resolved.graph;
    let mut bytes: Vec<u64> = arenas.iter().map(|arena| arena.inputs.end - arena.inputs.start).collect();
    for (i, def) in g.tensors.iter().enumerate().filter(|(_, def)| def.output) {
        if let Some(device) = producer(resolved, Tensor(i as u32)) {
            bytes[device] = bytes[device].max(def.n_bytes().min(RESULTS));
        }
    }
    devices.iter().zip(bytes).map(|(d, n)| if d.pinned_type().is_some() { n } else { 0 }).collect()
}

/// Writes inputs, at offsets from the start of `range` of a device's arena, in stream order if there is pinned memory and at once
/// if not. All of the range is written, and nothing else in it outlives a run.
pub(super) fn write<'a>(
    stream: &Stream,
    staging: Option<&mut Staging>,
    buffer: &Buffer,
    range: &Range<u64>,
    pieces: impl Iterator<Item = (u64, &'a [u8])>,
) -> Result<()> {
    let n = range.end - range.start;
    let Some(staging) = staging else {
        let mut bytes = vec![0; n as usize];
        place(&mut bytes, pieces)?;
        return buffer.write(range.start, &bytes);
    };
    let bytes = staging.bytes()?;
    let bytes =
        bytes.get_mut(..n as usize).ok_or_else(|| Error::invalid("inputs", "have no staging memory"))?;
    bytes.fill(0);
    place(bytes, pieces)?;
    stream.set_staged(buffer, range.start, staging, 0..n)
}

fn place<'a>(bytes: &mut [u8], pieces: impl Iterator<Item = (u64, &'a [u8])>) -> Result<()> {
    for (at, piece) in pieces {
        let part = bytes.get_mut(at as usize..at as usize + piece.len());
        part.ok_or_else(|| Error::invalid("an input", "has more bytes than its tensor"))?
            .copy_from_slice(piece);
    }
    Ok(())
}

/// A result of the last run whose first bytes are in a device's staging memory.
#[derive(Clone, Copy)]
pub(super) struct Staged {
    pub device: usize,
    pub program: u64,
    pub tensor: Tensor,
    pub n_bytes: u64,
}

/// Reads a part of a result, a piece at a time.
pub(super) fn read(
    staging: &mut Staging,
    buffer: &Buffer,
    tensor: &TensorDesc<'_>,
    part: Range<u64>,
    mut use_bytes: impl FnMut(&[u8]),
) -> Result<()> {
    let bytes = staging.bytes()?;
    let mut at = part.start;
    while at < part.end {
        let n = (part.end - at).min(bytes.len() as u64);
        let piece = &mut bytes[..n as usize];
        buffer.get(tensor, piece, at)?;
        use_bytes(piece);
        at += n;
    }
    Ok(())
}
