//! `--cases families`: one model of each family that people run, at prompts and decodes, beside the speeds aimed at.

use super::Row;
use super::cases::Case;
use super::table::{median, ratios, verdict};

/// Its name on the command line.
pub const NAME: &str = "families";

/// Types and threads by default: each family has a type of its own.
pub const DEFAULTS: (&str, &str) = ("", "2");

/// A model: its shape, the type of its matrices, and how many of its layers are made, where all would not fit.
pub struct Family {
    /// As `llmrt synth --like`.
    pub like: &'static str,
    /// As `llmrt synth --type`.
    pub mix: &'static str,
    /// `None`: all. llama.cpp recognises DeepSeek V2 Lite by its number of layers.
    pub layers: Option<u32>,
}

/// THE table.
const FAMILIES: &[Family] = &[
    Family { like: "qwen3-30b-a3b", mix: "q4_0", layers: Some(6) },
    Family { like: "gemma-3-4b", mix: "q4_0", layers: None },
    Family { like: "gpt-oss-20b", mix: "mxfp4", layers: Some(4) },
    Family { like: "mamba2-1.3b", mix: "q4_0", layers: None },
    Family { like: "rwkv7-1.5b", mix: "q4_0", layers: None },
    Family { like: "deepseek-v2-lite", mix: "q4_0", layers: None },
    Family { like: "lfm2-1.2b", mix: "q4_0", layers: None },
];

/// All of them, or the one that is named as `llmrt synth --like` names it.
pub fn like(name: Option<&str>) -> Result<impl Iterator<Item = &'static Family>, String> {
    let is_meant = move |family: &&Family| name.is_none_or(|name| family.like == name);
    if FAMILIES.iter().any(|family| is_meant(&family)) {
        return Ok(FAMILIES.iter().filter(is_meant));
    }
    let names: Vec<_> = FAMILIES.iter().map(|family| family.like).collect();
    Err(format!("--like {}: expected one of {}", name.unwrap_or_default(), names.join(", ")))
}

/// What is measured of each.
pub fn cases() -> Vec<Case> {
    vec![Case::Prompt, Case::Decode]
}

/// A line for each row: bytes of weights that a decoded token reads, and whether the ratio reaches the one aimed at, which
/// all pairs must agree on.
pub fn summary(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n| file | case | weights read per token, MB | aim | ratio | |\n|---|---|--:|--:|--:|---|\n",
    );
    for row in rows {
        let (aim, bytes) = match row.case {
            Case::Prompt => (1.3, "–".into()),
            _ => (1.2, row.ours.first().map_or("–".into(), |m| format!("{:.0}", m.work.read_bytes / 1e6))),
        };
        let ratios = ratios(row);
        let verdict = if ratios.is_empty() { "no peer" } else { verdict(&ratios, aim) };
        let (title, ratio) = (row.case.title(row.quick), median(&ratios));
        text += &format!("| {} | {title} | {bytes} | {aim:.1}× | {ratio:.2}× | {verdict} |\n", row.model);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases::{Measure, Work};

    #[test]
    fn one_family_is_chosen_by_its_shape() {
        let names = |like| super::like(like).map(|found| found.map(|family| family.like).collect::<Vec<_>>());
        assert_eq!(names(None).unwrap().len(), FAMILIES.len());
        assert_eq!(names(Some("lfm2-1.2b")).unwrap(), ["lfm2-1.2b"]);
        let problem = names(Some("lfm2")).unwrap_err();
        assert!(problem.starts_with("--like lfm2: expected one of qwen3-30b-a3b, "), "{problem}");
    }

    #[test]
    fn each_ratio_is_compared_with_its_aim_and_decodes_show_what_they_read() {
        let line = |case, ours: &[f64], theirs: &[f64]| {
            let work = Work { read_bytes: 453e6, ..Work::default() };
            let measures = |values: &[f64]| {
                values.iter().map(|&value| Measure { value, work, ..Measure::default() }).collect()
            };
            let (ours, theirs) = (measures(ours), measures(theirs));
            Row { model: "m".into(), case, n_threads: 2, quick: false, ours, theirs, floor: vec![] }
        };
        let rows = [
            line(Case::Prompt, &[200.0, 300.0], &[100.0, 100.0]),
            line(Case::Decode, &[119.0, 121.0], &[100.0, 100.0]),
            line(Case::Decode, &[20.0], &[]),
        ];
        let text = summary(&rows);
        let lines: Vec<&str> = text.lines().skip(3).collect();
        assert_eq!(lines[0], "| m | prompt 512, tok/s | – | 1.3× | 2.50× | reached |");
        assert_eq!(lines[1], "| m | decode 128, tok/s | 453 | 1.2× | 1.20× | undecided |");
        assert_eq!(lines[2], "| m | decode 128, tok/s | 453 | 1.2× | 0.00× | no peer |");
    }
}
