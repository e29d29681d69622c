//! The text files of the tree, without what is built.

use std::path::Path;

/// A text file.
pub struct TextFile {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// Endings of files that are read.
const ENDINGS: [&str; 15] = [
    ".rs",
    ".md",
    ".h",
    ".hpp",
    ".c",
    ".cpp",
    ".cu",
    ".cuh",
    ".toml",
    ".txt",
    ".py",
    ".sh",
    ".yml",
    "Dockerfile",
    ".ci/run",
];

/// Folders that are not: what is built, and what is not committed.
const SKIPPED: [&str; 5] = ["target", ".git", ".scratch", "__pycache__", "proptest-regressions"];

/// Every text file below a folder, in order of paths.
pub fn read(root: &Path) -> Result<Vec<TextFile>, String> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn walk(root: &Path, folder: &str, files: &mut Vec<TextFile>) -> Result<(), String> {
    let at = root.join(folder);
    for entry in std::fs::read_dir(&at).map_err(|e| format!("{}: {e}", at.display()))? {
        let entry = entry.map_err(|e| format!("{}: {e}", at.display()))?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let path = if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
        let kind = entry.file_type().map_err(|e| format!("{path}: {e}"))?;
        if kind.is_dir() && !SKIPPED.contains(&name) {
            walk(root, &path, files)?;
        } else if kind.is_file() && ENDINGS.iter().any(|ending| path.ends_with(ending)) {
            let text = std::fs::read_to_string(root.join(&path)).map_err(|e| format!("{path}: {e}"))?;
            files.push(TextFile { path, text });
        }
    }
    Ok(())
}
