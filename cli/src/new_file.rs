//! Files that appear whole or not at all: written beside their place, then renamed.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Refuses an output that would take the place of an input, or of anything else unless that is asked for.
pub fn check_output<'a>(
    output: &Path,
    force: bool,
    inputs: impl IntoIterator<Item = &'a Path>,
) -> Result<()> {
    if inputs.into_iter().any(|input| is_same_file(input, output)) {
        let problem = "is what would be converted: give the GGUF file another name";
        return Err(Error::usage(format!("{}: {problem}", output.display())));
    }
    if output.exists() && !force {
        let problem = "exists already: choose another name, or overwrite it with --force";
        return Err(Error::output(output, problem));
    }
    Ok(())
}

/// Whether two paths lead to one file; links of either kind are seen through.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    id(a).is_some_and(|a| Some(a) == id(b))
}

/// A file being written. Dropped before [`NewFile::finish`] it leaves nothing behind.
pub struct NewFile {
    path: PathBuf,
    /// `None` where the path is no regular file (a pipe, `/dev/null`): then it is written directly.
    temporary: Option<PathBuf>,
    out: BufWriter<File>,
}

impl NewFile {
    /// Begins to write what will be `path`.
    pub fn create(path: &Path) -> Result<NewFile> {
        let failed = |e| Error::output(path, format!("cannot write: {e}; check the folder and its rights"));
        let special = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        let temporary = (!special).then(|| beside(path));
        let out = File::create(temporary.as_deref().unwrap_or(path)).map_err(failed)?;
        Ok(NewFile { path: path.into(), temporary, out: BufWriter::with_capacity(1 << 20, out) })
    }

    /// Where to write to.
    pub fn out(&mut self) -> &mut impl Write {
        &mut self.out
    }

    /// Puts the file in its place.
    pub fn finish(mut self) -> Result<()> {
        let failed = |e| Error::output(&self.path, format!("cannot write: {e}"));
        self.out.flush().map_err(failed)?;
        if let Some(temporary) = &self.temporary {
            std::fs::rename(temporary, &self.path).map_err(failed)?;
        }
        self.temporary = None;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// `folder/NAME` as `folder/.NAME.PID.part`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}
