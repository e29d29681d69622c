//! A blob that is being written: locked, continued after an interruption, renamed when its digest is verified.

use super::{Blobs, CHUNK};
use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::files::{self, PARTIAL};
use crate::watch::{POLL, Watch};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What became of the request to write a blob.
pub(crate) enum Slot {
    /// This process writes it.
    Open(Partial),
    /// It is there; another process may just have finished it.
    Exists,
}

/// `STEM.partial` in the folder of blobs. Its lock ends with the process, so that a killed one leaves what it wrote to the
/// next.
pub(crate) struct Partial {
    path: PathBuf,
    file: File,
    len: u64,
    hasher: Hasher,
}

impl Partial {
    /// Opens the file and waits until no other process writes it. What is there already is hashed.
    pub(crate) fn open(
        blobs: &Blobs,
        stem: &str,
        digest: Option<(&Digest, u64)>,
        watch: &Watch<'_>,
    ) -> Result<Slot> {
        files::make_folder(&blobs.folder)?;
        let path = blobs.folder.join(format!("{stem}{PARTIAL}"));
        loop {
            if digest.is_some_and(|(digest, size)| blobs.size(digest) == Some(size)) {
                return Ok(Slot::Exists);
            }
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(Error::io(&path, "write"))?;
            lock(&file, &path, watch)?;
            // The process that had the lock may have renamed or removed the file.
            if is_at(&file, &path) {
                let mut partial = Partial { path, file, len: 0, hasher: Hasher::default() };
                partial.hash_existing(watch)?;
                return Ok(Slot::Open(partial));
            }
        }
    }

    fn hash_existing(&mut self, watch: &Watch<'_>) -> Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            watch.check()?;
            let n = self.file.read(&mut chunk).map_err(Error::io(&self.path, "read"))?;
            if n == 0 {
                return Ok(());
            }
            self.hasher.update(&chunk[..n]);
            self.len += n as u64;
        }
    }

    /// Bytes that are there.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Writes at the end.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(Error::io(&self.path, "write"))?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Writes all that a reader has at the end.
    pub(crate) fn append_all(&mut self, reader: &mut dyn Read) -> Result<()> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match reader.read(&mut chunk).map_err(Error::io(&self.path, "receive"))? {
                0 => return Ok(()),
                n => self.append(&chunk[..n])?,
            }
        }
    }

    /// Starts over with an empty file.
    pub(crate) fn restart(&mut self) -> Result<()> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(Error::io(&self.path, "write"))?;
        (self.len, self.hasher) = (0, Hasher::default());
        Ok(())
    }

    /// The digest of what is there.
    pub(crate) fn digest(&self) -> Digest {
        self.hasher.clone().finish()
    }

    /// Gives the file its final name, after its bytes are on the disk. The caller has compared the digest; `expected` is
    /// compared again, so that no other bytes can get the name.
    pub(crate) fn commit(self, blobs: &Blobs, expected: Option<&Digest>) -> Result<Digest> {
        let digest = self.digest();
        if expected.is_some_and(|expected| *expected != digest) {
            let problem = io::Error::new(io::ErrorKind::InvalidData, "its digest is another");
            return Err(Error::io(&self.path, "verify")(problem));
        }
        let path = blobs.path(&digest);
        let renamed = self.file.sync_all().and_then(|()| fs::rename(&self.path, &path));
        renamed.and_then(|()| files::sync_folder(&path)).map_err(Error::io(&path, "write"))?;
        Ok(digest)
    }

    /// Removes the file.
    pub(crate) fn discard(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Waits for the lock.
fn lock(file: &File, path: &Path, watch: &Watch<'_>) -> Result<()> {
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => watch.wait(POLL)?,
            Err(TryLockError::Error(e)) => return Err(Error::io(path, "lock")(e)),
        }
    }
}

/// Whether the open file is the one at `path`; links are not followed.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |found: io::Result<fs::Metadata>| found.map(|m| (m.dev(), m.ino())).ok();
    id(file.metadata()) == id(fs::symlink_metadata(path))
}

/// Whether no process writes an unfinished file, and none did for so many seconds.
pub(crate) fn is_abandoned(path: &Path, seconds: u64) -> bool {
    let age = fs::metadata(path).and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
    let is_old = age.is_some_and(|age| age.as_secs() >= seconds);
    is_old && OpenOptions::new().write(true).open(path).is_ok_and(|file| file.try_lock().is_ok())
}
