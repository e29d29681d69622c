//! An open file of a model: its bytes by position, and whether it is still as long as it was.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::{Error, Result};

/// Bytes that are read or handed over at once: progress moves and Ctrl-C works in steps of this size.
pub const CHUNK: usize = 4 << 20;

/// A regular file that is not empty.
#[derive(Debug)]
pub struct OpenFile {
    /// As the user gave it.
    pub path: PathBuf,
    /// Bytes when it was opened.
    pub len: u64,
    pub(super) file: File,
}

impl OpenFile {
    /// Opens a file; a directory, a device or an empty file is refused before anything is read.
    pub fn open(path: &Path) -> Result<OpenFile> {
        let failed = |source| Error::Open { path: path.into(), source };
        // Opening a pipe would wait for a writer, so look before.
        let found = std::fs::metadata(path).map_err(failed)?;
        if found.is_dir() {
            return Err(Error::IsDirectory { path: path.into(), hint: models_in(path) });
        }
        if !found.is_file() {
            return Err(Error::NotRegular { path: path.into() });
        }
        let file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        if len == 0 {
            return Err(Error::Empty { path: path.into() });
        }
        Ok(OpenFile { path: path.into(), len, file })
    }

    /// A copy of `bytes` as a file without a place on disk, so that every way of loading works on it.
    pub fn in_memory(name: &str, bytes: &[u8]) -> Result<OpenFile> {
        let failed = |source| Error::Open { path: name.into(), source };
        // SAFETY: the name is a C string; the call touches no other memory of ours.
        let fd = unsafe { libc::memfd_create(c"llmrt".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor, which has no other owner.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(bytes).map_err(failed)?;
        Ok(OpenFile { path: name.into(), len: bytes.len() as u64, file })
    }

    /// Fills `dst` with the bytes from `at` on.
    pub fn read_exact_at(&self, at: u64, dst: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(dst, at).or_else(|source| {
            self.check_len()?; // a file cut short is the likely cause, and a better answer
            Err(Error::Read { path: self.path.clone(), at, n: dst.len() as u64, source })
        })
    }

    /// The first `n` bytes, or all if there are fewer.
    pub fn prefix(&self, n: u64) -> Result<Vec<u8>> {
        let mut bytes = buffer(self.len.min(n), || format!("the header of {}", self.path.display()))?;
        self.read_exact_at(0, &mut bytes)?;
        Ok(bytes)
    }

    /// An error if the file has another length than when it was opened.
    pub fn check_len(&self) -> Result<()> {
        match self.len_now()? {
            now if now != self.len => Err(Error::Changed { path: self.path.clone(), was: self.len, now }),
            _ => Ok(()),
        }
    }

    /// The file's length now.
    pub(super) fn len_now(&self) -> Result<u64> {
        let found = self.file.metadata();
        Ok(found.map_err(|source| Error::Open { path: self.path.clone(), source })?.len())
    }
}

/// `n` zero bytes, or an error in place of an abort.
pub(super) fn buffer(n: u64, what: impl Fn() -> String) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let fits = usize::try_from(n).is_ok_and(|n| bytes.try_reserve_exact(n).is_ok());
    if !fits {
        return Err(Error::HostMemory { what: what(), n });
    }
    bytes.resize(n as usize, 0);
    Ok(bytes)
}

/// `, for example NAME` if the folder holds a model.
fn models_in(folder: &Path) -> String {
    let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let model = names.filter(|name| Path::new(name).extension().is_some_and(|e| e == "gguf")).min();
    model.map_or(String::new(), |name| format!(", for example {}", name.display()))
}
