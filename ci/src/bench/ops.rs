//! `cargo ci bench op`: times of single ops of the CPU plugin, beside the roofline. The cases are those of
//! `llmrt conform`'s level L6.

use super::program::{Ceilings, Llmrt};
use crate::root;
use serde_json::Value;

/// Measures and prints a Markdown table.
pub fn ops(words: &[&str]) -> Result<(), String> {
    let (mut pattern, mut threads, mut json) = (None, "2", None);
    let mut rest = words.iter();
    while let Some(&flag) = rest.next() {
        let value = *rest.next().ok_or_else(|| format!("{flag}: expected a value after it"))?;
        match flag {
            "--ops" => pattern = Some(value),
            "--threads" => threads = value,
            "--json" => json = Some(value),
            _ => return Err(format!("bench op {flag}: expected --ops, --threads or --json")),
        }
    }
    let n_threads = threads.parse().ok().filter(|&n: &usize| n > 0);
    let n_threads =
        n_threads.ok_or_else(|| format!("--threads {threads}: expected a whole number above 0"))?;
    let llmrt = Llmrt::new(None, None)?;
    let ceilings = llmrt.ceilings(n_threads)?;
    let mut command = llmrt.command();
    command.arg("conform").arg(root().join("target/release/libllmrt_cpu.so"));
    command.args(["--level", "L6", "--jobs", "1", "--threads", threads, "--json", "-"]);
    command.args(pattern.iter().flat_map(|p| ["--ops", p]));
    let out = command.output().map_err(|e| format!("llmrt conform: {e}"))?;
    let report: Value = serde_json::from_slice(&out.stdout)
        .map_err(|e| format!("llmrt conform: {e}\n{}", String::from_utf8_lossy(&out.stderr)))?;

    println!("{}", super::table::head(&[&["op"], words].concat(), &[(n_threads, ceilings)]));
    println!(
        "| op | case | µs | GB/s | of reads | GFLOP/s | of multiply-adds |\n|---|---|--:|--:|--:|--:|--:|"
    );
    report["perf"].as_array().into_iter().flatten().for_each(|row| println!("{}", line(row, &ceilings)));
    match json {
        Some(path) => std::fs::write(path, &out.stdout).map_err(|e| format!("{path}: {e}")),
        None => Ok(()),
    }
}

/// One line; ops whose measure is bytes have no operations. Products with matrices of few bits are compared with dot
/// products of bytes, all else with F32.
fn line(row: &Value, ceilings: &Ceilings) -> String {
    let text = |key: &str| row[key].as_str().unwrap_or("?");
    let number = |key: &str| row[key].as_f64();
    let share = |x: Option<f64>, whole: f64| x.map(|x| format!("{:.0} %", 100.0 * x / whole));
    let shown = |x: Option<f64>| x.map(|x| format!("{x:.1}"));

    let (op, case) = (text("op"), text("case"));
    let is_float = ["F32 ", "F16 ", "BF16 "].iter().any(|name| case.starts_with(name));
    let (most, unit) = match op.starts_with("mul_mat") && !is_float {
        true => (ceilings.int8, " of int8"),
        false => (ceilings.f32, " of F32"),
    };
    let (gb, gflop) = (number("gb_s"), number("gflop_s"));
    let cells = [
        shown(number("best_us")),
        shown(gb),
        share(gb, ceilings.read),
        shown(gflop),
        share(gflop, most).map(|share| share + unit),
    ];
    let cells = cells.map(|cell| cell.unwrap_or("–".into()));
    format!("| {op} | {case} | {} |", cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_op_is_compared_with_what_bounds_it() {
        let ceilings = Ceilings { read: 20.0, f32: 100.0, int8: 400.0 };
        let row = json!({ "op": "add", "case": "c", "best_us": 2.0, "gb_s": 5.0, "gflop_s": null });
        assert_eq!(line(&row, &ceilings), "| add | c | 2.0 | 5.0 | 25 % | – | – |");
        let mut row = json!({ "op": "mul_mat", "case": "Q4_0 [1, 1] × 1", "best_us": 1.0, "gb_s": 10.0 });
        row["gflop_s"] = json!(100.0);
        assert!(
            line(&row, &ceilings).ends_with("| 50 % | 100.0 | 25 % of int8 |"),
            "{}",
            line(&row, &ceilings)
        );
    }
}
