//! The store: models by name, over blobs that they share.

use crate::blobs::{Blobs, is_abandoned, is_partial};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::files;
use crate::manifest::{MAX_TEXT, Manifest};
use crate::name::Name;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// How long an interrupted download can be continued: older ones are removed together with unused blobs.
const KEEP_PARTIAL_SECONDS: u64 = 7 * 24 * 3600;

/// A folder of models.
pub struct Store {
    folder: PathBuf,
    pub(crate) blobs: Blobs,
}

/// A model of the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its name.
    pub name: Name,
    /// The digest of its manifest.
    pub id: Digest,
    /// Bytes of its blobs, shared ones included.
    pub size: u64,
    /// When its manifest was written.
    pub modified: SystemTime,
}

/// What the removal of a model freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Removed {
    /// Blobs that no manifest named any more.
    pub n_blobs: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Whether unused blobs stay until the next removal, since another process adds models now.
    pub is_deferred: bool,
}

impl Store {
    /// The store in this folder, which is made when something is put there.
    pub fn at(folder: impl Into<PathBuf>) -> Store {
        let folder = folder.into();
        Store { blobs: Blobs::new(folder.join("blobs")), folder }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Every model, the last written first; and what is wrong with those that cannot be read.
    pub fn list(&self) -> Result<(Vec<Entry>, Vec<Error>)> {
        let (mut entries, mut errors) = (Vec::new(), Vec::new());
        for name in self.names()? {
            match self.entry(&name) {
                Ok(entry) => entries.push(entry),
                Err(Error::NotFound { .. }) => {} // removed meanwhile
                Err(e) => errors.push(e),
            }
        }
        entries.sort_by(|a, b| b.modified.cmp(&a.modified).then_with(|| a.name.cmp(&b.name)));
        Ok((entries, errors))
    }

    /// A model of the list.
    pub fn entry(&self, name: &Name) -> Result<Entry> {
        let (manifest, bytes) = self.manifest(name)?;
        let path = self.manifest_path(name);
        let modified =
            fs::metadata(&path).and_then(|found| found.modified()).map_err(Error::io(&path, "read"))?;
        Ok(Entry { name: name.clone(), id: Digest::of(&bytes), size: manifest.size(), modified })
    }

    /// Whether there is a model of this name.
    pub fn has(&self, name: &Name) -> bool {
        self.manifest_path(name).is_file()
    }

    /// A model's manifest, and its bytes as they are stored.
    pub fn manifest(&self, name: &Name) -> Result<(Manifest, Vec<u8>)> {
        let found = files::read_small(&self.manifest_path(name), MAX_TEXT)?;
        let bytes = found.ok_or_else(|| Error::NotFound { name: name.clone() })?;
        match Manifest::parse(&bytes) {
            Ok(manifest) => Ok((manifest, bytes)),
            Err(problem) => Err(Error::BadManifest { name: name.clone(), problem }),
        }
    }

    /// Where a blob is, or would be.
    pub fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.blobs.path(digest)
    }

    /// Stores what a reader has as a blob, if it has this digest. The next removal of a model removes it, unless a model has it
    /// by then.
    pub fn receive(&self, digest: &Digest, reader: &mut dyn Read) -> Result<()> {
        let _adding = self.begin_adding()?;
        self.blobs.receive(digest, reader)
    }

    /// Gives a model a second name; what had that name before is replaced.
    pub fn copy(&self, from: &Name, to: &Name) -> Result<()> {
        let _adding = self.begin_adding()?;
        let (_, bytes) = self.manifest(from)?;
        self.put_manifest(to, &bytes)
    }

    /// Removes a name, and the blobs that no name is left for.
    pub fn remove(&self, name: &Name) -> Result<Removed> {
        let path = self.manifest_path(name);
        if !self.has(name) {
            return Err(Error::NotFound { name: name.clone() });
        }
        fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
        self.sweep()
    }

    /// Removes blobs that no manifest names, and downloads that nothing continued for a week.
    pub fn sweep(&self) -> Result<Removed> {
        let lock = self.lock_file()?;
        match lock.try_lock() {
            Ok(()) => self.sweep_locked(),
            Err(TryLockError::WouldBlock) => Ok(Removed { is_deferred: true, ..Removed::default() }),
            Err(TryLockError::Error(e)) => Err(Error::io(&self.folder, "lock")(e)),
        }
    }

    fn sweep_locked(&self) -> Result<Removed> {
        self.remove_empty_folders();
        let mut used = HashSet::new();
        // A manifest that cannot be read may name any blob: then none is removed.
        for name in self.names()? {
            used.extend(self.manifest(&name)?.0.blobs().map(|layer| layer.digest));
        }
        let mut removed = Removed::default();
        for (path, digest) in self.blobs.files()? {
            let is_import =
                path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"import-"));
            let keep = if is_import { 0 } else { KEEP_PARTIAL_SECONDS };
            let is_unused = match digest {
                Some(digest) => !used.contains(&digest),
                None => is_partial(&path) && is_abandoned(&path, keep),
            };
            if is_unused {
                let size = fs::metadata(&path).map_or(0, |found| found.len());
                fs::remove_file(&path).map_err(Error::io(&path, "remove"))?;
                removed.n_blobs += usize::from(digest.is_some());
                removed.bytes += size;
            }
        }
        Ok(removed)
    }

    /// While the result is held, no blob is removed: one that is added is not named by a manifest yet.
    pub(crate) fn begin_adding(&self) -> Result<File> {
        let lock = self.lock_file()?;
        lock.lock_shared().map_err(Error::io(&self.folder, "lock"))?;
        Ok(lock)
    }

    fn lock_file(&self) -> Result<File> {
        files::make_folder(&self.folder)?;
        let path = self.folder.join(".lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        opened.map_err(Error::io(&path, "write"))
    }

    pub(crate) fn put_manifest(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        files::write_whole(&self.manifest_path(name), bytes)
    }

    fn manifests(&self) -> PathBuf {
        self.folder.join("manifests")
    }

    fn manifest_path(&self, name: &Name) -> PathBuf {
        self.manifests().join(name.path())
    }

    /// The names of all manifests; other files are skipped.
    pub(crate) fn names(&self) -> Result<Vec<Name>> {
        let mut paths = vec![Vec::new()];
        for _ in 0..4 {
            let mut deeper = Vec::new();
            for path in paths {
                let folder = path.iter().fold(self.manifests(), |folder, part: &String| folder.join(part));
                deeper
                    .extend(children(&folder)?.into_iter().map(|child| [path.as_slice(), &[child]].concat()));
            }
            paths = deeper;
        }
        let name = |path: &Vec<String>| Name::new(&path[0], &path[1], &path[2], &path[3]).ok();
        Ok(paths.iter().filter_map(name).filter(|name| self.has(name)).collect())
    }

    fn remove_empty_folders(&self) {
        fn remove(folder: &Path, depth: usize) {
            let below = if depth > 0 { children(folder).unwrap_or_default() } else { Vec::new() };
            below.iter().for_each(|child| remove(&folder.join(child), depth - 1));
            // Fails where something is in it.
            let _ = fs::remove_dir(folder);
        }
        let hosts = children(&self.manifests()).unwrap_or_default();
        hosts.iter().for_each(|host| remove(&self.manifests().join(host), 2));
    }
}

/// The names in a folder; none if it is absent or no folder.
fn children(folder: &Path) -> Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        entries => entries.map_err(Error::io(folder, "list"))?,
    };
    Ok(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
}

#[cfg(test)]
mod tests;
