//! Op × dtype of the CPU plugin.

use super::Llmrt;

const OTHERS: &str = "
The same table of another plugin: `llmrt --plugin FILE --backend NAME ops --markdown`.
";

pub fn body(llmrt: &Llmrt) -> Result<String, String> {
    let page = llmrt.output(&["--backend", "cpu", "ops", "--markdown"])?;
    // Its own title gives way to the page's.
    let table = page.split_once("\n\n").map_or(page.as_str(), |(_, table)| table);
    Ok(format!("{}\n{OTHERS}", table.trim_end()))
}
