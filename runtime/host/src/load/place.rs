//! Puts tensors on devices: decides how each gets there, moves the bytes, and hands back what is not needed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use llmrt_abi::DType;
use llmrt_abi::types::{BT_COPY_MATRICES, BUFFER_DEVICE, CAP_HOST_READ};
use llmrt_gguf::TensorInfo;
use llmrt_graph::tensor::Role;

use super::bytes::Bytes;
use super::check::Check;
use super::copies::Copies;
use super::files::Source;
use super::host_memory::MappedPart;
use super::mapping::{Mapping, ReadAhead};
use super::pieces::Pieces;
use super::progress::Progress;
use super::seal_cache::{self, Split};
use super::storage::Storage;
use super::weights::{LoadOptions, Placed, WeightRequest, Weights};
use super::{Error, LoadMode, ModelFiles, Result};
use crate::knobs;
use crate::{Device, Layout};

/// How much of the files to map.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All: a model is loaded.
    WholeFiles,
    /// From the first to the last byte that is needed.
    UsedParts,
}

/// A tensor on its way.
pub(super) struct Item<'a> {
    pub request: &'a WeightRequest,
    /// In the files; the first byte is where its first row begins.
    pub info: TensorInfo,
    /// Where its bytes are from there on.
    pub pieces: Pieces,
}

impl Item<'_> {
    /// The byte range in its file that has all of it.
    fn range(&self) -> Range<u64> {
        self.info.offset..self.info.offset + self.pieces.extent(self.info.nbytes)
    }
}

/// Loads the requested tensors into `weights`.
pub(super) fn place(
    weights: &mut Weights,
    files: &ModelFiles,
    requests: &[WeightRequest],
    extent: Extent,
    options: LoadOptions<'_>,
) -> Result<()> {
    let items = items(files, requests)?;
    let total = items.iter().map(|item| item.info.nbytes).sum();
    let mut progress = Progress::new(total, options.progress);
    progress.add(0)?;

    let copied = rows_with_copies(&items, &mut weights.warnings);
    let is_copied = |item: &Item<'_>| copied.contains(&item.request.row) && is_worth_a_copy(item.request);
    let (copied, others): (Vec<_>, Vec<_>) = items.into_iter().partition(is_copied);
    // Files that may change are not mapped, and what is checked is the model's.
    let cache = options.seal_cache.filter(|_| options.mode.maps() && !options.check_tensors);
    let Split { found, unstored, lacking: copied } =
        seal_cache::split(cache, files, copied, &mut weights.warnings);
    let requested = || others.iter().chain(&copied);
    // Most of the files is not needed if the cache has it, and what is copied is read while copies are made.
    let is_lazy = !found.is_empty() || !copied.is_empty();
    let ahead = if is_lazy { ReadAhead::NONE } else { ReadAhead::for_this_machine() };
    let all_data = options.check_tensors;
    let maps = map(files, requested, (options.mode, ahead), extent, all_data, &mut weights.warnings)?;
    let rest: Vec<_> = others.iter().map(|item| (item.info.file, item.range())).collect();
    let (in_place, moved): (Vec<_>, Vec<_>) = others.into_iter().partition(|item| is_in_place(item, &maps));
    let mut storage = Storage::new(moved)?;
    let mut copies = Copies::new(copied)?;

    let bytes = Bytes { files, maps: &maps };
    let (locks, n_locks) = (options.mode.locks(), weights.locks.n_ranges());
    let moved = with_check(options.check_tensors, &bytes, || {
        let fragments = fragments(&maps, &in_place);
        for item in &in_place {
            if let Some((base, end)) = locks.then(|| lockable(&maps, &fragments, item)).flatten() {
                weights.warnings.extend(weights.locks.grow_to(base, end));
            }
            progress.add(item.info.nbytes)?;
        }
        let mut lock = |base, end| {
            weights.warnings.extend(locks.then(|| weights.locks.grow_to(base, end)).flatten());
        };
        for found in &found {
            found.addresses().into_iter().for_each(|(base, end)| lock(base, end));
            progress.add(found.n_bytes())?;
        }
        copies.fill(&bytes, &rest, &mut progress, &mut lock)?;
        storage.fill(&bytes, &mut progress, lock)
    });
    // A file that was truncated meanwhile explains bad numbers, so its length is checked first.
    let unchanged = files.files().try_for_each(|file| file.check_len());
    let used = maps.iter().enumerate().filter_map(|(file, mapping)| Some((file, mapping.as_ref()?)));
    let unchanged = unchanged.and_then(|()| files.check_maps(used));
    unchanged.and(moved).inspect_err(|_| weights.locks.undo(n_locks))?; // while the memory is still there

    // What could not be sealed now may be later.
    let unsealed = copies.warning();
    let unstored = if unsealed.is_none() { unstored } else { Vec::new() };
    weights.warnings.extend(storage.warnings().chain(unsealed));
    let (mut placed, maps) = use_in_place(maps, in_place)?;
    placed.extend(storage.finish()?);
    placed.extend(copies.finish());
    for found in found {
        let (of_row, file) = found.place()?;
        placed.extend(of_row);
        weights.sealed.push(file);
    }
    weights.maps.extend(maps);
    for (request, at) in placed {
        weights.placed.entry(request.row).or_default().insert(request.name.clone(), at);
    }
    for unstored in unstored {
        let placed = |request: &WeightRequest| weights.placed.get(&request.row)?.get(&request.name);
        weights.warnings.extend(unstored.store(placed, &mut progress)?);
    }
    progress.finish()
}

