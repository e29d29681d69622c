//! Escapes text that comes from files, plugins or templates, so that it cannot control the terminal that shows it.

use std::borrow::Cow;
use std::path::Path;

/// Whether a terminal would act on `c` instead of showing it: control characters (C0, DEL, C1) and the marks that
/// change the direction of text.
pub fn is_terminal_control(c: char) -> bool {
    let is_bidi =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_bidi
}

/// `text` with every control character escaped, line ends and tabs included: for names and keys on one line.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, is_terminal_control)
}

/// `text` with every control character but `\n` and `\t` escaped: for whole messages.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_terminal_control(c) && !matches!(c, '\n' | '\t'))
}

/// A path on one line of a message, with every control character escaped.
pub fn printable_path(path: &Path) -> String {
    printable(&path.to_string_lossy()).into_owned()
}

/// [`printable`], with the end of a long text cut off.
pub fn printable_name(name: &str) -> Cow<'_, str> {
    const MAX_CHARS: usize = 120;
    match name.char_indices().nth(MAX_CHARS) {
        None => printable(name),
        Some((end, _)) => Cow::Owned(printable(&name[..end]).into_owned() + "…"),
    }
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_direction_marks_are_escaped() {
        let check = |text: &str, expected: &str| assert_eq!(printable(text), expected);
        check("llama.größe", "llama.größe");
        check("\x1b[2J\n\t", "\\u{1b}[2J\\n\\t");
        check("\u{7f}\u{9b}31m", "\\u{7f}\\u{9b}31m");
        check("a\u{202e}b\u{2066}\u{200f}\u{61c}", "a\\u{202e}b\\u{2066}\\u{200f}\\u{61c}");
    }

    #[test]
    fn messages_keep_their_lines() {
        assert_eq!(printable_lines("a\n\tb\r\x1b"), "a\n\tb\\r\\u{1b}");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(printable_name(&"k".repeat(1 << 20)), "k".repeat(120) + "…");
        assert_eq!(printable_name(&"k".repeat(120)), "k".repeat(120));
    }

    #[test]
    fn what_is_printable_is_borrowed() {
        assert!(matches!(printable("blk.0.attn_q.weight"), Cow::Borrowed(_)));
    }
}
