//! Outputs of other programs, beside the checkout as `../shared/fixtures`. Where they are absent, tests that need them
//! say so and pass.

use std::path::{Path, PathBuf};

/// The repository's root.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ stands in the repository")
}

/// The folder `name` of the fixtures, or `None` with a message when it is not there.
pub fn fixtures(name: &str) -> Option<PathBuf> {
    let dir = root().parent()?.join("shared/fixtures").join(name);
    if dir.is_dir() {
        return Some(dir);
    }
    eprintln!("skipped: no folder ../shared/fixtures/{name}");
    None
}

/// The files of a folder with this ending, sorted.
pub fn files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<_> = entries.flatten().map(|e| e.path()).collect();
    files.retain(|p| p.to_string_lossy().ends_with(ending));
    files.sort();
    assert!(!files.is_empty(), "no *{ending} in {}", dir.display());
    files
}
