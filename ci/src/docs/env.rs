//! The knobs table.

use super::Llmrt;
use serde_json::Value;
use std::fmt::Write as _;

const PLUGINS: &str = "
`LLMRT_<PLUGIN>_<KEY>` sets the option `<plugin>.<key>` of a plugin. The keys of each plugin are in its page:
[cpu](../plugins/cpu.md).
";

pub fn body(llmrt: &Llmrt) -> Result<String, String> {
    let json = llmrt.output(&["devices", "--knobs", "--json"])?;
    table(&json).map(|table| table + PLUGINS)
}

fn table(json: &str) -> Result<String, String> {
    let rows: Vec<Value> = serde_json::from_str(json).map_err(|e| format!("devices --knobs --json: {e}"))?;
    let mut page = String::from("| variable | default | meaning | used in |\n|---|---|---|---|\n");
    for row in rows {
        let cell = |key: &str| row[key].as_str().unwrap_or_default().replace('|', "\\|");
        let (name, default, meaning) = (cell("name"), cell("default"), cell("meaning"));
        let file = cell("used_in");
        let folder = if file.starts_with("cli/") { "" } else { "runtime/" };
        let _ = writeln!(page, "| `{name}` | {default} | {meaning} | `{folder}{file}` |");
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_is_a_row_without_this_machines_value() {
        let json =
            r#"[{"name":"X","value":"here","default":"0","meaning":"A | B.","used_in":"host/src/x.rs"}]"#;
        let page = table(json).unwrap();
        assert!(page.ends_with("| `X` | 0 | A \\| B. | `runtime/host/src/x.rs` |\n"), "{page}");
    }
}
