//! Lines typed at a terminal, with editing and history.

use super::history::History;
use super::input::{Input, Reading};
use crate::cmd::run::ChatArgs;
use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::output::note;
use rustyline::error::ReadlineError;
use rustyline::{
    Cmd, ConditionalEventHandler, DefaultEditor, Event, EventContext, EventHandler, KeyEvent, RepeatCount,
};
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a line ends with.
enum Line {
    Entered(String),
    /// Ctrl-C.
    Discarded,
    /// It had a byte that is not UTF-8.
    NotUtf8,
    /// Ctrl-D.
    End,
}

/// Reads inputs of a chat.
pub struct Lines {
    editor: DefaultEditor,
    history: History,
    is_discarded: Arc<AtomicBool>,
    /// When the last line was refused.
    refused: Option<Instant>,
}

impl Lines {
    /// Lines of the terminal at stdin, with the history that `args` request.
    pub fn open(args: &ChatArgs) -> Result<Lines> {
        interrupt::keep_terminal_mode();
        let mut editor = DefaultEditor::new().map_err(failed)?;
        let history = History::new(!args.no_history);
        history.load(&mut editor);
        let is_discarded = Arc::new(AtomicBool::new(false));
        let handler = EventHandler::Conditional(Box::new(Discard(is_discarded.clone())));
        editor.bind_sequence(KeyEvent::ctrl('C'), handler);
        Ok(Lines { editor, history, is_discarded, refused: None })
    }

    /// The next message or command; `None` after Ctrl-D.
    pub fn next_input(&mut self) -> Result<Option<Input>> {
        let mut reading = Reading::default();
        loop {
            let prompt = if reading.is_open() { "... " } else { ">>> " };
            match self.read(prompt)? {
                Line::Entered(line) => {
                    if let Some(input) = reading.push(&line) {
                        let _ = self.editor.add_history_entry(reading.text());
                        self.history.save(&mut self.editor);
                        return Ok(Some(input));
                    }
                }
                Line::Discarded => {
                    note("Ctrl-D or /bye leaves");
                    reading = Reading::default();
                }
                Line::NotUtf8 => {
                    note("the line has a byte that is not UTF-8 and is discarded: set the terminal to UTF-8");
                    reading = Reading::default();
                }
                Line::End => return Ok(None),
            }
        }
    }

    /// Whether a line that was entered now is the rest of one that was refused.
    fn is_rest(&mut self) -> bool {
        self.refused.take().is_some_and(|at| at.elapsed() < REST)
    }

    fn read(&mut self, prompt: &str) -> Result<Line> {
        let line = self.editor.readline(prompt);
        let is_discarded = self.is_discarded.swap(false, Ordering::SeqCst);
        match line {
            Ok(_) if is_discarded => Ok(Line::Discarded),
            // The editor ends a line at such a byte, and what was typed or pasted with it is the next one.
            Ok(_) if self.is_rest() => self.read(prompt),
            Ok(line) => Ok(Line::Entered(line)),
            // Another key that the terminal has for it.
            Err(ReadlineError::Interrupted) => Ok(Line::Discarded),
            Err(ReadlineError::Eof) => Ok(Line::End),
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                self.refused = Some(Instant::now());
                Ok(Line::NotUtf8)
            }
            Err(e) => Err(failed(e)),
        }
    }
}

/// How long after a byte that is not UTF-8 a line can only be the rest of the same input: typing takes longer.
const REST: Duration = Duration::from_millis(100);

/// Ctrl-C enters the line, marked as discarded. The editor's own command for it ends the line with an error, and with
/// the line the keys that were already read after Ctrl-C are lost.
struct Discard(Arc<AtomicBool>);

impl ConditionalEventHandler for Discard {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        self.0.store(true, Ordering::SeqCst);
        Some(Cmd::AcceptLine)
    }
}

fn failed(e: ReadlineError) -> Error {
    Error::new(Exit::Failure, format!("terminal: {e}; give the prompt with -p instead"))
}
