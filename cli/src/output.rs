//! What goes to the terminal: notes on stderr, columns and units for people.

use std::fmt::Display;
use std::io::{self, Write};

/// Says something on stderr. If stderr is gone nobody wants to know.
pub fn note(message: impl Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// Writes a JSON value and a line end to stdout.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// Writes rows in columns two spaces apart, with titles. Columns whose title begins with `>` are flush right.
pub fn table(titles: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(aligned(titles, rows).as_bytes())?;
    out.flush()
}

fn aligned(titles: &[&str], rows: &[Vec<String>]) -> String {
    let head = titles.iter().map(|t| t.trim_start_matches('>').to_string()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width =
        |i: usize| lines.iter().filter_map(|l| l.get(i)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();

    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for ((cell, title), width) in line.iter().zip(titles).zip(&widths) {
            let gap = " ".repeat(width - cell.chars().count().min(*width));
            let (left, right) = if title.starts_with('>') { (gap.as_str(), "") } else { ("", gap.as_str()) };
            row += &format!("{left}{cell}{right}  ");
        }
        text += row.trim_end();
        text.push('\n');
    }
    text
}

/// `1536` bytes as `1.5 KiB`.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = (n.max(1).ilog2() / 10).min(5);
    match power {
        0 => format!("{n} B"),
        _ => format!("{:.1} {}", n as f64 / (1u64 << (10 * power)) as f64, UNITS[power as usize]),
    }
}

/// `1 file`, `2 files`.
pub fn n_things(n: usize, thing: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { "s" })
}

/// `1234567` as `1.23 M`.
pub fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.2} K", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} M", n as f64 / 1e6),
        _ => format!("{:.2} B", n as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a", "1"], ["long", "100"]].map(|row| row.map(String::from).to_vec());
        assert_eq!(aligned(&["name", ">n"], &rows), "name    n\na       1\nlong  100\n");
    }

    #[test]
    fn bytes_have_the_unit_that_keeps_them_short() {
        assert_eq!([0, 1023, 1536, 3 << 30].map(bytes), ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!(bytes(u64::MAX), "16384.0 PiB");
    }

    #[test]
    fn counts_have_three_digits_and_a_unit() {
        assert_eq!([7, 1500, 12_300_000, 2_000_000_000].map(count), ["7", "1.50 K", "12.30 M", "2.00 B"]);
    }
}