/// Each requested tensor once per device, found in the files, in file order.
fn items<'a>(files: &ModelFiles, requests: &'a [WeightRequest]) -> Result<Vec<Item<'a>>> {
    let found = requests.iter().map(|request| {
        let (info, pieces) = request.find(files)?;
        Ok(Item { request, info, pieces })
    });
    let mut items = found.collect::<Result<Vec<_>>>()?;
    let place = |item: &Item<'a>| (item.info.file, item.info.offset, item.request.row, &item.request.name);
    items.sort_by(|a, b| place(a).cmp(&place(b)));
    items.dedup_by(|a, b| place(a) == place(b));
    Ok(items)
}

/// Maps the files that are needed, if the mode is one that maps. One row per source.
fn map<'a, I: Iterator<Item = &'a Item<'a>>>(
    files: &ModelFiles,
    items: impl Fn() -> I,
    (mode, ahead): (LoadMode, ReadAhead),
    extent: Extent,
    all_data: bool,
    warnings: &mut Vec<String>,
) -> Result<Vec<Option<Mapping>>> {
    let map_one = |(i, source): (usize, &Source)| {
        let Source::File(file) = source else { return Ok(None) };
        let ranges = || items().filter(|item| item.info.file == i).map(Item::range);
        let used = ranges().map(|r| r.start).min().zip(ranges().map(|r| r.end).max());
        let range = match (extent, used) {
            (Extent::UsedParts, Some((start, end))) => start..end,
            (Extent::WholeFiles, Some(_)) => 0..file.len,
            (_, None) if all_data => 0..file.len,
            (_, None) => return Ok(None),
        };
        if !mode.maps() {
            return Ok(None);
        }
        Mapping::range(file, range, ahead, warnings).map(Some)
    };
    files.sources.iter().enumerate().map(map_one).collect()
}

