//! Files that appear whole or not at all: written beside their place, then renamed.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

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
