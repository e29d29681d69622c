//! The way to the terminal: notes on stderr, text, tables and JSON on stdout. Control characters of names and of
//! generated text end here, so that no file can move the cursor, set a title or reach the clipboard.

pub use llmrt_engine::memory::in_units as bytes;
use llmrt_gguf::{is_terminal_control, printable, printable_lines};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

/// Takes notes: 1 is an error, 2 a warning, 3 information, above that details.
pub type Log = fn(level: u32, text: &str);

/// Takes what would be on stderr, once a command has a log.
static LOG: OnceLock<Log> = OnceLock::new();

/// Sends all later notes to a log. The first one stays.
pub fn log_to(log: Log) {
    let _ = LOG.set(log);
}

/// Writes a line to stderr, or a warning to the command's log.
pub fn note(message: impl Display) {
    note_at(2, message);
}

/// The same, with how important it is to a log.
pub fn note_at(level: u32, message: impl Display) {
    match LOG.get() {
        Some(log) => log(level, &message.to_string()),
        None => error(message),
    }
}

/// Writes a line to stderr, with control characters escaped. If stderr is closed the line is dropped.
pub fn error(message: impl Display) {
    let _ = writeln!(io::stderr(), "{}", printable_lines(&message.to_string()));
}

/// Writes text that llmrt composed to stdout, with control characters of the names in it escaped.
pub fn print(text: impl Display) -> io::Result<()> {
    write(&printable_lines(&text.to_string()))
}

/// Writes text of a model to stdout: byte for byte, but to a terminal without control characters.
pub fn model_text(text: &str) -> io::Result<()> {
    match io::stdout().is_terminal() {
        true => write(&for_terminal(text)),
        false => write(text),
    }
}

/// Without control characters other than `\n` and `\t`. Without its ESC an escape sequence is plain text, so one that is
/// split over several tokens has no effect either.
fn for_terminal(text: &str) -> String {
    text.chars().filter(|&c| matches!(c, '\n' | '\t') || !is_terminal_control(c)).collect()
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a JSON value and a line end to stdout.
pub fn json(value: &serde_json::Value) -> io::Result<()> {
    write(&format!("{}\n", json_escaped(&format!("{value:#}"))))
}

/// Writes a JSON value on one line of stdout.
pub fn json_line(value: &serde_json::Value) -> io::Result<()> {
    write(&format!("{}\n", json_escaped(&value.to_string())))
}

/// JSON whose strings have control characters beyond JSON's own (DEL, C1, direction marks) as `\uXXXX` too.
pub fn json_escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => escaped.push(c), // between values; in strings it is escaped already
            c if is_terminal_control(c) => escaped += &format!("\\u{:04x}", c as u32),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Writes rows in columns two spaces apart, with titles. Columns whose title begins with `>` are flush right. Control
/// characters in cells are escaped.
pub fn table(titles: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let printable_row = |row: &Vec<String>| row.iter().map(|cell| printable(cell).into_owned()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(printable_row).collect();
    write(&aligned(titles, &rows))
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
    fn an_escape_sequence_has_no_effect_on_a_terminal_whole_or_split_over_tokens() {
        assert_eq!(for_terminal("a\x1b]52;c;eA==\x07b\n\tc\r"), "a]52;c;eA==b\n\tc");
        let tokens = ["\x1b", "[2", "J", "\u{9b}", "31m\u{202e}", "é"];
        assert_eq!(tokens.map(for_terminal).concat(), "[2J31mé");
    }

    #[test]
    fn json_strings_hold_no_control_characters_and_mean_the_same() {
        let value = serde_json::json!({ "a\u{9b}": "\x1b\u{7f}\u{202e}\n", "b": [1] });
        for text in [format!("{value:#}"), value.to_string()] {
            let escaped = json_escaped(&text);
            assert!(escaped.chars().all(|c| c == '\n' || !is_terminal_control(c)), "{escaped}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
        }
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
