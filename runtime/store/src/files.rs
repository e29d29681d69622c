//! Files that appear whole or not at all.

use crate::error::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

/// How names of files end that are not whole.
pub(crate) const PARTIAL: &str = ".partial";

/// Puts a small file in its place, on the disk too; folders are made.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    make_folder(path.parent().unwrap_or(Path::new(".")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}{PARTIAL}", random()));
    let written = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written.and_then(|()| sync_folder(path)).map_err(Error::io(path, "write"))
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// 16 digits that no other file has.
pub(crate) fn random() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Makes a folder and those above it.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(Error::io(folder, "make the folder"))
}

/// Puts the name of a file on the disk, where the file system can.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        Err(e) if !matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Err(e),
        _ => Ok(()),
    }
}

/// Reads at most `max` bytes of a file; `None` if there is no such file.
pub(crate) fn read_small(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(max + 1).read_to_end(&mut bytes));
    match read {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(Error::io(path, "read")(e)),
        Ok(n) if n as u64 > max => {
            Err(Error::io(path, "read")(io::Error::other(format!("it has more than {max} bytes"))))
        }
        Ok(_) => Ok(Some(bytes)),
    }
}
