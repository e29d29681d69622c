//! How much faster than the floor.

use super::{median, ours, shown, spread, values};
use crate::bench::Row;

/// How many times faster than the floor each file was, whose shape the floor ran: in F32 round by round, in other types
/// by medians. Nothing if the floor did not run.
pub fn floor(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let is_twin = |other: &&Row| {
            !other.floor.is_empty()
                && (shape(other), other.n_threads, other.case) == (shape(row), row.n_threads, row.case)
        };
        let Some(twin) = rows.iter().find(is_twin) else { continue };
        let floor = values(&twin.floor);
        let ratio = match row.floor.is_empty() {
            true => format!("{:.1}×", median(&ours(row)) / median(&floor)),
            false => spread(&ours(row).iter().zip(&floor).map(|(a, b)| a / b).collect::<Vec<_>>()),
        };
        let (title, speed) = (row.case.title(row.quick), shown(median(&floor)));
        text += &format!("| {} | {} | {title} | {speed} | {ratio} |\n", row.model, row.n_threads);
    }
    match text.is_empty() {
        true => text,
        false => format!("{FLOOR_TITLES}\n{text}"),
    }
}

const FLOOR_TITLES: &str = "
The floor: a plain F32 forward pass of the same shape, one token at a time, in the manner of llama2.c.

| file | threads | case | floor | llmrt over the floor (least to most) |
|---|--:|---|--:|--:|";

/// A file's name without its type, which follows the last `-`.
fn shape(row: &Row) -> &str {
    row.model.rsplit_once('-').map_or(&row.model, |(shape, _)| shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases::{Case, Measure};

    #[test]
    fn the_floor_is_shown_for_all_files_of_the_shape_that_it_ran() {
        let line = |model: &str, ours: &[f64], floor: &[f64]| {
            let measures = |values: &[f64]| {
                values.iter().map(|&value| Measure { value, ..Measure::default() }).collect()
            };
            let (ours, floor) = (measures(ours), measures(floor));
            Row {
                model: model.into(),
                case: Case::Decode,
                n_threads: 2,
                quick: false,
                ours,
                theirs: vec![],
                floor,
            }
        };
        let rows = [
            line("a-0.5b-f32", &[20.0, 30.0], &[10.0, 10.0]),
            line("a-0.5b-q4_0", &[80.0], &[]),
            line("b-1b-q4_0", &[80.0], &[]),
        ];
        let text = floor(&rows);
        let lines: Vec<&str> = text.lines().skip(5).collect();
        let f32 = "| a-0.5b-f32 | 2 | decode 128, tok/s | 10.0 | 2.50× (2.00 to 3.00) |";
        assert_eq!(lines, [f32, "| a-0.5b-q4_0 | 2 | decode 128, tok/s | 10.0 | 8.0× |"], "{text}");
        assert_eq!(floor(&rows[1..]), "");
    }
}
