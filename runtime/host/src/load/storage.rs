//! Memory for tensors that are not used in place: pages of our own for devices that read host memory, buffers for the
//! others; and how the bytes get there.

use std::collections::BTreeMap;
use std::sync::Arc;

use llmrt_abi::{Scope, types::USAGE_WEIGHTS};

use super::bytes::Bytes;
use super::host_memory::Pages;
use super::pack::{Slot, pack};
use super::place::{Item, canonical, uses_host_memory};
use super::progress::Progress;
use super::read::CHUNK;
use super::weights::{Placed, WeightRequest};
use super::{Error, Result};
use crate::{Buffer, HostMemory, Layout};

/// Memory of all devices, and the tensors that go there.
pub(super) struct Storage<'a> {
    rows: Vec<Row<'a>>,
}

/// Memory of one device.
struct Row<'a> {
    items: Vec<(Item<'a>, Slot)>,
    memory: Memory,
    layouts: Vec<Layout>,
    unsealed: Unsealed,
}

/// Weights of a device that could not be sealed: how many, and the error of the first.
#[derive(Default)]
pub(super) struct Unsealed(usize, Option<String>);

impl Unsealed {
    /// Counts one, if its sealing failed.
    pub fn add(&mut self, failed: Option<String>) {
        self.0 += usize::from(failed.is_some());
        self.1 = self.1.take().or(failed);
    }

    /// The warning for the user, if there is one.
    pub fn warning(&self, device: &str) -> Option<String> {
        let (n, first) = (self.0, self.1.as_ref()?);
        Some(format!("{device}: {n} weights stay in the file's layout, since sealing failed: {first}"))
    }
}

enum Memory {
    /// Handed to the device when filled.
    Host(Vec<Pages>),
    /// The device's own.
    Device(Vec<Buffer>),
}

/// The default buffer type.
pub(super) const BUFFER_TYPE: u32 = 0;

impl<'a> Storage<'a> {
    /// Allocates as few buffers per device as its largest size allows.
    pub fn new(items: Vec<Item<'a>>) -> Result<Storage<'a>> {
        let mut by_row = BTreeMap::<usize, Vec<Item<'a>>>::new();
        for item in items {
            by_row.entry(item.request.row).or_default().push(item);
        }
        Ok(Storage { rows: by_row.into_values().map(Row::new).collect::<Result<_>>()? })
    }

    /// Fills all memory. `filled(base, end)` is called for every tensor that the CPU can reach: the beginning of its
    /// buffer and its own end.
    pub fn fill(
        &mut self,
        bytes: &Bytes<'_>,
        progress: &mut Progress<'_>,
        mut filled: impl FnMut(*const u8, *const u8),
    ) -> Result<()> {
        self.rows.iter_mut().try_for_each(|row| row.fill(bytes, progress, &mut filled))
    }

    /// What did not work but costs time only, in words for the user.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.rows.iter().filter_map(|row| row.unsealed.warning(row.items.first()?.0.request.device.name()))
    }

    /// Where everything is, once filled.
    pub fn finish(self) -> Result<Vec<(&'a WeightRequest, Placed)>> {
        let mut placed = Vec::new();
        for row in self.rows {
            placed.extend(row.finish()?);
        }
        Ok(placed)
    }
}

impl<'a> Row<'a> {
    fn new(items: Vec<Item<'a>>) -> Result<Row<'a>> {
        let device = items[0].request.device.clone();
        let failed = |item: &Item<'_>, source| Error::tensor(item.request, source);
        let in_host = uses_host_memory(&device);
        let size = |item: &Item<'a>| match in_host {
            true => Ok(item.info.nbytes),
            false => {
                device.alloc_size(BUFFER_TYPE, &item.request.desc(0)).map_err(|source| failed(item, source))
            }
        };
        let sizes = items.iter().map(size).collect::<Result<Vec<_>>>()?;
        let max_size = if in_host { 0 } else { device.info().buffer_types[0].max_size };
        let (slots, buffers) = pack(&sizes, device.alignment(), max_size);
        let alloc = |&n: &u64| {
            let buffer = device.alloc(BUFFER_TYPE, n, USAGE_WEIGHTS);
            buffer.map_err(|source| Error::Alloc { device: device.name().into(), n, source })
        };
        let memory = match in_host {
            true => Memory::Host(buffers.iter().map(|&n| Pages::new(n)).collect::<Result<_>>()?),
            false => Memory::Device(buffers.iter().map(alloc).collect::<Result<_>>()?),
        };
        let items = items.into_iter().zip(slots).collect();
        Ok(Row { items, memory, layouts: Vec::new(), unsealed: Unsealed::default() })
    }

