//! `cargo ci tidy`: the words, links, sizes and paths of the tree's text, held against the project's rules.
//!
//! Every finding is a line `file:line: what → remedy`.

mod files;
mod limits;
mod links;
mod words;

use crate::root;
use files::TextFile;

/// Something to correct.
#[derive(PartialEq, Eq, Debug)]
struct Finding {
    /// Path from the repository's root.
    file: String,
    /// Counted from 1; 0: the file as a whole.
    line: usize,
    /// What was found, and the remedy.
    text: String,
}

/// Checks the whole tree.
pub fn tidy() -> Result<(), String> {
    let files = files::read(root())?;
    let mut findings = check(&files);
    findings.extend(words::stale(&files));
    if findings.is_empty() {
        return Ok(());
    }
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    let lines: Vec<String> = findings.iter().map(|f| format!("{}:{}: {}", f.file, f.line, f.text)).collect();
    Err(format!("{} findings:\n{}", lines.len(), lines.join("\n")))
}

fn check(files: &[TextFile]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        findings.extend(words::check(file));
        findings.extend(words::machine_paths(file));
        findings.extend(limits::check(file));
        findings.extend(links::check(file, files));
    }
    findings
}
