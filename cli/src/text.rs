//! Text from files and stdin.

use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::output::note;
use std::io::{IsTerminal, Read};
use std::path::Path;

/// The most that is read as text; a context holds far less.
const MAX_BYTES: u64 = 64 << 20;

/// A text file, as it is; `-` is stdin.
pub fn of_file(path: &Path) -> Result<String> {
    if path == Path::new("-") {
        return of_stdin();
    }
    let file = std::fs::File::open(path)
        .map_err(|e| Error::file(path, format!("cannot open: {e}; check the path")))?;
    if file.metadata().is_ok_and(|found| found.is_dir()) {
        return Err(Error::file(path, "is a directory: give the name of a text file"));
    }
    read(file, &path.display().to_string())
}

/// All of stdin, as it is.
pub fn of_stdin() -> Result<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        note("reading the prompt from the terminal; end with Ctrl-D");
    }
    interrupt::ending_at_once(|| read(stdin.lock(), "stdin"))
}

/// Without the line end that editors and shells put at the end of a text.
pub fn without_last_line_end(mut text: String) -> String {
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    text
}

fn read(from: impl Read, name: &str) -> Result<String> {
    let failed = |problem: String| Error::new(Exit::File, format!("{name}: {problem}"));
    let mut bytes = Vec::new();
    from.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|e| failed(format!("cannot read: {e}")))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(failed(format!("has more than {MAX_BYTES} bytes: give a shorter text")));
    }
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        failed(format!("is no UTF-8 text (byte {at}): convert it to UTF-8"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_end_is_taken_off() {
        for (text, expected) in
            [("a", "a"), ("a\n", "a"), ("a\n\n", "a\n"), ("a\r\n", "a"), ("\n", ""), ("", "")]
        {
            assert_eq!(without_last_line_end(text.into()), expected);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_reported_with_their_place() {
        let error = read(&b"ab\xff"[..], "stdin").unwrap_err();
        assert_eq!(error.message, "stdin: is no UTF-8 text (byte 2): convert it to UTF-8");
        assert_eq!(error.exit, Exit::File);
    }
}
