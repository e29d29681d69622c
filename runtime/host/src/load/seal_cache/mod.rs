//! Sealed copies of matrices, kept in files between runs: the second start of a model maps what the first one made.
//!
//! A file holds the copies of one model on one device. Its name ends in a hash of its key: the model's files (name, length, inode, time
//! of their last change), the plugin with its version, the device, and each matrix. A file with another key is not used.

mod file;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use llmrt_abi::types::LAYOUT_STORABLE;

use super::host_memory::MappedPart;
use super::mapping::{Mapping, ReadAhead};
use super::place::{Item, canonical};
use super::read::OpenFile;
use super::weights::{Placed, WeightRequest};
use super::{Error, ModelFiles, Result};
use file::{Key, Tensor};

/// A folder with files of sealed copies.
#[derive(Clone, Debug)]
pub struct SealCache {
    folder: PathBuf,
    limit: u64,
}

/// One file of the folder.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its path.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// When it was last used.
    pub used: SystemTime,
}

/// The ending of files, and of those that are being written.
const ENDING: &str = "seal";
const PART: &str = "part";
const A_DAY: Duration = Duration::from_secs(24 * 3600);

impl SealCache {
    /// Bytes of all files where no limit is given.
    pub const LIMIT: u64 = 64 << 30;

    /// A folder, which is made when something is stored, and the bytes that its files may have together.
    pub fn new(folder: &Path, limit: u64) -> SealCache {
        SealCache { folder: folder.into(), limit }
    }

    /// Its files, the least recently used first.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let entry = |entry: io::Result<std::fs::DirEntry>| {
            let path = entry?.path();
            let metadata = path.symlink_metadata()?;
            let is_ours = metadata.is_file() && path.extension().is_some_and(|e| e == ENDING);
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Ok(is_ours.then_some(Entry { path, size: metadata.len(), used }))
        };
        let mut entries: Vec<Entry> = std::fs::read_dir(&self.folder)?
            .map(entry)
            .filter_map(io::Result::transpose)
            .collect::<io::Result<_>>()?;
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        Ok(entries)
    }

    /// Removes files until the others and `n` more bytes are within the limit, and what a process left that ended while it wrote.
    fn make_room(&self, n: u64) -> io::Result<()> {
        let is_left = |entry: &std::fs::DirEntry| {
            let age = entry.metadata().ok()?.modified().ok()?.elapsed().ok()?;
            Some(age > A_DAY && entry.path().extension()? == PART)
        };
        for entry in std::fs::read_dir(&self.folder)?.flatten().filter(|entry| is_left(entry) == Some(true)) {
            std::fs::remove_file(entry.path())?;
        }
        let entries = self.entries()?;
        let mut total = entries.iter().fold(n, |total, entry| total.saturating_add(entry.size));
        for entry in entries {
            if total <= self.limit {
                break;
            }
            std::fs::remove_file(&entry.path)?;
            total -= entry.size;
        }
        Ok(())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.file_name(ENDING))
    }
}

/// A file whose pages a device uses, to be checked for lost ones.
pub(super) type Watched = (OpenFile, Arc<Mapping>);

/// A file that is mapped for a device.
pub(super) struct Found {
    file: OpenFile,
    mapping: Arc<Mapping>,
    tensors: Vec<Tensor>,
}

/// Copies of matrices on one device that are to be stored.
pub(super) struct Unstored<'a> {
    key: Key,
    requests: Vec<&'a WeightRequest>,
}

/// What a cache has of the items of one device, or what it is to store; `None`: neither, because the model is in memory alone.
/// What is wrong with a file is a warning.
pub(super) fn find<'a>(
    cache: &SealCache,
    files: &ModelFiles,
    items: &[Item<'a>],
    warnings: &mut Vec<String>,
) -> Option<std::result::Result<Found, Unstored<'a>>> {
    let key = Key::new(files, items)?;
    let path = cache.path(&key);
    match open(&path, &key, items, warnings) {
        Ok(Some(found)) => return Some(Ok(found)),
        Ok(None) => {}
        Err(e) => warnings.push(format!("{e}; it is made again")),
    }
    Some(Err(Unstored { key, requests: items.iter().map(|item| item.request).collect() }))
}

fn open(path: &Path, key: &Key, items: &[Item<'_>], warnings: &mut Vec<String>) -> Result<Option<Found>> {
    if !path.exists() {
        return Ok(None);
    }
    let file = OpenFile::open(path)?;
    let sizes: Vec<u64> = items.iter().map(|item| item.info.nbytes).collect();
    let broken = |problem| Error::SealCache { path: path.into(), problem };
    let tensors = file::read(&file, key, &sizes)?.map_err(broken)?;
    let mapping = Arc::new(Mapping::whole(&file, ReadAhead::for_this_machine(), warnings)?);
    // The time of the last use; without it the file goes earlier.
    let _ = file.file.set_modified(SystemTime::now());
    Ok(Some(Found { file, mapping, tensors }))
}

impl Found {
    /// The weights, in the order of the items, and the file to be watched.
    pub fn place<'a>(self, items: Vec<Item<'a>>) -> Result<(Vec<(&'a WeightRequest, Placed)>, Watched)> {
        let Some(first) = items.first() else { return Ok((Vec::new(), (self.file, self.mapping))) };
        let device = &first.request.device;
        let all = 0..self.file.len;
        let failed = |source| Error::Import { device: device.name().into(), n: all.end, source };
        let part = MappedPart::new(self.mapping.clone(), all.clone());
        let part = part.ok_or_else(|| Error::MissingTensor { tensor: first.request.name.clone() })?;
        let buffer = device.import_host(Arc::new(part)).map_err(failed)?;
        let placed = items.iter().zip(&self.tensors).map(|(item, tensor)| {
            let at = canonical(&buffer, tensor.offset, item.info.nbytes);
            (item.request, Placed { layout_id: tensor.layout_id, layout_flags: tensor.layout_flags, ..at })
        });
        Ok((placed.collect(), (self.file, self.mapping)))
    }

    /// Where the mapped file is.
    pub fn addresses(&self) -> Option<(*const u8, *const u8)> {
        let bytes = self.mapping.bytes(0..self.file.len)?.as_ptr_range();
        Some((bytes.start, bytes.end))
    }
}

impl Unstored<'_> {
    /// Stores the copies, if the device's layouts may be stored. Returns what kept it from that, in words for the user.
    pub fn store<'a>(
        self,
        cache: &SealCache,
        placed: impl Fn(&WeightRequest) -> Option<&'a Placed>,
    ) -> Option<String> {
        let placed: Option<Vec<&Placed>> = self.requests.iter().map(|request| placed(request)).collect();
        let placed = placed?;
        let is_storable = |at: &&Placed| at.layout_id == 0 || at.layout_flags & LAYOUT_STORABLE != 0;
        if !placed.iter().all(is_storable) || placed.iter().all(|at| at.layout_id == 0) {
            return None;
        }
        let stored = file::Writer::new(&self.key, &placed);
        let (path, size) = (cache.path(&self.key), stored.size());
        if size > cache.limit {
            let limit = cache.limit;
            return Some(format!(
                "sealed weights are not stored: {size} bytes, and the cache may have {limit}"
            ));
        }
        let written = std::fs::create_dir_all(&cache.folder)
            .and_then(|()| cache.make_room(size))
            .and_then(|()| stored.write(&path));
        written.err().map(|e| format!("sealed weights are not stored: {}: {e}", path.display()))
    }
}
