//! The log of a server on stderr, as text or as JSON. Control characters of what clients send are escaped, so that no line can
//! be forged and no terminal controlled.

use super::args::{LogFormat, LogLevel};
use crate::output::{self, json_escaped};
use llmrt_gguf::printable;
use std::io::{self, Write};
use tracing::level_filters::LevelFilter;

/// Starts the log; notes of all parts of the program go there from now on.
pub fn start(format: LogFormat, level: Option<LogLevel>, verbose: u8) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(filter(level, verbose))
        .with_target(false)
        .with_ansi(false)
        .with_writer(move || Lines { format, out: io::stderr() });
    // A second log, as in tests, is none.
    let _ = match format {
        LogFormat::Text => tracing::subscriber::set_global_default(lines.finish()),
        LogFormat::Json => {
            let lines = lines.json().flatten_event(true).with_span_list(false);
            tracing::subscriber::set_global_default(lines.finish())
        }
    };
    output::log_to(note);
}

fn filter(level: Option<LogLevel>, verbose: u8) -> LevelFilter {
    match (level, verbose) {
        (Some(LogLevel::Off), _) => LevelFilter::OFF,
        (Some(LogLevel::Error), _) => LevelFilter::ERROR,
        (Some(LogLevel::Warn), _) | (None, 0) => LevelFilter::WARN,
        (Some(LogLevel::Info), _) | (None, 1) => LevelFilter::INFO,
        (Some(LogLevel::Debug), _) | (None, _) => LevelFilter::DEBUG,
    }
}

fn note(level: u32, text: &str) {
    let text = text.trim_end();
    let text = text.strip_prefix("warning: ").unwrap_or(text);
    match level {
        0 | 1 => tracing::error!("{text}"),
        2 => tracing::warn!("{text}"),
        3 => tracing::info!("{text}"),
        _ => tracing::debug!("{text}"),
    }
}

/// Writes whole lines.
struct Lines<W> {
    format: LogFormat,
    out: W,
}

impl<W: Write> Write for Lines<W> {
    /// Takes a line with its end. What a closed stderr does not take is dropped.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let text = text.trim_end_matches('\n');
        let text = match self.format {
            LogFormat::Text => printable(text),
            LogFormat::Json => json_escaped(text).into(),
        };
        let _ = self.out.write_all(format!("{text}\n").as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: LogFormat, line: &str) -> String {
        let mut lines = Lines { format, out: Vec::new() };
        lines.write_all(line.as_bytes()).unwrap();
        String::from_utf8(lines.out).unwrap()
    }

    #[test]
    fn a_line_stays_a_line() {
        assert_eq!(written(LogFormat::Text, "a\nWARN b\x1b[2J\u{9b}\n"), "a\\nWARN b\\u{1b}[2J\\u{9b}\n");
        let json = serde_json::json!({ "path": "/\n\u{9b}\u{202e}" });
        let line = written(LogFormat::Json, &format!("{json}\n"));
        assert_eq!(line, "{\"path\":\"/\\n\\u009b\\u202e\"}\n");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), json);
    }

    #[test]
    fn the_level_is_the_flags_or_that_of_v() {
        assert_eq!(filter(None, 0), LevelFilter::WARN);
        assert_eq!(filter(None, 1), LevelFilter::INFO);
        assert_eq!(filter(None, 3), LevelFilter::DEBUG);
        assert_eq!(filter(Some(LogLevel::Off), 2), LevelFilter::OFF);
    }
}
