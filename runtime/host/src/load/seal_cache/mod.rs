//! Sealed copies of matrices, kept in files between runs: the second start of a model maps what the first one made.
//!
//! A file holds the copies of one model on one device. Its name ends in a hash of its key: the model's files (name, length, inode, time
//! of their last change), the plugin with its version, and the device. A file with another key, or without one of the matrices
//! that are loaded, is not used, and written again.

mod file;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use llmrt_abi::types::LAYOUT_STORABLE;

use super::host_memory::MappedPart;
use super::mapping::{Mapping, ReadAhead};
use super::place::{Item, canonical};
use super::progress::Progress;
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

    /// Its files, the least recently used first; none where there is no folder.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let mut entries = self.named(|path| file::is_name(path, ENDING))?;
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        Ok(entries)
    }

    /// Regular files with such names. Other processes may remove some meanwhile.
    fn named(&self, is_ours: impl Fn(&Path) -> bool) -> io::Result<Vec<Entry>> {
        let listed = match std::fs::read_dir(&self.folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let paths = listed.flatten().map(|entry| entry.path()).filter(|path| is_ours(path));
        let entry = |path: PathBuf| {
            let metadata = path.symlink_metadata().ok().filter(|metadata| metadata.is_file())?;
            let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            Some(Entry { path, size: metadata.len(), used })
        };
        Ok(paths.filter_map(entry).collect())
    }

    /// Removes files until the others and `n` bytes in the place of `path` are within the limit, and what a process left that
    /// ended while it wrote.
    fn make_room(&self, path: &Path, n: u64) -> io::Result<()> {
        let is_old = |entry: &Entry| entry.used.elapsed().is_ok_and(|age| age > A_DAY);
        for entry in self.named(|path| file::is_name(path, PART))?.iter().filter(|entry| is_old(entry)) {
            remove(&entry.path)?;
        }
        let mut entries = self.entries()?;
        entries.retain(|entry| entry.path != path);
        let mut total = entries.iter().fold(n, |total, entry| total.saturating_add(entry.size));
        for entry in entries {
            if total <= self.limit {
                break;
            }
            remove(&entry.path)?;
            total -= entry.size;
        }
        Ok(())
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join(key.file_name(ENDING))
    }
}

/// Removes a file, unless another process did.
fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// A file whose pages a device uses, to be checked for lost ones.
pub(super) type Watched = (OpenFile, Arc<Mapping>);

/// Copies of matrices: those that a cache has, those that it is to store, and all that it lacks.
#[derive(Default)]
pub(super) struct Split<'a> {
    pub found: Vec<Found<'a>>,
    pub unstored: Vec<Unstored<'a>>,
    pub lacking: Vec<Item<'a>>,
}

/// The copies of a device that are in a file, which is mapped.
pub(super) struct Found<'a> {
    file: Watched,
    items: Vec<Item<'a>>,
    tensors: Vec<Tensor>,
}

/// Copies on one device that are to be stored.
pub(super) struct Unstored<'a> {
    cache: &'a SealCache,
    key: Key,
    requests: Vec<&'a WeightRequest>,
}

/// Looks for copies, device by device. What is wrong with a file is a warning; of a model that is in memory alone nothing is kept.
pub(super) fn split<'a>(
    cache: Option<&'a SealCache>,
    files: &ModelFiles,
    copied: Vec<Item<'a>>,
    warnings: &mut Vec<String>,
) -> Split<'a> {
    let mut split = Split::default();
    let Some(cache) = cache else { return Split { lacking: copied, ..split } };
    let mut rows = BTreeMap::<usize, Vec<Item<'a>>>::new();
    copied.into_iter().for_each(|item| rows.entry(item.request.row).or_default().push(item));
    for items in rows.into_values() {
        if let Some(key) = Key::new(files, &items) {
            let path = cache.path(&key);
            match open(&path, &key, warnings) {
                Ok(Some((file, tensors))) => {
                    split.found.push(Found { file, items, tensors });
                    continue;
                }
                Ok(None) => {}
                Err(e) => warnings.push(format!("{e}; it is made again")),
            }
            let requests = items.iter().map(|item| item.request).collect();
            split.unstored.push(Unstored { cache, key, requests });
        }
        split.lacking.extend(items);
    }
    split
}

