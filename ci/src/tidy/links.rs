//! Links between Markdown files, and paths of the tree that pages name: both must lead somewhere.

use super::Finding;
use super::files::TextFile;
use crate::root;
use std::path::{Component, Path, PathBuf};

/// Folders at the root: a name in backquotes that begins with one is a path.
const FOLDERS: [&str; 9] =
    ["abi/", "runtime/", "plugins/", "cli/", "tests/", "tools/", "ci/", "docs/", ".ci/"];

/// Experiments name files as they were then.
const HISTORY: &str = "docs/perf/journal/";

pub fn check(file: &TextFile, files: &[TextFile]) -> Vec<Finding> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let mut is_code = false;
    for (i, line) in file.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let mut report = |text: String| {
            findings.push(Finding { file: file.path.clone(), line: i + 1, text });
        };
        if !is_code {
            targets(line).filter_map(|t| broken_link(&file.path, t, files)).for_each(&mut report);
        }
        if !file.path.starts_with(HISTORY) {
            spans(line).filter_map(missing_path).for_each(&mut report);
        }
    }
    findings
}

/// What stands between `](` and `)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

/// What stands between single backquotes.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn broken_link(from: &str, target: &str, files: &[TextFile]) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(from).parent().unwrap_or(Path::new(""));
    let path = if path.is_empty() { PathBuf::from(from) } else { normal(&folder.join(path)) };
    if !root().join(&path).exists() {
        return Some(format!("link to {target} → {} does not exist", path.display()));
    }
    let page = files.iter().find(|file| Path::new(&file.path) == path);
    match page {
        Some(page) if !anchor.is_empty() && !anchors(&page.text).any(|a| a == anchor) => {
            Some(format!("link to {target} → {} has no heading #{anchor}", page.path))
        }
        _ => None,
    }
}

/// `a/../b` → `b`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut done, part| {
        match part {
            Component::ParentDir => {
                done.pop();
            }
            Component::CurDir => {}
            part => done.push(part),
        }
        done
    })
}

/// Headings as anchors: small letters, spaces as `-`, without punctuation.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

fn missing_path(span: &str) -> Option<String> {
    let is_path = FOLDERS.iter().any(|folder| span.starts_with(folder))
        && span.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-'));
    (is_path && !root().join(span).exists()).then(|| format!("{span} → does not exist"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let page = TextFile { path: "docs/status.md".into(), text: text.into() };
        let other = TextFile { path: "README.md".into(), text: "# A plugin: how?\n".into() };
        check(&page, &[other]).into_iter().map(|f| format!("{}: {}", f.line, f.text)).collect()
    }

    #[test]
    fn links_lead_to_files_and_headings() {
        assert!(
            found("[a](../README.md) [b](../README.md#a-plugin-how) [c](https://example.org/x)").is_empty()
        );
        assert_eq!(found("\n[a](no.md)"), ["2: link to no.md → docs/no.md does not exist"]);
        let anchor = found("[a](../README.md#none)");
        assert_eq!(anchor, ["1: link to ../README.md#none → README.md has no heading #none"]);
    }

    #[test]
    fn links_in_code_are_no_links() {
        assert!(found("```c\nstatic void (*f[3])(no);\na[1](x)\n```").is_empty());
    }

    #[test]
    fn a_path_in_backquotes_exists() {
        assert!(found("`cli/src/main.rs`, `ci/`, `abi/<name>`, `abi stable`").is_empty());
        assert_eq!(found("see `cli/src/none.rs`"), ["1: cli/src/none.rs → does not exist"]);
    }
}
