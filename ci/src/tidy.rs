//! `cargo ci tidy`: the words, links, sizes and paths of the tree's text, held against the project's rules.
//!
//! Every finding is a line `file:line: what → remedy`. Folders in [`words::PENDING`] are counted instead.

mod files;
mod limits;
mod links;
mod words;

use crate::root;
use files::TextFile;
use std::collections::BTreeMap;

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
    let (mut findings, pending) = check(&files);
    findings.extend(words::stale(&files));
    if !pending.is_empty() {
        println!("not swept yet (PENDING in ci/src/tidy/words.rs), with words of the deny-list:");
        pending.iter().for_each(|(folder, n)| println!("  {folder}: {n}"));
    }
    if findings.is_empty() {
        return Ok(());
    }
    findings.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
    let lines: Vec<String> = findings.iter().map(|f| format!("{}:{}: {}", f.file, f.line, f.text)).collect();
    Err(format!("{} findings:\n{}", lines.len(), lines.join("\n")))
}

/// All findings, and the number of words of the deny-list by pending folder.
fn check(files: &[TextFile]) -> (Vec<Finding>, BTreeMap<&'static str, usize>) {
    let mut findings = Vec::new();
    let mut pending: BTreeMap<&str, usize> = words::PENDING.iter().map(|folder| (*folder, 0)).collect();
    for file in files {
        let found = words::check(file);
        match words::PENDING.iter().find(|folder| file.path.starts_with(**folder)) {
            Some(folder) => *pending.entry(folder).or_default() += found.len(),
            None => findings.extend(found),
        }
        findings.extend(words::machine_paths(file));
        findings.extend(limits::check(file));
        findings.extend(links::check(file, files));
    }
    (findings, pending)
}
