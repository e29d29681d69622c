//! What was found: lines with a level, as text or JSON.

use crate::error::{Error, Exit, Result};
use crate::new_file::NewFile;
use crate::output::{self, n_things};
use serde_json::json;
use std::fmt::Display;
use std::io::Write;
use std::path::Path;

/// How bad something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// As it should be.
    Ok,
    /// llmrt works, but not as it could.
    Warning,
    /// Something does not work.
    Problem,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
struct Line {
    part: &'static str,
    level: Level,
    /// What was found, and what to do.
    text: String,
}

/// All lines, in the order of the look.
#[derive(Default)]
pub struct Report {
    lines: Vec<Line>,
}

impl Report {
    /// Adds a line.
    pub fn add(&mut self, level: Level, part: &'static str, text: impl Display) {
        self.lines.push(Line { part, level, text: text.to_string() });
    }

    /// Adds what is as it should be.
    pub fn ok(&mut self, part: &'static str, text: impl Display) {
        self.add(Level::Ok, part, text);
    }

    /// Adds what llmrt works with, but not as it could.
    pub fn warning(&mut self, part: &'static str, text: impl Display) {
        self.add(Level::Warning, part, text);
    }

    /// Adds what does not work.
    pub fn problem(&mut self, part: &'static str, text: impl Display) {
        self.add(Level::Problem, part, text);
    }

    fn n(&self, level: Level) -> usize {
        self.lines.iter().filter(|line| line.level == level).count()
    }

    /// Writes the lines; an error if one is a problem.
    pub fn print(&self, as_json: bool) -> Result<()> {
        match as_json {
            true => output::json(&self.json())?,
            false => output::table(&["level", "part", "found"], &self.rows())?,
        }
        match self.n(Level::Problem) {
            0 => Ok(()),
            n => Err(Error::new(Exit::Failure, format!("{} found", n_things(n, "problem")))),
        }
    }

    /// Writes the lines to a file as JSON.
    pub fn write(&self, file: &Path) -> Result<()> {
        let mut new = NewFile::create(file)?;
        writeln!(new.out(), "{:#}", self.json()).map_err(|e| Error::unwritable(file, &e))?;
        new.finish()
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |line: &Line| vec![line.level.name().to_string(), line.part.to_string(), line.text.clone()];
        self.lines.iter().map(row).collect()
    }

    fn json(&self) -> serde_json::Value {
        let line = |line: &Line| json!({ "part": line.part, "level": line.level.name(), "text": line.text });
        json!({
            "n_problems": self.n(Level::Problem), "n_warnings": self.n(Level::Warning),
            "lines": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_counted_and_a_warning_is_none() {
        let mut report = Report::default();
        report.ok("a", "good");
        report.warning("b", "slow");
        assert_eq!((report.n(Level::Problem), report.json()["n_warnings"].as_u64()), (0, Some(1)));
        report.problem("c", "broken; replace it");
        assert_eq!(report.n(Level::Problem), 1);
        assert_eq!(report.rows()[2], ["problem", "c", "broken; replace it"]);
    }

    #[test]
    fn a_report_in_a_file_is_the_json() {
        let file = std::env::temp_dir().join(format!("llmrt-report-{}.json", std::process::id()));
        let mut report = Report::default();
        report.warning("probe", "differs");
        report.write(&file).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(read, report.json());
        std::fs::remove_file(&file).unwrap();
        assert!(report.write(Path::new("/no/such/folder/report.json")).is_err());
    }
}
