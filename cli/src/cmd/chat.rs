//! A chat on the terminal: reads a turn, lets the model answer, keeps the conversation.

mod input;

mod conversation;

mod history;

use crate::args::Global;
use crate::cmd::run::Run;
use crate::cmd::run::{n_predict, tell_end, timings, to_stdout};
use crate::context::{self, Defaults};
use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::model::OpenModel;
use crate::output::note;
use crate::session::Session;
use crate::setup::Setup;
use conversation::Conversation;
use input::{Input, Reading};
use llmrt_abi::DType;
use llmrt_engine::{Finish, Timings};
use llmrt_tokenizer::{ChatTemplate, Tokenizer};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

const HELP: &str = "\
/clear            forget the conversation
/system TEXT      forget it and begin anew with this system message
/set              show the sampling flags that can be set
/set NAME VALUE   set one: temp, top-k, top-p, min-p, repeat-penalty, seed
/help             this list
/bye              leave; so does Ctrl-D
\"\"\"               begins and ends a text of several lines
Ctrl-C            stops the answer";

/// Chats until the person leaves.
pub fn chat(
    global: &Global,
    args: &Run,
    model: OpenModel,
    tokenizer: &Tokenizer,
    template: &ChatTemplate,
) -> Result<()> {
    let setup = Setup::new(global)?;
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    let mut session = Session::load(&setup, model, &args.loading, options)?;
    let mut talk = Conversation::new(tokenizer, template, args.system.clone(), args.sampling.clone());
    talk.reseed(&session.engine)?;
    let mut lines = Lines::open()?;
    note("/help lists commands, Ctrl-D leaves");

    let mut total = Timings { load: session.load, ..Timings::default() };
    while let Some(input) = lines.next_input()? {
        match input {
            Input::Say(text) => {
                interrupt::forget();
                let turn = talk.turn(&mut session.engine, text, n_predict(args), &mut to_stdout());
                match turn {
                    Ok(outcome) => {
                        to_stdout()("\n")?;
                        tell_end(&outcome, &session.engine);
                        if setup.verbose > 0 {
                            note(timings(session.load, &outcome));
                        }
                        if outcome.finish == Finish::Cancelled {
                            note("(stopped)");
                        }
                        total = sum(total, &timings(session.load, &outcome));
                    }
                    // What is wrong with one turn leaves the chat as it was before it.
                    Err(e) if matches!(e.exit, Exit::Usage | Exit::File | Exit::Interrupted) => {
                        note(e.message)
                    }
                    Err(e) => return Err(e),
                }
                interrupt::forget();
            }
            Input::Clear => talk.clear(&mut session.engine)?,
            Input::System(text) => talk.set_system(text, &mut session.engine)?,
            Input::Set(None) => note(talk.settings()),
            Input::Set(Some((name, value))) => {
                if let Err(e) = talk.set(&name, &value, &session.engine) {
                    note(e.message);
                }
            }
            Input::Help => note(HELP),
            Input::Bye => break,
            Input::Unknown(command) => note(format_args!("{command}: no such command; /help lists them")),
        }
    }
    session.tell_placement(setup.verbose);
    note(total);
    Ok(())
}

fn sum(a: Timings, b: &Timings) -> Timings {
    Timings {
        load: a.load,
        n_prompt: a.n_prompt + b.n_prompt,
        prompt: a.prompt + b.prompt,
        n_generated: a.n_generated + b.n_generated,
        n_decoded: a.n_decoded + b.n_decoded,
        generate: a.generate + b.generate,
    }
}

/// Lines with editing and history.
struct Lines {
    editor: DefaultEditor,
}

impl Lines {
    fn open() -> Result<Lines> {
        let mut editor = DefaultEditor::new().map_err(failed)?;
        history::load(&mut editor);
        Ok(Lines { editor })
    }

    /// The next thing a person means; `None` when the person leaves.
    fn next_input(&mut self) -> Result<Option<Input>> {
        let mut reading = Reading::default();
        loop {
            let prompt = if reading.is_open() { "... " } else { ">>> " };
            match self.editor.readline(prompt) {
                Ok(line) => {
                    if let Some(input) = reading.push(&line) {
                        let _ = self.editor.add_history_entry(reading.text());
                        history::save(&mut self.editor);
                        return Ok(Some(input));
                    }
                }
                Err(ReadlineError::Interrupted) => {
                    note("Ctrl-D or /bye leaves");
                    reading = Reading::default();
                }
                Err(ReadlineError::Eof) => return Ok(None),
                Err(e) => return Err(failed(e)),
            }
        }
    }
}

fn failed(e: ReadlineError) -> Error {
    Error::new(Exit::Failure, format!("terminal: {e}; give the prompt with -p instead"))
}
