//! What was found: lines with a level, as text or JSON.

use crate::error::{Error, Exit, Result};
use crate::new_file::NewFile;
use crate::output::{self, n_things};
use serde_json::json;
use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// All lines, in the order of the look. Clones are the same report, for threads of plugins.
#[derive(Clone, Default)]
pub struct Report {
    lines: Arc<Mutex<Vec<Line>>>,
    /// Written whole at each line, so that a crash leaves what was found; a pipe at the end only.
    file: Option<PathBuf>,
    is_pipe: bool,
}

impl Report {
    /// A report that is also written to a file; an error if that cannot be.
    pub fn to_file(file: Option<&Path>) -> Result<Report> {
        let is_pipe = file.and_then(|file| file.metadata().ok()).is_some_and(|found| !found.is_file());
        let report = Report { file: file.map(Path::to_path_buf), is_pipe, ..Report::default() };
        if !is_pipe {
            report.write()?;
        }
        Ok(report)
    }

    /// Adds a line.
    pub fn add(&self, level: Level, part: &'static str, text: impl Display) {
        let mut lines = self.lines();
        lines.push(Line { part, level, text: text.to_string() });
        drop(lines);
        // What cannot be written is an error of the last attempt, when the report is complete.
        let _ = if self.is_pipe { Ok(()) } else { self.write() };
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what is as it should be.
    pub fn ok(&self, part: &'static str, text: impl Display) {
        self.add(Level::Ok, part, text);
    }

    /// Adds what llmrt works with, but not as it could.
    pub fn warning(&self, part: &'static str, text: impl Display) {
        self.add(Level::Warning, part, text);
    }

    /// Adds what does not work.
    pub fn problem(&self, part: &'static str, text: impl Display) {
        self.add(Level::Problem, part, text);
    }

    fn n(&self, level: Level) -> usize {
        self.lines().iter().filter(|line| line.level == level).count()
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

    /// Writes the lines to the file as JSON, if there is one.
    pub fn write(&self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut new = NewFile::create(file)?;
        writeln!(new.out(), "{:#}", self.json()).map_err(|e| Error::unwritable(file, &e))?;
        new.finish()
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |line: &Line| vec![line.level.name().to_string(), line.part.to_string(), line.text.clone()];
        self.lines().iter().map(row).collect()
    }

    fn json(&self) -> serde_json::Value {
        let line = |line: &Line| json!({ "part": line.part, "level": line.level.name(), "text": line.text });
        json!({
            "n_problems": self.n(Level::Problem), "n_warnings": self.n(Level::Warning),
            "lines": self.lines().iter().map(line).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_counted_and_a_warning_is_none() {
        let report = Report::default();
        report.ok("a", "good");
        report.warning("b", "slow");
        assert_eq!((report.n(Level::Problem), report.json()["n_warnings"].as_u64()), (0, Some(1)));
        report.problem("c", "broken; replace it");
        assert_eq!(report.n(Level::Problem), 1);
        assert_eq!(report.rows()[2], ["problem", "c", "broken; replace it"]);
    }

    #[test]
    fn a_report_in_a_file_is_the_json_after_each_line() {
        let file = std::env::temp_dir().join(format!("llmrt-report-{}.json", std::process::id()));
        let report = Report::to_file(Some(&file)).unwrap();
        for text in ["differs", "differs, too"] {
            report.clone().warning("probe", text);
            let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
            assert_eq!(read, report.json());
        }
        assert_eq!(report.json()["n_warnings"].as_u64(), Some(2));
        std::fs::remove_file(&file).unwrap();
        assert!(Report::to_file(Some(Path::new("/no/such/folder/report.json"))).is_err());
    }
}
