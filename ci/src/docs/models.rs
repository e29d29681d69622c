//! Architectures and tensor types.

use super::Llmrt;
use crate::root;
use llmrt_abi::{DType, DTypeKind};
use llmrt_graph::quant;
use serde_json::Value;
use std::fmt::Write as _;

/// A file per architecture, or per family.
const ARCHS: &str = "runtime/models/src/arch";

pub fn body(llmrt: &Llmrt) -> Result<String, String> {
    let ops = llmrt.output(&["--backend", "cpu", "ops", "--json"])?;
    Ok(format!("{}\n{}", architectures()?, types(&multiplied(&ops)?)))
}

fn architectures() -> Result<String, String> {
    let mut page = String::from(
        "## Architectures\n\nBy `general.architecture` of the GGUF file.\n\n| name | model family | file |\n|---|---|---|\n",
    );
    for row in read(&format!("{ARCHS}/mod.rs"))?.lines().filter_map(Row::parse) {
        let file = format!("{ARCHS}/{}.rs", row.module);
        let _ = writeln!(page, "| `{}` | {} | `{file}` |", row.name, row.introduction(&read(&file)?));
    }
    page += "\nllama2.c checkpoints (v0, v1, v2) run as `llama`.\n";
    Ok(page)
}

fn types(multiplied: &[String]) -> String {
    let mut page = String::from(
        "## Tensor types\n\nNumbers are GGUF's. *weights*: matrices of this type are multiplied (`mul_mat` of the CPU); *written*:\nthe type has an encoder, so `llmrt quantize` and `llmrt synth` can write it.\n\n\
         | type | number | elements per block | bytes per block | bits per element | weights | written |\n|---|--:|--:|--:|--:|:-:|:-:|\n",
    );
    let mark = |is_so: bool| if is_so { "✓" } else { "" };
    for t in DType::ALL {
        let info = t.info();
        let bits = f64::from(info.block_bytes * 8) / f64::from(info.block_elems);
        let is_weight = multiplied.iter().any(|name| name == info.name);
        let is_written = info.kind != DTypeKind::Int && quant::can_encode(*t);
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | {} | {} |",
            info.name,
            info.id,
            info.block_elems,
            info.block_bytes,
            (bits * 1000.0).round() / 1000.0,
            mark(is_weight),
            mark(is_written),
        );
    }
    page
}

/// Types of weights that the CPU multiplies, from `llmrt ops --json`.
fn multiplied(ops: &str) -> Result<Vec<String>, String> {
    let ops: Vec<Value> = serde_json::from_str(ops).map_err(|e| format!("ops --json: {e}"))?;
    let types =
        ops.iter().find(|op| op["op"] == "mul_mat").and_then(|op| op["devices"][0]["types"].as_array());
    let types = types.ok_or("ops --json has no types of mul_mat")?;
    Ok(types.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

/// A row of the table: `("name", &module::CONSTANT),`.
struct Row<'a> {
    name: &'a str,
    module: &'a str,
    constant: &'a str,
}

impl Row<'_> {
    fn parse(line: &str) -> Option<Row<'_>> {
        let (name, arch) = line.trim().strip_prefix("(\"")?.strip_suffix("),")?.split_once("\", &")?;
        let (module, constant) = arch.split_once("::")?;
        Some(Row { name, module, constant })
    }

    /// The comment of the constant, or of the file where the constant has none.
    fn introduction(&self, source: &str) -> String {
        let definition = format!("const {}: Arch", self.constant);
        let lines: Vec<&str> = source.lines().take_while(|line| !line.contains(&definition)).collect();
        let comment = lines.iter().rev().map_while(|line| line.strip_prefix("///")).map(str::trim);
        match comment.collect::<Vec<_>>() {
            none if none.is_empty() => introduction(source),
            reversed => reversed.into_iter().rev().collect::<Vec<_>>().join(" ").replace('|', "\\|"),
        }
    }
}

/// The first paragraph of a file's `//!` comment, as one line.
fn introduction(source: &str) -> String {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn read(file: &str) -> Result<String, String> {
    std::fs::read_to_string(root().join(file)).map_err(|e| format!("{file}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_introduction_is_the_first_paragraph() {
        assert_eq!(introduction("//! One\n//! two.\n//!\n//! Three.\nuse x;\n"), "One two.");
    }

    #[test]
    fn every_architecture_has_a_row() {
        let page = architectures().unwrap();
        assert!(page.contains("| `llama` | Llama 1 to 3"), "{page}");
    }

    #[test]
    fn types_of_mul_mat_are_found_in_the_list_of_ops() {
        let json = r#"[{"op":"add","devices":[]},{"op":"mul_mat","devices":[{"types":["F32","Q4_0"]}]}]"#;
        assert_eq!(multiplied(json).unwrap(), ["F32", "Q4_0"]);
        assert!(multiplied("[]").is_err());
    }
}