/// A file of the cache, mapped, and where its tensors are; `None`: there is none.
fn open(path: &Path, key: &Key, warnings: &mut Vec<String>) -> Result<Option<(Watched, Vec<Tensor>)>> {
    if !path.exists() {
        return Ok(None);
    }
    let file = OpenFile::open(path)?;
    let broken = |problem| Error::SealCache { path: path.into(), problem };
    let tensors = file::read(&file, key)?.map_err(broken)?;
    let mapping = Arc::new(Mapping::whole(&file, ReadAhead::for_this_machine(), warnings)?);
    // The time of the last use; without it the file goes earlier.
    let _ = file.file.set_modified(SystemTime::now());
    Ok(Some(((file, mapping), tensors)))
}

impl<'a> Found<'a> {
    /// The weights, and the file to be watched.
    pub fn place(self) -> Result<(Vec<(&'a WeightRequest, Placed)>, Watched)> {
        let request = self.items[0].request; // a device without items is in no split
        let (file, mapping) = &self.file;
        let n = file.len;
        let part = MappedPart::new(mapping.clone(), 0..n);
        let part = part.ok_or_else(|| Error::MissingTensor { tensor: request.name.clone() })?;
        let imported = request.device.import_host(Arc::new(part));
        let failed = |source| Error::Import { device: request.device.name().into(), n, source };
        let buffer = imported.map_err(failed)?;
        let placed = self.items.iter().zip(&self.tensors).map(|(item, tensor)| {
            let at = canonical(&buffer, tensor.offset, item.info.nbytes);
            (item.request, Placed { layout_id: tensor.layout_id, layout_flags: tensor.layout_flags, ..at })
        });
        Ok((placed.collect(), self.file))
    }

    /// Bytes of the matrices.
    pub fn n_bytes(&self) -> u64 {
        self.items.iter().map(|item| item.info.nbytes).sum()
    }

    /// Where the mapped file is.
    pub fn addresses(&self) -> Option<(*const u8, *const u8)> {
        let (file, mapping) = &self.file;
        let bytes = mapping.bytes(0..file.len)?.as_ptr_range();
        Some((bytes.start, bytes.end))
    }
}

impl Unstored<'_> {
    /// Stores the copies, if the device's layouts may be stored. Returns what kept it from that, in words for the user;
    /// `Cancelled` if the caller stops the load.
    pub fn store<'a>(
        self,
        placed: impl Fn(&WeightRequest) -> Option<&'a Placed>,
        progress: &mut Progress<'_>,
    ) -> Result<Option<String>> {
        let placed: Option<Vec<&Placed>> = self.requests.iter().map(|request| placed(request)).collect();
        let Some(placed) = placed else { return Ok(None) };
        let is_storable = |at: &&Placed| at.layout_id == 0 || at.layout_flags & LAYOUT_STORABLE != 0;
        if !placed.iter().all(is_storable) || placed.iter().all(|at| at.layout_id == 0) {
            return Ok(None);
        }
        let Unstored { cache, key, .. } = self;
        let stored = file::Writer::new(&key, &placed);
        let (path, size, limit) = (cache.path(&key), stored.size(), cache.limit);
        if size > limit {
            let problem =
                format!("sealed weights are not stored: {size} bytes, and the cache may have {limit}");
            return Ok(Some(problem));
        }
        let mut is_cancelled = false;
        let mut goes_on = || {
            is_cancelled = progress.check().is_err();
            !is_cancelled
        };
        let folder = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&cache.folder);
        let written =
            folder.and_then(|()| stored.write(&path, &mut goes_on, || cache.make_room(&path, size)));
        match written {
            Err(_) if is_cancelled => Err(Error::Cancelled),
            Err(e) => Ok(Some(format!("sealed weights are not stored: {}: {e}", path.display()))),
            Ok(()) => Ok(None),
        }
    }
}