/// Rows of devices that get copies of matrices in a layout of their own: those that set `BT_COPY_MATRICES` and have
/// enough memory.
fn rows_with_copies(items: &[Item<'_>], warnings: &mut Vec<String>) -> BTreeSet<usize> {
    let mut needed = BTreeMap::<usize, (&Device, u64)>::new();
    if knobs::settings().is_ok_and(|settings| settings.repack) {
        for item in items.iter().filter(|item| is_worth_a_copy(item.request)) {
            needed.entry(item.request.row).or_insert((&item.request.device, 0)).1 += item.info.nbytes;
        }
    }
    let has_room = |(_, (device, n)): &(usize, (&Device, u64))| {
        // Some is left for what a model needs beside its weights.
        let free = device.memory().map_or(u64::MAX, |(free, _)| free / 8 * 7);
        if *n > free {
            let name = device.name();
            warnings.push(format!("{name}: {n} bytes of weights stay in the file's layout: {free} are free"));
        }
        *n <= free
    };
    needed.into_iter().filter(has_room).map(|(row, _)| row).collect()
}

/// Whether the device reads host memory, and a matrix is faster in its own layout, or, where rows here and there are read, in its
/// own memory: that has fewer and larger pages than a file.
fn is_worth_a_copy(request: &WeightRequest) -> bool {
    let is_matrix =
        matches!(request.role, Role::Matrix | Role::MatrixOfZeros | Role::PickedRows | Role::Experts);
    let flags = request.device.info().buffer_types[0].flags;
    is_matrix && flags & BT_COPY_MATRICES != 0 && uses_host_memory(&request.device)
}

/// Whether the device uses the mapped file: it reads host memory, has no other memory that would be faster, and the
/// numbers are aligned as their type requires. llama2.c files align to 4 bytes only. Parts by lists may be written again.
fn is_in_place(item: &Item<'_>, maps: &[Option<Mapping>]) -> bool {
    let alignment = match item.info.dtype {
        DType::F64 | DType::I64 => 8,
        _ => 4,
    };
    uses_host_memory(&item.request.device)
        && item.pieces.is_together()
        && item.request.listed.is_none()
        && maps[item.info.file].is_some()
        && item.info.offset.is_multiple_of(alignment)
}

/// Whether weights for this device stay in host memory.
pub(super) fn uses_host_memory(device: &Device) -> bool {
    let info = device.info();
    info.caps & CAP_HOST_READ != 0 && info.buffer_types[0].kind != BUFFER_DEVICE
}

/// Runs `work` while the other cores check the model, if `check` is set; an error of `work` takes precedence.
fn with_check(check: bool, bytes: &Bytes<'_>, work: impl FnOnce() -> Result<()>) -> Result<()> {
    if !check {
        return work();
    }
    let check = Check::new(bytes);
    std::thread::scope(|scope| {
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        for _ in 0..n_threads {
            scope.spawn(|| check.work());
        }
        work().inspect_err(|_| check.stop())
    })?;
    check.finish()
}

/// What will stay of each map.
fn fragments(maps: &[Option<Mapping>], in_place: &[Item<'_>]) -> Vec<Vec<Range<u64>>> {
    let fragments = |(file, mapping): (usize, &Option<Mapping>)| {
        mapping.as_ref().map_or(Vec::new(), |mapping| mapping.fragments_of(&ranges_in(in_place, file)))
    };
    maps.iter().enumerate().map(fragments).collect()
}

/// The beginning of a tensor's fragment, and the end of the tensor.
fn lockable(
    maps: &[Option<Mapping>],
    fragments: &[Vec<Range<u64>>],
    item: &Item<'_>,
) -> Option<(*const u8, *const u8)> {
    let range = item.range();
    let fragment = fragments[item.info.file].iter().find(|f| f.contains(&range.start))?;
    let bytes = maps[item.info.file].as_ref()?.bytes(fragment.start..range.end)?.as_ptr_range();
    Some((bytes.start, bytes.end))
}

fn ranges_in(items: &[Item<'_>], file: usize) -> Vec<Range<u64>> {
    items.iter().filter(|item| item.info.file == file).map(Item::range).collect()
}

/// Weights used in place, and the maps that they are in, each with the index of its file.
type InPlace<'a> = (Vec<(&'a WeightRequest, Placed)>, Vec<(usize, Arc<Mapping>)>);

/// Unmaps what no device uses in place, and makes a buffer of each fragment that is left, on each device. Returns the
/// maps that are left too, each with the index of its file.
fn use_in_place<'a>(maps: Vec<Option<Mapping>>, in_place: Vec<Item<'a>>) -> Result<InPlace<'a>> {
    let (mut fragments, mut kept) = (BTreeMap::new(), Vec::new());
    for (file, mapping) in maps.into_iter().enumerate() {
        let Some(mut mapping) = mapping else { continue };
        mapping.unmap_unused(&ranges_in(&in_place, file));
        let mapping = Arc::new(mapping);
        for fragment in mapping.fragments() {
            fragments.insert((file, fragment.start), (fragment.clone(), mapping.clone()));
        }
        if !mapping.fragments().is_empty() {
            kept.push((file, mapping));
        }
    }

    let mut buffers = BTreeMap::new();
    let mut placed = Vec::with_capacity(in_place.len());
    for Item { request, info, .. } in in_place {
        let fragment = fragments.range(..=(info.file, info.offset)).next_back();
        let (&key, (range, mapping)) = fragment.ok_or_else(|| lost(request))?;
        let buffer = match buffers.get(&(request.row, key)) {
            Some(buffer) => buffer,
            None => {
                let part = MappedPart::new(mapping.clone(), range.clone()).ok_or_else(|| lost(request))?;
                let imported = request.device.import_host(Arc::new(part)).map_err(|source| {
                    Error::Import { device: request.device.name().into(), n: range.end - range.start, source }
                })?;
                buffers.entry((request.row, key)).or_insert(imported)
            }
        };
        placed.push((request, canonical(buffer, info.offset - range.start, info.nbytes)));
    }
    Ok((placed, kept))
}

/// A tensor in host memory, with GGUF's own bytes.
pub(super) fn canonical(buffer: &crate::Buffer, offset: u64, nbytes: u64) -> Placed {
    let Layout { id: layout_id, flags: layout_flags, .. } = Layout::canonical(nbytes);
    Placed { buffer: buffer.clone(), offset, layout_id, layout_flags, is_sealed: false }
}

fn lost(request: &WeightRequest) -> Error {
    Error::MissingTensor { tensor: request.name.clone() }
}