    fn fill(
        &mut self,
        bytes: &Bytes<'_>,
        progress: &mut Progress<'_>,
        filled: &mut impl FnMut(*const u8, *const u8),
    ) -> Result<()> {
        let mut scratch = Vec::new();
        for (item, slot) in &self.items {
            let base = match &mut self.memory {
                Memory::Host(pages) => {
                    let pages = &mut pages[slot.buffer];
                    read(item, &mut pages.bytes_mut()[slot.offset as usize..], bytes, progress)?;
                    self.layouts.push(Layout::canonical(item.info.nbytes));
                    Some(pages.as_ptr())
                }
                Memory::Device(buffers) => {
                    let buffer = &buffers[slot.buffer];
                    let (layout, failed) =
                        bring(item, buffer, slot.offset, bytes, &mut scratch, &mut |n| progress.add(n))?;
                    self.layouts.push(layout);
                    self.unsealed.add(failed);
                    buffer.host_ptr().map(|ptr| ptr.as_ptr().cast_const())
                }
            };
            if let Some(base) = base {
                filled(base, base.wrapping_add((slot.offset + item.info.nbytes) as usize));
            }
        }
        Ok(())
    }

    fn finish(self) -> Result<Vec<(&'a WeightRequest, Placed)>> {
        let is_sealed = matches!(self.memory, Memory::Device(_));
        let buffers = match self.memory {
            Memory::Device(buffers) => buffers,
            Memory::Host(pages) => {
                let device = &self.items[0].0.request.device;
                let import = |pages: Pages| {
                    let n = pages.len();
                    let imported = device.import_host(Arc::new(pages));
                    imported.map_err(|source| Error::Import { device: device.name().into(), n, source })
                };
                pages.into_iter().map(import).collect::<Result<_>>()?
            }
        };
        let place = |((item, slot), layout): ((Item<'a>, Slot), Layout)| {
            let at = canonical(&buffers[slot.buffer], slot.offset, item.info.nbytes);
            (item.request, Placed { layout_id: layout.id, layout_flags: layout.flags, is_sealed, ..at })
        };
        Ok(self.items.into_iter().zip(self.layouts).map(place).collect())
    }
}

/// Reads a tensor straight to the beginning of `dst`.
fn read(item: &Item<'_>, dst: &mut [u8], bytes: &Bytes<'_>, progress: &mut Progress<'_>) -> Result<()> {
    let mut at = 0;
    for chunk in dst[..item.info.nbytes as usize].chunks_mut(CHUNK) {
        bytes.read_of(item, at, chunk)?;
        at += chunk.len() as u64;
        progress.add(chunk.len() as u64)?;
    }
    Ok(())
}

/// Uploads a tensor to a device, and seals it. Where sealing fails it stays in the file's layout, and the reason is
/// returned with it.
pub(super) fn bring(
    item: &Item<'_>,
    buffer: &Buffer,
    offset: u64,
    bytes: &Bytes<'_>,
    scratch: &mut Vec<u8>,
    done: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<(Layout, Option<String>)> {
    upload(item, buffer, offset, bytes, scratch, done)?;
    match buffer.seal(&item.request.desc(offset)) {
        Ok(layout) => Ok((layout, None)),
        // The device is still usable, but the layout may be half changed: upload again.
        Err(e) if matches!(e.scope(), Scope::Call | Scope::Stream) => {
            upload(item, buffer, offset, bytes, scratch, &mut |_| Ok(()))?;
            let failed = Error::tensor(item.request, e).to_string();
            Ok((Layout::canonical(item.info.nbytes), Some(failed)))
        }
        Err(e) => Err(Error::tensor(item.request, e)),
    }
}

/// Uploads a tensor to a device in chunks; `done` is called after each.
pub(super) fn upload(
    item: &Item<'_>,
    buffer: &Buffer,
    offset: u64,
    bytes: &Bytes<'_>,
    scratch: &mut Vec<u8>,
    done: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let desc = item.request.desc(offset);
    for at in (0..item.info.nbytes).step_by(CHUNK) {
        let n = (item.info.nbytes - at).min(CHUNK as u64);
        let part = bytes.get_of(item, at, n, scratch)?;
        buffer.set(&desc, part, at).map_err(|source| Error::tensor(item.request, source))?;
        done(n)?;
    }
    Ok(())
}
