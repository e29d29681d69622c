//! The worker process: reads questions, runs the cases in this process, answers.

use crate::catalogue::{self, Entry, Selection};
use crate::outcome::Outcome;
use crate::protocol;
use crate::session::{Options, Session};
use std::collections::HashMap;
use std::io::{BufRead, Write};

/// Serves until stdin ends.
pub fn serve(options: Options) -> std::io::Result<()> {
    let mut session = Session::new(options);
    let mut entries: Option<HashMap<String, Entry>> = None;
    let mut line = String::new();
    loop {
        line.clear();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(());
        }
        let Some((number, case)) = protocol::parse_question(&line) else { continue };
        let entries = entries.get_or_insert_with(|| {
            let all = catalogue::all(&Selection::default(), session.recorded_names());
            all.into_iter().map(|entry| (entry.id(), entry)).collect()
        });
        let outcome = match (case.as_str(), entries.get(&case)) {
            (DESCRIBE, _) => describe(&mut session),
            (_, Some(entry)) => entry.work.run(&mut session),
            (_, None) => Outcome::Failed("this case is unknown to the worker".into()),
        };
        let mut out = std::io::stdout().lock();
        out.write_all(protocol::answer(number, &outcome).as_bytes())?;
        out.flush()?;
    }
}

/// The question that is answered with what is being tested, as JSON.
pub const DESCRIBE: &str = "describe";

fn describe(session: &mut Session) -> Outcome {
    match session.describe() {
        Ok(text) => Outcome::Passed(text),
        Err(trouble) => Err(trouble).into(),
    }
}
