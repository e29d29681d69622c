//! Blobs: files named by their digest. A name without `.partial` is that of a whole, verified file.

mod partial;

pub(crate) use partial::{Partial, Slot, is_abandoned};

use crate::digest::{Digest, Hasher};
use crate::error::{Error, Result};
use crate::files::{self, PARTIAL};
use crate::manifest::Layer;
use crate::watch::{Event, Watch};
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Bytes that are copied and hashed at a time.
const CHUNK: usize = 1 << 20;

/// The folder of blobs.
pub(crate) struct Blobs {
    folder: PathBuf,
}

impl Blobs {
    pub(crate) fn new(folder: PathBuf) -> Blobs {
        Blobs { folder }
    }

    /// Where a blob is, or would be.
    pub(crate) fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(digest.file_name())
    }

    /// The bytes of a blob that is there.
    pub(crate) fn size(&self, digest: &Digest) -> Option<u64> {
        fs::metadata(self.path(digest)).ok().filter(fs::Metadata::is_file).map(|found| found.len())
    }

    /// Stores a small blob.
    pub(crate) fn put(&self, media_type: &str, bytes: &[u8]) -> Result<Layer> {
        let digest = Digest::of(bytes);
        let size = bytes.len() as u64;
        if self.size(&digest) != Some(size) {
            files::write_whole(&self.path(&digest), bytes)?;
        }
        Ok(Layer { media_type: media_type.into(), digest, size })
    }

    /// Stores a file as a blob: a copy, or a hard link where that is requested and possible.
    pub(crate) fn import(
        &self,
        media_type: &str,
        path: &Path,
        link: bool,
        watch: &mut Watch<'_>,
    ) -> Result<Layer> {
        let (digest, size) = match self.import_link(path, link, watch)? {
            Some(linked) => linked,
            None => self.import_copy(path, watch)?,
        };
        Ok(Layer { media_type: media_type.into(), digest, size })
    }

    fn import_copy(&self, path: &Path, watch: &mut Watch<'_>) -> Result<(Digest, u64)> {
        let Slot::Open(mut partial) =
            Partial::open(self, &format!("import-{}", files::random()), None, watch)?
        else {
            unreachable!("a name of its own has no finished blob");
        };
        let copied = read_all(path, watch, |bytes| partial.append(bytes));
        match copied {
            Ok(()) => {
                let size = partial.len();
                Ok((partial.commit(self, None)?, size))
            }
            Err(e) => {
                partial.discard();
                Err(e)
            }
        }
    }

    /// `None` where no link is requested or the file system has none between the two places.
    fn import_link(&self, path: &Path, link: bool, watch: &mut Watch<'_>) -> Result<Option<(Digest, u64)>> {
        if !link {
            return Ok(None);
        }
        let (mut hasher, mut size) = (Hasher::default(), 0);
        read_all(path, watch, |bytes| {
            size += bytes.len() as u64;
            hasher.update(bytes);
            Ok(())
        })?;
        let digest = hasher.finish();
        files::make_folder(&self.folder)?;
        let source = fs::canonicalize(path).map_err(Error::io(path, "read"))?;
        match fs::hard_link(source, self.path(&digest)) {
            Ok(()) => Ok(Some((digest, size))),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(Some((digest, size))),
            Err(_) => Ok(None),
        }
    }

    /// Stores what a reader has, if it has this digest.
    pub(crate) fn receive(&self, digest: &Digest, reader: &mut dyn Read) -> Result<()> {
        let stem = format!("import-{}", files::random());
        let Slot::Open(mut partial) = Partial::open(self, &stem, None, &Watch::none())? else {
            unreachable!("a name of its own has no finished blob");
        };
        let received = partial.append_all(reader).and_then(|()| match partial.digest() {
            found if found == *digest => Ok(()),
            found => Err(Error::DigestMismatch { url: "the request".into(), expected: *digest, found }),
        });
        match received {
            Ok(()) => partial.commit(self, Some(digest)).map(drop),
            Err(e) => {
                partial.discard();
                Err(e)
            }
        }
    }

    /// Every file of the folder, and its digest if it is a whole blob.
    pub(crate) fn files(&self) -> Result<Vec<(PathBuf, Option<Digest>)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            entries => entries.map_err(Error::io(&self.folder, "list"))?,
        };
        let file = |entry: fs::DirEntry| {
            let digest = Digest::of_file_name(&entry.file_name().to_string_lossy());
            (entry.path(), digest)
        };
        Ok(entries.flatten().map(file).collect())
    }
}

/// Whether a file of the folder of blobs is unfinished.
pub(crate) fn is_partial(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(PARTIAL.as_bytes())
}

/// Reads a file a chunk at a time.
pub(crate) fn read_all(
    path: &Path,
    watch: &mut Watch<'_>,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut file = File::open(path).map_err(Error::io(path, "read"))?;
    let total = file.metadata().ok().map(|found| found.len());
    let mut chunk = vec![0; CHUNK];
    let mut done = 0;
    loop {
        watch.check()?;
        let n = file.read(&mut chunk).map_err(Error::io(path, "read"))?;
        if n == 0 {
            return Ok(());
        }
        each(&chunk[..n])?;
        done += n as u64;
        watch.show(Event::Transfer { digest: None, done, total });
    }
}
