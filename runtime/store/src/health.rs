//! What is wrong with a store, and what is left over in it.

use crate::blobs::is_partial;
use crate::error::{Error, Result};
use crate::files;
use crate::store::Store;
use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::path::Path;

/// Files, and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// How many there are.
    pub n: usize,
    /// Their bytes.
    pub bytes: u64,
}

/// The state of a store. Digests are not computed again: that would read every byte.
#[derive(Debug, Default)]
pub struct Health {
    /// Models that can be read.
    pub n_models: usize,
    /// The blobs of models, whatever their sizes are.
    pub blobs: Files,
    /// Unfinished downloads and copies.
    pub partial: Files,
    /// Blobs that no manifest names; none is counted where a manifest cannot be read, which may name any.
    pub unused: Files,
    /// Manifests that cannot be read; blobs of manifests that are absent or of another size.
    pub problems: Vec<Error>,
}

impl Files {
    fn add(&mut self, path: &Path) {
        self.n += 1;
        self.bytes += fs::metadata(path).map_or(0, |found| found.len());
    }
}

impl Store {
    /// Looks at every manifest, and at the size of every blob. Changes nothing.
    ///
    /// Fails where a folder of the store cannot be listed.
    pub fn health(&self) -> Result<Health> {
        let mut health = Health::default();
        let mut used = HashSet::new();
        let mut are_all_read = true;
        for name in self.names()? {
            let manifest = match self.manifest(&name) {
                Ok((manifest, _)) => manifest,
                Err(Error::NotFound { .. }) => continue, // removed meanwhile
                Err(e) => {
                    are_all_read = false;
                    health.problems.push(e);
                    continue;
                }
            };
            health.n_models += 1;
            for layer in manifest.blobs() {
                used.insert(layer.digest);
                health.problems.extend(self.blob(&name, layer).err());
            }
        }
        for (path, digest) in self.blobs.files()? {
            match digest {
                Some(digest) if used.contains(&digest) => health.blobs.add(&path),
                Some(_) if are_all_read => health.unused.add(&path),
                None if is_partial(&path) => health.partial.add(&path),
                _ => {}
            }
        }
        Ok(health)
    }

    /// Whether models can be added: writes a file to the folder, or where that is not there yet to the nearest one above
    /// it, and removes it.
    pub fn check_writable(&self) -> Result<()> {
        let existing = self.folder().ancestors().find(|folder| folder.symlink_metadata().is_ok());
        let existing = existing.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let path = existing.join(format!(".llmrt-{}{}", files::random(), files::PARTIAL));
        let made = OpenOptions::new().write(true).create_new(true).open(&path);
        made.map_err(Error::io(self.folder(), "write"))?;
        fs::remove_file(&path).map_err(Error::io(&path, "remove"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateOptions, Modelfile, Name, Watch};

    const STORIES: &str = "FROM ../../cli/assets/stories.gguf\n";

    /// A store with a model of two layers, and the path of its largest blob.
    fn with_model(folder: &Path) -> (Store, std::path::PathBuf) {
        let store = Store::at(folder.join("models"));
        let modelfile = Modelfile::parse(&format!("{STORIES}SYSTEM be brief\n")).unwrap();
        let name: Name = "a".parse().unwrap();
        store.create(&name, &modelfile, &CreateOptions::default(), &mut Watch::none()).unwrap();
        let gguf = store.model(&name).unwrap().gguf;
        (store, gguf)
    }

    #[test]
    fn a_good_store_has_no_problem_and_an_absent_one_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = with_model(folder.path());
        let health = store.health().unwrap();
        assert_eq!((health.n_models, health.blobs.n, health.problems.len()), (1, 3, 0), "{health:?}");
        assert_eq!((health.unused, health.partial), Default::default());
        store.check_writable().unwrap();
        let absent = Store::at(folder.path().join("b/c"));
        assert_eq!(absent.health().unwrap().n_models, 0);
        absent.check_writable().unwrap();
        assert!(!absent.folder().exists() && !folder.path().join("b").exists());
    }

    #[test]
    fn absent_and_truncated_blobs_and_bad_manifests_are_problems() {
        let folder = tempfile::tempdir().unwrap();
        let (store, gguf) = with_model(folder.path());
        OpenOptions::new().write(true).open(&gguf).unwrap().set_len(10).unwrap();
        let problems = store.health().unwrap().problems;
        assert!(
            matches!(&problems[..], [Error::BadBlob { problem, .. }] if problem.contains("has 10 bytes"))
        );
        fs::remove_file(&gguf).unwrap();
        let problems = store.health().unwrap().problems;
        assert!(matches!(&problems[..], [Error::BadBlob { problem, .. }] if problem.contains("missing")));
        store.put_manifest(&"b".parse().unwrap(), b"{").unwrap();
        let health = store.health().unwrap();
        assert!(health.problems.iter().any(|e| matches!(e, Error::BadManifest { .. })), "{health:?}");
    }

    #[test]
    fn what_is_left_over_is_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (store, gguf) = with_model(folder.path());
        fs::write(gguf.with_file_name("sha256-1.partial"), "half").unwrap();
        let digest = crate::Digest::of(b"spare");
        store.receive(&digest, &mut &b"spare"[..]).unwrap();
        let health = store.health().unwrap();
        assert_eq!((health.partial, health.unused), (Files { n: 1, bytes: 4 }, Files { n: 1, bytes: 5 }));
        assert!(health.problems.is_empty());
    }

    #[test]
    fn a_store_below_a_file_is_not_writable() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        let e = Store::at(folder.path().join("file/models")).check_writable().unwrap_err();
        assert!(matches!(e, Error::Io { action: "write", .. }), "{e}");
    }
}
