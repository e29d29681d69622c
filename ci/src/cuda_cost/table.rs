//! The table of costs as text.

use super::Row;
use super::chips::Chip;
use super::model::Cost;

/// What the columns are.
const HEAD: &str = "# What kernels for decodes cost, predicted from NVRTC's machine code without a card (docs/plugins/cuda-cost.md).
# Written by `cargo ci cuda-cost`, compared by `cargo ci cuda-cost --check`.
";

pub fn head(sources: u64) -> String {
    format!("{HEAD}# sources {sources:016x}\n")
}

/// A card's rows.
pub fn card(card: &Chip, rows: &[Row], has_mix: bool) -> String {
    let need = card.bytes_per_clock() * card.latency[2] as f64 / 1024.0;
    let mut text = format!(
        "\n{} ({}): {:.1} bytes per clock and multiprocessor, {:.1} KiB in flight keep the memory busy\n\n",
        card.name,
        card.target,
        card.bytes_per_clock(),
        need
    );
    text += &format!(
        "{:<24} {:<24} {:>6} {:>4} {:>5} {:>5} {:>5} {:>5} {:>6} {:>6} {:>6} | {:>5} {:>4} {:>4} {:>5} {:>6} {:>4} {:>5} {:>5} {:>5} {:>5} | {:>5} {:<6} {:>8} {}\n",
        "case",
        "kernel",
        "blocks",
        "regs",
        "warps",
        "B/rq",
        "sc/rq",
        "loads",
        "KiB",
        "times",
        "i/KiB",
        "issue",
        "int",
        "mul",
        "float",
        "tensor",
        "func",
        "cache",
        "wait",
        "l2",
        "dram",
        "share",
        "limit",
        "us",
        "target"
    );
    for row in rows {
        text += &lines(card, row, has_mix);
    }
    text
}

fn lines(card: &Chip, row: &Row, has_mix: bool) -> String {
    let mut text = String::new();
    let ideal = row.least / card.memory / 1000.0;
    let total: f64 = row.costs.iter().map(Cost::time).sum();
    let target = target(&row.name);
    let share = ideal / total;
    for (i, cost) in row.costs.iter().enumerate() {
        let last = i + 1 == row.costs.len();
        text += &format!("{:<24} {}", if i == 0 { &row.name } else { "" }, figures(card, cost, ideal));
        let verdict = target.filter(|_| last).map_or(String::new(), |target| {
            let word = if share >= target { "passes" } else { "misses" };
            format!(" {word} {:.0}", 100.0 * target)
        });
        let share = if last { format!("{:.0}%", 100.0 * share) } else { String::new() };
        text += &format!(" | {share:>5} {:<6} {:>8.2}{verdict}\n", cost.limit(), cost.time());
        if has_mix {
            text += &mix(cost);
        }
    }
    text
}

fn figures(card: &Chip, cost: &Cost, ideal: f64) -> String {
    let requests = cost.requests.max(1) as f64;
    // Bytes of a multiprocessor on their way on average: what warps stream in the time that they take, by Little's law.
    let warps = f64::from(cost.threads / 32);
    let flight =
        cost.stream_bytes as f64 / warps * cost.far as f64 / cost.warp.clocks.max(1) as f64 * cost.warps;
    let moved = cost.moved / (ideal * card.memory * 1000.0);
    let all: u64 = cost.instructions.values().sum();
    let per_kib = match cost.stream_bytes {
        0 => "-".into(),
        bytes => format!("{:.0}", all as f64 / (bytes as f64 / 1024.0)),
    };
    let mut text = format!(
        "{:<24} {:>6} {:>4} {:>5} {:>5.0} {:>5.1} {:>5} {:>6.1} {:>6.2} {per_kib:>6} |",
        cost.kernel,
        cost.n_blocks,
        cost.registers,
        cost.warps,
        cost.bytes as f64 / requests,
        cost.sectors as f64 / requests,
        cost.warp.in_flight,
        flight / 1024.0,
        moved,
    );
    for (name, time) in &cost.limits {
        let width = name.len().max(4);
        text += &format!(" {:>width$.0}", (100.0 * ideal / time).min(999.0));
    }
    text
}

/// What the share of the memory's speed should be at least: of products by type and columns, of attention.
fn target(name: &str) -> Option<f64> {
    let words: Vec<&str> = name.split(':').collect();
    match words[..] {
        // 2 MiB take less time than a warp waits for its first load.
        [_, "2048x2048", _] => None,
        ["Q4_0" | "Q8_0" | "Q4_K" | "F16" | "BF16", _, "1"] => Some(0.85),
        ["Q4_0" | "Q8_0" | "Q4_K" | "F16" | "BF16", _, "8"] => Some(0.80),
        ["attention", ..] => Some(0.5),
        _ => None,
    }
}

/// Instructions of a block by name, and its loads by width.
fn mix(cost: &Cost) -> String {
    let mut names: Vec<(&String, &u64)> = cost.names.iter().collect();
    names.sort_by_key(|(_, n)| std::cmp::Reverse(**n));
    let names: Vec<String> = names.iter().map(|(name, n)| format!("{name} {n}")).collect();
    let width = |((is_stream, width), n): (&(bool, u32), &u64)| {
        format!("{n} of {width} bytes a lane{}", if *is_stream { ", streamed" } else { "" })
    };
    let widths: Vec<String> = cost.widths.iter().map(width).collect();
    let w = &cost.warp;
    format!(
        "    a block: {}\n    loads: {}\n    a warp alone: {} clocks; its first streamed load at {} after {} instructions\n",
        names.join(", "),
        widths.join("; "),
        w.clocks,
        w.first_load,
        w.n_before
    )
}

/// Kernels and blocks of a card's rows in a table, in order.
#[cfg(test)]
pub fn launches_in(table: &str, card: &Chip) -> Vec<(String, u32)> {
    let lines = table.lines().skip_while(|line| !line.starts_with(&format!("{} (", card.name))).skip(1);
    let rows = lines.take_while(|line| !line.contains("bytes per clock")).filter(|line| line.contains(" | "));
    let words = rows.map(|row| row.get(24..).unwrap_or("").split_whitespace().collect::<Vec<_>>());
    words.filter_map(|words| Some((words.first()?.to_string(), words.get(1)?.parse().ok()?))).collect()
}

/// Whether the stored table is the new one.
pub fn compare(stored: &str, table: &str) -> Result<(), String> {
    let differing = |line: &&str| !stored.lines().any(|other| other == *line);
    let lines: Vec<&str> = table.lines().filter(differing).collect();
    match stored == table {
        true => Ok(()),
        false => Err(format!(
            "plugins/cuda/kernels/cost.txt is old; run `cargo ci cuda-cost`. New:\n{}",
            lines.join("\n")
        )),
    }
}
