//! What comes of a case.

/// What came of a case.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// It ran and was right. Measurements are given as text.
    Passed(String),
    /// It ran and was wrong, or ended its process.
    Failed(String),
    /// The device cannot do this, and refuses it.
    Skipped(String),
}

/// Why a case does not pass.
#[derive(Clone, PartialEq, Debug)]
pub enum Trouble {
    /// Something is wrong.
    Wrong(String),
    /// The device cannot do this, and refuses it.
    Lacking(String),
}

/// Result of a case, or of a step of it.
pub type Verdict<T = ()> = Result<T, Trouble>;

/// A failure.
pub fn wrong<T>(why: impl Into<String>) -> Verdict<T> {
    Err(Trouble::Wrong(why.into()))
}

/// A reason to skip.
pub fn lacking<T>(why: impl Into<String>) -> Verdict<T> {
    Err(Trouble::Lacking(why.into()))
}

/// Fails unless `holds`.
pub fn insist(holds: bool, why: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { wrong(why()) }
}

impl Trouble {
    /// The same, after what was being done.
    pub fn during(self, what: &str) -> Trouble {
        match self {
            Trouble::Wrong(why) => Trouble::Wrong(format!("{what}: {why}")),
            Trouble::Lacking(why) => Trouble::Lacking(why),
        }
    }
}

impl From<llmrt_host::Error> for Trouble {
    fn from(e: llmrt_host::Error) -> Trouble {
        Trouble::Wrong(e.to_string())
    }
}

impl From<llmrt_graph::Error> for Trouble {
    fn from(e: llmrt_graph::Error) -> Trouble {
        Trouble::Wrong(format!("the case itself is broken: {e}"))
    }
}

impl From<Verdict> for Outcome {
    fn from(verdict: Verdict) -> Outcome {
        match verdict {
            Ok(()) => Outcome::Passed(String::new()),
            Err(Trouble::Wrong(why)) => Outcome::Failed(why),
            Err(Trouble::Lacking(why)) => Outcome::Skipped(why),
        }
    }
}
