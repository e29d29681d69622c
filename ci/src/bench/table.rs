//! The table: medians, ratios pair by pair, shares of the ceilings.

mod floor;
mod scaling;
mod target;

pub use floor::floor;
pub use scaling::scaling;
pub use target::target;

use super::Row;
use super::cases::{Measure, Rate};
use super::program::Ceilings;
use serde_json::{Value, json};

/// The titles of a table's columns.
pub const TITLES: &str = "\
A ratio above 1 is in favour of llmrt.

| file | threads | case | llmrt | peer | ratio (least to most) | of the ceiling |
|---|--:|---|--:|--:|--:|--:|";

/// What stands above a table: command, machine, ceilings.
pub fn head(words: &[&str], ceilings: &[(usize, Ceilings)]) -> String {
    let mut text = format!("`cargo ci bench {}` on {}.\n\n", words.join(" "), machine());
    for (n, c) in ceilings {
        if c.f32 == 0.0 {
            text += &format!("Ceiling: {:.0} GB/s read and written by a copy on the card.\n", c.read);
            continue;
        }
        text += &format!(
            "Ceilings with {n} thread{}: {:.1} GB/s read from memory, {:.0} GFLOP/s in F32, {:.0} Gop/s in int8.\n",
            if *n == 1 { "" } else { "s" },
            c.read,
            c.f32,
            c.int8
        );
    }
    text
}

/// `2 cores of NAME`.
pub fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {}", name.map_or("an unknown processor", |(_, name)| name.trim()))
}

/// One line.
pub fn row(row: &Row, ceilings: &Ceilings) -> String {
    let ratios = ratios(row);
    let cell = |values: &[f64]| match values {
        [] => "–".to_string(),
        values => shown(median(values)),
    };
    let ratio = match ratios.as_slice() {
        [] => "–".to_string(),
        ratios => spread(ratios),
    };
    format!(
        "| {} | {} | {} | {} | {} | {ratio} | {} |",
        row.model,
        row.n_threads,
        row.case.title(row.quick),
        cell(&ours(row)),
        cell(&theirs(row)),
        share(row, ceilings)
    )
}

/// The share of the roofline that llmrt's runs reach, the median of them; of reads, of what memory gave around
/// each, where that is known.
fn share(row: &Row, ceilings: &Ceilings) -> String {
    let share = |run: &Measure| {
        let (rate, ceiling, name) = match row.case.rate(run.value, &run.work, row.quick)? {
            Rate::Read(gb) => (gb, run.reads.unwrap_or(ceilings.read), "reads"),
            Rate::MulAdd(g) if run.work.is_quantised => (g, ceilings.int8, "int8"),
            Rate::MulAdd(g) => (g, ceilings.f32, "F32"),
        };
        (ceiling > 0.0).then_some((rate / ceiling, name))
    };
    let (shares, names): (Vec<f64>, Vec<&str>) = row.ours.iter().filter_map(share).unzip();
    match names.first() {
        Some(name) => format!("{:.0} % of {name}", 100.0 * median(&shares)),
        None => "–".into(),
    }
}

/// All numbers of a line.
pub fn json(row: &Row) -> Value {
    json!({
        "file": row.model, "threads": row.n_threads, "case": row.case.name(), "what": row.case.title(row.quick),
        "llmrt": ours(row), "peer": theirs(row), "ratios": ratios(row), "floor": values(&row.floor),
        "reads": row.ours.iter().map(|m| m.reads).collect::<Vec<_>>(),
    })
}

fn ours(row: &Row) -> Vec<f64> {
    values(&row.ours)
}

fn theirs(row: &Row) -> Vec<f64> {
    values(&row.theirs)
}

fn values(measures: &[Measure]) -> Vec<f64> {
    measures.iter().map(|m| m.value).collect()
}

/// Whether ratios reach the one aimed at, which all pairs must agree on.
pub fn verdict(ratios: &[f64], aim: f64) -> &'static str {
    match (least(ratios) >= aim, most(ratios) >= aim) {
        (true, _) => "reached",
        (_, false) => "missed",
        _ => "undecided",
    }
}

/// Median, least and most ratio.
pub fn spread(ratios: &[f64]) -> String {
    format!("{:.2}× ({:.2} to {:.2})", median(ratios), least(ratios), most(ratios))
}

/// How many times better llmrt is, pair by pair.
pub fn ratios(row: &Row) -> Vec<f64> {
    let better = |(a, b): (f64, f64)| if row.case.is_cost() { b / a } else { a / b };
    ours(row).into_iter().zip(theirs(row)).map(better).collect()
}

/// The middle value, or the mean of the two in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (n, mid) if n % 2 == 0 => (sorted[mid - 1] + sorted[mid]) / 2.0,
        (_, mid) => sorted[mid],
    }
}

pub fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

pub fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// Three digits at least.
fn shown(x: f64) -> String {
    match x {
        x if x >= 100.0 => format!("{x:.0}"),
        x if x >= 10.0 => format!("{x:.1}"),
        x => format!("{x:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{Case, Work};
    use super::*;

    fn check(case: Case, reads: Option<f64>, ours: &[f64], theirs: &[f64], expected: &str) {
        let work = Work { read_bytes: 1e9, mul_adds: 1e9, kv_bytes: 0.0, is_quantised: true };
        let measures = |values: &[f64]| values.iter().map(|&value| Measure { value, work, reads }).collect();
        let (ours, theirs) = (measures(ours), measures(theirs));
        let line = Row { model: "m".into(), case, n_threads: 2, quick: false, ours, theirs, floor: vec![] };
        assert_eq!(row(&line, &Ceilings { read: 20.0, f32: 100.0, int8: 400.0 }), expected);
    }

    #[test]
    fn a_line_has_medians_ratios_and_the_share_of_the_ceiling() {
        check(
            Case::Prompt,
            None,
            &[100.0, 120.0, 80.0],
            &[50.0, 100.0, 100.0],
            "| m | 2 | prompt 512, tok/s | 100 | 100 | 1.20× (0.80 to 2.00) | 50 % of int8 |",
        );
        check(
            Case::Decode,
            None,
            &[10.0],
            &[],
            "| m | 2 | decode 128, tok/s | 10.0 | – | – | 50 % of reads |",
        );
        check(
            Case::Decode,
            Some(12.5),
            &[10.0],
            &[],
            "| m | 2 | decode 128, tok/s | 10.0 | – | – | 80 % of reads |",
        );
    }

    #[test]
    fn where_less_is_better_the_ratio_is_turned_round() {
        check(
            Case::Memory,
            None,
            &[500.0],
            &[1000.0],
            "| m | 2 | peak memory, MB | 500 | 1000 | 2.00× (2.00 to 2.00) | – |",
        );
    }
}
