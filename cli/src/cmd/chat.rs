//! A chat on the terminal: reads a message, generates the answer, keeps the conversation.

mod input;

mod conversation;

mod history;

mod lines;

use crate::args::Global;
use crate::cmd::run::{Run, n_predict, report_end, timings, to_stdout};
use crate::context::{self, Defaults};
use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::model::{Identity, OpenModel};
use crate::output::{n_things, note};
use crate::session::Session;
use crate::setup::Setup;
use crate::speculation::{self, draft_line};
use crate::templates::Template;
use conversation::Conversation;
use input::Input;
use lines::Lines;
use llmrt_abi::DType;
use llmrt_engine::{Finish, Timings};
use llmrt_tokenizer::Tokenizer;
use std::path::Path;
use std::sync::Arc;

const HELP: &str = "\
/clear            forget the conversation
/system           show the system message
/system TEXT      forget the conversation and start over with this system message; \"\" is none
/regen            answer the last message again, with another seed
/set              show the sampling flags that can be set
/set NAME VALUE   set one: temp, top-k, top-p, min-p, repeat-penalty, seed
/show             show model, template, messages, context and sampling flags
/save FILE        write the conversation to a file (JSON)
/load FILE        continue the conversation of a file
/help             this list
/bye              leave; so does Ctrl-D
\"\"\"               begins and ends a text of several lines
Ctrl-C            stops the answer";

const WELCOME: &str = "\
A tiny story teller, trained on made-up children's stories and nothing else. Type what the story is about, such as
`a brave dragon`, or how it begins; `more` continues it. For a real chat: llmrt run FILE.gguf";

/// Chats until Ctrl-D or /bye.
pub fn chat(
    global: &Global,
    args: &Run,
    model: OpenModel,
    tokenizer: &Arc<Tokenizer>,
    template: Template,
) -> Result<()> {
    let setup = Setup::new(global)?;
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    options.count_needed = setup.verbose > 0;
    options.max_drafts = speculation::max_drafts(&args.speculation);
    let (identity, is_embedded) = (model.identity()?, model.is_embedded());
    let session = Session::load(&setup, model, &args.loading, options, Some(tokenizer.clone()))?
        .for_text()?
        .speculating(&setup, &args.speculation, &args.loading)?;
    let (system, flags) = (args.system.clone(), args.sampling.clone());
    let talk = Conversation::new(tokenizer, template, system, flags, !args.chat.no_context_shift)?;
    let mut lines = Lines::open(&args.chat)?;
    if is_embedded {
        note(WELCOME);
    }
    talk.check_system();
    note("/help lists commands, Ctrl-D leaves");

    let total = Timings { load: session.load, ..Timings::default() };
    let mut chat =
        Chat { session, talk, identity, n_predict: n_predict(args), verbose: setup.verbose, total };
    while let Some(input) = lines.next_input()? {
        if input == Input::Bye {
            break;
        }
        match chat.run(input) {
            // What is wrong with one input leaves the chat as it was before it.
            Err(e) if matches!(e.exit, Exit::Usage | Exit::File | Exit::Interrupted) => note(e.message),
            result => result?,
        }
    }
    chat.session.report_placement(setup.verbose);
    chat.session.core.draft_use().map(draft_line).iter().for_each(note);
    note(chat.total);
    Ok(())
}

/// A chat between two inputs.
struct Chat<'m> {
    session: Session,
    talk: Conversation<'m>,
    identity: Identity,
    n_predict: Option<usize>,
    verbose: u8,
    total: Timings,
}

impl Chat<'_> {
    fn run(&mut self, input: Input) -> Result<()> {
        match input {
            Input::Message(text) => self.answer(Some(text))?,
            Input::Regenerate => self.answer(None)?,
            Input::Clear => {
                self.talk.clear();
                let stays = if self.talk.system().is_some() { "; the system message stays" } else { "" };
                note(format_args!("(the conversation is cleared{stays})"));
            }
            Input::System(None) => note(match self.talk.system() {
                Some(text) => format!("system message: {text}"),
                None => "there is no system message; /system TEXT sets one".into(),
            }),
            Input::System(Some(text)) => {
                let what = if text.is_empty() { "removed" } else { "set" };
                self.talk.set_system(text);
                note(format_args!("(the system message is {what} and the conversation cleared)"));
                self.talk.check_system();
            }
            Input::Set(None) => note(self.talk.settings()),
            Input::Set(Some((name, value))) => {
                self.talk.set(&name, &value)?;
                note(format_args!("({})", self.talk.settings()));
            }
            Input::Show => {
                let summary = self.talk.summary(self.session.core.n_ctx());
                note(format_args!("model     {}\n{summary}", self.identity.name))
            }
            Input::Save(path) => {
                check_named("/save", &path)?;
                match self.talk.save(&path, &self.identity) {
                    Ok(()) => note(format_args!("(saved to {})", path.display())),
                    Err(e) => note(e.message),
                }
            }
            Input::Load(path) => {
                check_named("/load", &path)?;
                let n = self.talk.load_file(&path, &self.identity)?;
                note(format_args!("(loaded {} from {})", n_things(n, "message"), path.display()));
            }
            Input::Help => note(HELP),
            Input::Unknown(command) => note(format_args!("{command}: no such command; /help lists them")),
            Input::Bye => {}
        }
        Ok(())
    }

    /// Answers a message, or the last one again.
    fn answer(&mut self, message: Option<String>) -> Result<()> {
        interrupt::forget();
        let (core, show) = (&mut self.session.core, &mut to_stdout());
        let outcome = match message {
            Some(text) => self.talk.turn(core, text, self.n_predict, show),
            None => self.talk.regenerate(core, self.n_predict, show),
        };
        interrupt::forget();
        let outcome = outcome?;
        show("\n")?;
        report_end(&outcome, self.session.core.n_ctx());
        let timings = timings(self.session.load, &outcome);
        if self.verbose > 0 {
            note(timings);
        }
        if outcome.finish == Finish::Cancelled {
            note("(stopped)");
        }
        self.total = sum(self.total, &timings);
        Ok(())
    }
}

fn check_named(command: &str, path: &Path) -> Result<()> {
    match path.as_os_str().is_empty() {
        true => Err(Error::usage(format!("{command}: a file is missing: {command} FILE"))),
        false => Ok(()),
    }
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
