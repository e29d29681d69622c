//! Files that appear whole or not at all: written beside their place, synced, then renamed.

use crate::error::{Error, Result};
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Refuses an output that would replace an input, or anything else unless that is requested.
pub fn check_output<'a>(
    output: &Path,
    force: bool,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    if output == Path::new("-") {
        let problem = "a model is written to a file, which appears whole or not at all: give a file name (./- for a \
                       file of that name)";
        return Err(Error::usage(format!("-: {problem}")));
    }
    if inputs.into_iter().any(|input| is_same_file(input, output)) {
        let problem = "is read by this command: give the output another name";
        return Err(Error::usage(format!("{}: {problem}", output.display())));
    }
    if output.is_dir() {
        return Err(Error::output(output, "is a directory: give the name of a file in it"));
    }
    if output.exists() && !force {
        let problem = "exists already: choose another name, or overwrite it with --force";
        return Err(Error::output(output, problem));
    }
    Ok(())
}

/// Whether two paths lead to one file; links of either kind are followed.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    id(a).is_some_and(|a| Some(a) == id(b))
}

/// The files that are being written now.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn unfinished() -> MutexGuard<'static, Vec<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what is not finished, for a process that ends. Nothing new is begun while the guard is held.
pub fn remove_unfinished() -> impl Drop {
    let mut files = unfinished();
    files.drain(..).for_each(|file| drop(std::fs::remove_file(file)));
    files
}

/// A file being written. Dropped before [`NewFile::finish`] it leaves nothing.
pub struct NewFile {
    path: PathBuf,
    /// `None` where the path is no regular file (a pipe, `/dev/null`): then it is written directly.
    temporary: Option<PathBuf>,
    out: BufWriter<File>,
}

impl NewFile {
    /// Begins to write what will be `path`. What killed processes left of it is removed first.
    pub fn create(path: &Path) -> Result<NewFile> {
        let is_special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let created = match is_special {
            true => OpenOptions::new().write(true).open(path).map(|file| (None, file)),
            false => {
                remove_abandoned(path);
                let mut files = unfinished();
                create_beside(path).map(|(temporary, file)| {
                    files.push(temporary.clone());
                    (Some(temporary), file)
                })
            }
        };
        let (temporary, out) = created.map_err(|e| Error::unwritable(path, &e))?;
        Ok(NewFile { path: path.into(), temporary, out: BufWriter::with_capacity(1 << 20, out) })
    }

    /// Where to write to.
    pub fn out(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// Puts the file in its place, on the disk too.
    pub fn finish(mut self) -> Result<()> {
        self.put().map_err(|e| Error::unwritable(&self.path, &e))
    }

    fn put(&mut self) -> io::Result<()> {
        self.out.flush()?;
        if let Some(temporary) = &self.temporary {
            self.out.get_ref().sync_all()?;
            let mut files = unfinished();
            std::fs::rename(temporary, &self.path)?;
            files.retain(|file| file != temporary);
            drop(files);
            self.temporary = None;
            sync_folder(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let mut files = unfinished();
            let _ = std::fs::remove_file(temporary);
            files.retain(|file| file != temporary);
        }
    }
}

/// A new file beside `path`, locked as long as it is open. Its name cannot be guessed, and an existing one, a link
/// included, is never opened.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let random = RandomState::new().build_hasher().finish();
    let mut name = prefix(path);
    name.push(format!("{random:016x}.part"));
    let temporary = path.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    // File systems without locks: the file then stays if this process is killed.
    let _ = file.lock();
    match is_file_at(&file, &temporary) {
        true => Ok((temporary, file)),
        // Another run took it for abandoned before it was locked.
        false => create_beside(path),
    }
}

fn is_file_at(file: &File, path: &Path) -> bool {
    let id = |found: io::Result<std::fs::Metadata>| found.map(|m| (m.dev(), m.ino())).ok();
    id(file.metadata()) == id(std::fs::symlink_metadata(path))
}

/// Removes the unfinished files of `path` that no process has locked: their writers were killed.
fn remove_abandoned(path: &Path) {
    let prefix = prefix(path);
    let Ok(entries) = std::fs::read_dir(folder(path)) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_ours = name
            .as_encoded_bytes()
            .strip_prefix(prefix.as_encoded_bytes())
            .and_then(|rest| rest.strip_suffix(b".part"))
            .is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let Ok(file) = OpenOptions::new().write(true).open(entry.path()) else { continue };
            match file.try_lock() {
                Ok(()) => {
                    let _ = std::fs::remove_file(entry.path());
                }
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
            }
        }
    }
}

/// `.NAME.`
fn prefix(path: &Path) -> std::ffi::OsString {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    name
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts a rename on the disk, where the file system can.
fn sync_folder(path: &Path) -> io::Result<()> {
    match File::open(folder(path)).and_then(|folder| folder.sync_all()) {
        Err(e)
            if !matches!(
                e.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            Err(e)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    /// An empty folder of its own.
    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("llmrt-new-file-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    fn a_file_appears_when_it_is_finished_and_not_before() {
        let folder = scratch("whole");
        let path = folder.join("out");
        let mut file = NewFile::create(&path).unwrap();
        file.out().write_all(b"whole").unwrap();
        assert!(!path.exists() && names(&folder).len() == 1);
        file.finish().unwrap();
        assert_eq!((names(&folder), std::fs::read(&path).unwrap()), (vec!["out".into()], b"whole".to_vec()));
        drop(NewFile::create(&path).unwrap());
        assert_eq!(names(&folder), ["out"], "an unfinished file leaves nothing");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_what_others_write_is_not() {
        let folder = scratch("abandoned");
        let path = folder.join("out");
        let alive = NewFile::create(&path).unwrap();
        let left = folder.join(".out.0123456789abcdef.part");
        std::fs::write(&left, "left by a killed process").unwrap();
        for other in [".out.part", ".out.0123.part", ".other.0123456789abcdef.part"] {
            std::fs::write(folder.join(other), "not ours").unwrap();
        }
        NewFile::create(&path).unwrap().finish().unwrap();
        assert!(!left.exists(), "{:?}", names(&folder));
        assert_eq!(names(&folder).len(), 5, "{:?}", names(&folder));
        alive.finish().unwrap();
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn two_names_of_one_output_differ_and_links_are_not_followed() {
        let folder = scratch("names");
        let path = folder.join("out");
        let (a, b) = (NewFile::create(&path).unwrap(), NewFile::create(&path).unwrap());
        assert_ne!(a.temporary, b.temporary);
        let victim = folder.join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, folder.join(".out.0123456789abcdef.part")).unwrap();
        NewFile::create(&path).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
