//! The target of sequences that decode together.

use super::{ratios, spread, verdict};
use crate::bench::Row;
use crate::bench::engine::TARGET_SEQUENCES;

/// A line for each row that has the target's number of sequences and a peer: its ratio, and whether it reaches the one
/// aimed at, which all pairs must agree on. Nothing if there is none.
pub fn target(rows: &[Row], (aim, what): (f64, &str)) -> String {
    let mut text = String::new();
    let has_aim = |row: &&Row| row.case.sequences() == TARGET_SEQUENCES && !row.theirs.is_empty();
    for row in rows.iter().filter(has_aim) {
        let ratios = ratios(row);
        let verdict = verdict(&ratios, aim);
        text += &format!(
            "\nTarget at {TARGET_SEQUENCES} sequences, {what}: {aim:.1}×; {}, {} threads: {}, {verdict}.\n",
            row.model,
            row.n_threads,
            spread(&ratios)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases::{Case, Measure};

    fn line(n: usize, ours: &[f64], theirs: &[f64]) -> Row {
        let measures =
            |values: &[f64]| values.iter().map(|&value| Measure { value, ..Measure::default() }).collect();
        Row {
            model: "m".into(),
            case: Case::together(n),
            n_threads: 2,
            quick: false,
            ours: measures(ours),
            theirs: measures(theirs),
            floor: vec![],
        }
    }

    #[test]
    fn rows_of_16_sequences_are_compared_with_the_target() {
        let text = |rows: &[Row], aim| target(rows, (aim, "with VNNI"));
        let rows = [line(8, &[9.0], &[1.0]), line(16, &[50.0, 60.0, 90.0], &[20.0, 20.0, 20.0])];
        let expected =
            "\nTarget at 16 sequences, with VNNI: 2.0×; m, 2 threads: 3.00× (2.50 to 4.50), reached.\n";
        assert_eq!(text(&rows, 2.0), expected);
        assert!(text(&rows, 2.6).ends_with("(2.50 to 4.50), undecided.\n"));
        assert!(text(&rows, 5.0).ends_with("missed.\n"));
        assert_eq!(text(&[line(16, &[50.0], &[])], 2.0), "");
    }
}
