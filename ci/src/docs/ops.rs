//! The ops: numbers and sources from the op table, params from their structs, meaning from the first comment of each
//! op's file.

use super::Llmrt;
use crate::root;
use llmrt_abi::op::{PARAMS, ParamsInfo};
use llmrt_abi::{Op, OpInfo};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// One file per op, or per family of ops that share shape rule and reference.
const OPS: &str = "runtime/graph/src/ops";

const CONVENTIONS: &str = "\
What a plugin computes (`abi/include/llmrt/plugin.h`) and what the graph's references compute. `[n, m]` are dims, innermost
first; `·` multiplies, `∘` is any of a family's functions, `div` and `mod` are of integers, and `x[i, j]` is element i of
dim 0, j of dim 1. A row is dim 0. Everything is computed in F32 and rounded once.

- Required sources come first. An optional one is left out by `LLMRT_NO_TENSOR`, or by a smaller `n_src`. A source past
  the last one, and a param past the struct's end that is not 0, come from a newer host: the node is refused with
  `LLMRT_REASON_PARAM`.
- Sources have any strides where a device can step through them. Results have no gaps and share no memory with a source;
  `set_rows` and `cpy` write into source 0, and their result is a view of it.
- A dim may be 0. Then nothing is read, and a sum over no elements is 0.
- Semantics are ggml's; where they differ, the op's text has the difference. Bytes that are encoded need not be ggml's.
- Two runs on equal operands give equal bits on one device.
";

/// The page below its title.
pub fn body(_: &Llmrt) -> Result<String, String> {
    text()
}

fn text() -> Result<String, String> {
    let mut page =
        format!("{CONVENTIONS}\n## Table\n\n| number | op | sources | params | |\n|---|---|---|---|---|\n");
    let mut files: BTreeMap<usize, (String, Vec<OpInfo>)> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for info in Op::ALL.iter().map(|op| op.info()) {
        let file = file_of(&info);
        let place = order.iter().position(|other| *other == file).unwrap_or_else(|| {
            order.push(file.clone());
            order.len() - 1
        });
        let OpInfo { id, name, params, doc, .. } = info;
        let params = if params.is_empty() { String::new() } else { format!("`{params}`") };
        let doc = doc.replace('|', "\\|");
        let _ = writeln!(page, "| {id} | [{name}](#{file}) | {} | {params} | {doc} |", sources(&info));
        files.entry(place).or_insert_with(|| (file, Vec::new())).1.push(info);
    }
    for (file, ops) in files.into_values() {
        page += &section(&file, &ops)?;
    }
    Ok(page)
}

/// The file, without its folder and ending, that has an op's meaning.
fn file_of(info: &OpInfo) -> String {
    let own = root().join(OPS).join(format!("{}.rs", info.name));
    match (own.exists(), info.min_src) {
        (true, _) => info.name.into(),
        (false, 1) => "unary".into(),
        (false, _) => "binary".into(),
    }
}

fn sources(info: &OpInfo) -> String {
    match (info.min_src, info.max_src) {
        (min, max) if min == max => min.to_string(),
        (min, max) => format!("{min} to {max}"),
    }
}

fn section(file: &str, ops: &[OpInfo]) -> Result<String, String> {
    let path = root().join(OPS).join(format!("{file}.rs"));
    let mut page = format!("\n## {file}\n\n{}\n", meaning(&path)?);
    if ops.len() > 1 {
        let names: Vec<_> = ops.iter().map(|op| format!("`{}`", op.name)).collect();
        let _ = write!(page, "\nOps: {}.\n", names.join(", "));
    }
    let mut seen: Vec<&str> = Vec::new();
    for op in ops.iter().filter(|op| !op.params.is_empty()) {
        if let Some(params) = PARAMS.iter().find(|p| p.c_name == op.params)
            && !seen.contains(&op.params)
        {
            seen.push(op.params);
            page += &fields(params);
        }
    }
    Ok(page)
}

/// The comment that a file opens with, its paragraphs as paragraphs.
fn meaning(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let lines: Vec<_> =
        text.lines().map_while(|line| line.strip_prefix("//!")).map(|line| line.trim().to_owned()).collect();
    if !lines.iter().any(|line| line.starts_with("Result:") || line.starts_with("The result is ")) {
        return Err(format!(
            "{}: the first comment has no line `Result:` with dtype and shape of the result",
            file.display()
        ));
    }
    // Brackets would be links.
    Ok(lines.join("\n").replace("<", "&lt;").replace("*", "\\*"))
}

fn fields(params: &ParamsInfo) -> String {
    let mut page = format!("\n`{}`:\n\n| field | type | |\n|---|---|---|\n", params.c_name);
    for (name, ty, doc) in params.fields {
        let _ = writeln!(page, "| `{name}` | {ty} | {} |", doc.trim().replace('|', "\\|"));
    }
    page
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_committed_page_is_the_generated_one() {
        let page = super::super::PAGES.iter().find(|page| page.file.ends_with("/ops.md")).unwrap();
        let expected = super::super::text(page, &super::text().unwrap());
        let file = crate::root().join(page.file);
        let committed = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(committed == expected, "{} is out of date: run `cargo ci docs`", page.file);
    }
}
