//! What more threads give.

use super::{median, ours, theirs};
use crate::bench::Row;

/// What more threads give of each case that was measured with one and with more; nothing if there is none.
pub fn scaling(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| row.n_threads > 1 && !row.case.is_cost()) {
        let is_twin = |one: &&Row| one.n_threads == 1 && one.model == row.model && one.case == row.case;
        let Some(one) = rows.iter().find(is_twin) else { continue };
        let gain = |of: fn(&Row) -> Vec<f64>| match (median(&of(row)), median(&of(one))) {
            (_, 0.0) => "–".into(),
            (many, one) => format!("{:.2}×", many / one),
        };
        let title = row.case.title(row.quick);
        text +=
            &format!("| {} | {title} | {} | {} | {} |\n", row.model, row.n_threads, gain(ours), gain(theirs));
    }
    match text.is_empty() {
        true => text,
        false => {
            format!("\n| file | case | threads | llmrt over 1 thread | peer |\n|---|---|--:|--:|--:|\n{text}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases::{Case, Measure};

    #[test]
    fn what_a_second_thread_gives_is_shown_where_both_were_measured() {
        let line = |n_threads, case, speed| Row {
            model: "m".into(),
            case,
            n_threads,
            quick: false,
            ours: vec![Measure { value: speed, ..Measure::default() }],
            theirs: vec![],
            floor: vec![],
        };
        let rows = [line(2, Case::Prompt, 190.0), line(1, Case::Prompt, 100.0), line(2, Case::Decode, 9.0)];
        let text = scaling(&rows);
        assert!(text.ends_with("| m | prompt 512, tok/s | 2 | 1.90× | – |\n"), "{text}");
        assert_eq!(text.lines().count(), 4, "{text}");
        assert_eq!(scaling(&rows[..1]), "");
    }
}
