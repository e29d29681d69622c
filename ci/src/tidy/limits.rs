//! Sizes: pages of docs, and source files.

use super::Finding;
use super::files::TextFile;

/// (path or folder, most bytes): the first row that fits counts. Generated references have no limit.
const PAGES: &[(&str, usize)] = &[
    ("README.md", 6 << 10),
    ("docs/architecture.md", 12 << 10),
    ("docs/guide/", 5 << 10),
    // The whole way from the header to a published table, for readers outside this tree.
    ("docs/contributing/plugin.md", 24 << 10),
    ("docs/contributing/", 3 << 10),
    ("docs/plugins/", 8 << 10),
    ("docs/perf/results.md", 6 << 10),
    ("docs/perf/roofline.md", 8 << 10),
];

/// Lines of a source file, and the files that may have more.
const MAX_LINES: usize = 600;
const TABLES: &[&str] = &[
    // Tables: ops and params, and what is generated.
    "abi/src/op.rs",
    "abi/include/llmrt/plugin.h",
    "plugins/cann/src/sys.rs",
];

pub fn check(file: &TextFile) -> Option<Finding> {
    page(file).or_else(|| source(file))
}

fn page(file: &TextFile) -> Option<Finding> {
    let fits = |path: &str| if path.ends_with('/') { file.path.starts_with(path) } else { file.path == path };
    let (_, limit) = PAGES.iter().find(|(path, _)| fits(path))?;
    let n = file.text.len();
    (n > *limit).then(|| {
        finding(file, format!("{n} bytes → at most {limit}: cut, or move a part to a page of its own"))
    })
}

fn source(file: &TextFile) -> Option<Finding> {
    let is_source =
        [".rs", ".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".py"].iter().any(|e| file.path.ends_with(e));
    let n = file.text.lines().count();
    let is_long = is_source && n > MAX_LINES && !TABLES.contains(&file.path.as_str());
    is_long.then(|| {
        finding(file, format!("{n} lines → at most {MAX_LINES}: split it; only tables may be longer"))
    })
}

fn finding(file: &TextFile, text: String) -> Finding {
    Finding { file: file.path.clone(), line: 0, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: String) -> bool {
        check(&TextFile { path: path.into(), text }).is_some()
    }

    #[test]
    fn a_page_may_have_as_many_bytes_as_its_limit() {
        assert!(!found("docs/guide/run.md", "x".repeat(5 << 10)));
        assert!(found("docs/guide/run.md", "x".repeat((5 << 10) + 1)));
        assert!(!found("docs/status.md", "x".repeat(1 << 20)));
    }

    #[test]
    fn a_source_file_may_have_600_lines_unless_it_is_a_table() {
        assert!(!found("cli/src/main.rs", "\n".repeat(600)));
        assert!(found("cli/src/main.rs", "\n".repeat(601)));
        assert!(!found("abi/src/op.rs", "\n".repeat(601)));
    }
}
