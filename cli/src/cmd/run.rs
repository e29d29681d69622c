//! `llmrt run`: a prompt, or a chat.

mod args;
mod batch;
pub mod stored;

pub use args::{ChatArgs, Run};

use crate::args::{Global, SamplerArg};
use crate::cmd::{Command, chat, llama2c};
use crate::context::{self, Defaults};
use crate::error::{Error, Exit, Result};
use crate::generate::{Outcome, generate};
use crate::model::{self, OpenModel};
use crate::output::{self, n_things, note};
use crate::prompt_cache::{self, Key};
use crate::session::Session;
use crate::setup::Setup;
use crate::speculation::{self, draft_line};
use crate::templates::Template;
use crate::{interrupt, prompt, sampling, text};
use llmrt_abi::DType;
use llmrt_engine::{EngineOptions, Finish, Request, Timings, TokenId};
use llmrt_tokenizer::{ChatTemplate, EncodeOptions, Tokenizer};
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

impl Command for Run {
    const NAME: &'static str = "run";

    fn run(&self, global: &Global) -> Result<()> {
        run(global, self)
    }
}

/// Generates text from a prompt; starts a chat or llama2.c's loop where these are requested.
fn run(global: &Global, given: &Run) -> Result<()> {
    let words = Words::of(given)?;
    let layers = stored::find(words.model.as_deref(), given)?;
    let layered = layers.as_ref().map(|model| stored::with_layers(given, model));
    let args = layered.as_ref().unwrap_or(given);
    let mut model = OpenModel::open(words.model.as_deref(), &model::open_options(&args.loading))
        .map_err(|e| words.with_hint(e, args))?;
    speculation::attach(&mut model, &args.speculation, &args.loading)?;
    if args.results.batch_file.is_some() && words.has_prompt(args) {
        return Err(Error::usage("--batch-file and another prompt: leave one out"));
    }
    if args.sampling.sampler == SamplerArg::Llama2c {
        if args.results.json || args.results.batch_file.is_some() {
            return Err(Error::usage(
                "--sampler llama2c has no --json and no --batch-file: leave one of them out",
            ));
        }
        if args.speculation.spec_type.is_some() || args.speculation.model_draft.is_some() {
            return Err(Error::usage(
                "--sampler llama2c guesses no next tokens: leave --spec-type and --model-draft out",
            ));
        }
        no_prompt_cache(args, "--sampler llama2c")?;
        let prompt = words.prompt(args)?.unwrap_or_default();
        return llama2c::run(global, args, model, &prompt);
    }

    if let (None, Some(flag)) = (&args.results.batch_file, args.requests.given()) {
        return Err(Error::usage(format!("{flag} does nothing without --batch-file: leave it out")));
    }
    let tokenizer = Arc::new(model.tokenizer()?);
    let mut template = if args.raw { None } else { Template::choose(&args.template, &model)? };
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let is_batch = args.results.json || args.results.batch_file.is_some();
    if is_batch {
        only_for_streams(args, "--json and --batch-file")?;
    }
    if is_terminal && !is_batch && !words.has_prompt(args) {
        if !args.raw && template.is_none() {
            template = Template::of_chat(&args.template, &model)?;
        }
        if let Some(template) = template {
            only_for_streams(args, "a chat")?;
            return chat::chat(global, args, model, &tokenizer, template);
        }
    }
    let without_system = if template.is_none() { stored::without_system(args, given) } else { None };
    let args = without_system.as_ref().unwrap_or(args);
    if let Some(template) = &template {
        prompt::check_system(&template.jinja, args.system.as_deref());
    }
    if let Some(path) = &args.results.batch_file {
        let text = text::of_file(path)?;
        let prompts: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).map(String::from).collect();
        if prompts.is_empty() {
            return Err(Error::file(path, "has no prompt: expected one a line"));
        }
        return batch::run(global, args, model, &tokenizer, template.as_ref().map(|t| &t.jinja), &prompts);
    }
    let begins_by_itself = args.raw || model.is_embedded() || template.is_some();
    let prompt = match words.prompt(args)? {
        None if !begins_by_itself => return Err(Error::usage(NO_PROMPT)),
        prompt => prompt.unwrap_or_default(),
    };
    if prompt.is_empty() && template.is_none() {
        note("the prompt is empty: the text begins from nothing; -p or -f gives a prompt");
    }
    if args.results.json {
        return batch::run(global, args, model, &tokenizer, template.as_ref().map(|t| &t.jinja), &[prompt]);
    }
    let setup = Setup::new(global)?;
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    // Keys and values of the whole prompt are saved.
    options.swa_full |= args.prompt_cache.is_some();
    options.count_needed = setup.verbose > 0;
    options.max_drafts = speculation::max_drafts(&args.speculation);
    let tokens = prompt_tokens(&tokenizer, template.as_ref().map(|t| &t.jinja), &prompt, args, options.n_ctx)
        .map_err(|e| e.of_model(&model.name))?;
    check_fits(tokens.len(), options.n_ctx, model.n_ctx_train())?;
    let key = cache_key(args, &model, &options, &setup)?;
    let mut session = Session::load(&setup, model, &args.loading, options, Some(tokenizer.clone()))?
        .for_text()?
        .speculating(&setup, &args.speculation, &args.loading)?;
    let (decoding, seed) = sampling::decoding(&args.sampling, session.model().config.n_vocab)?;
    if setup.verbose > 0 {
        note(format_args!("prompt {}, seed {seed}", n_things(tokens.len(), "token")));
    }
    let shows_seed = setup.verbose == 0 && sampling::is_seed_news(&args.sampling);

    let mut show = to_stdout();
    if args.echo {
        show(&prompt)?;
    }
    let n_restored = match &key {
        Some((path, key)) => prompt_cache::restore(path, key, &mut session.core, &tokens)?,
        None => 0,
    };
    let request = Request {
        decoding,
        max_tokens: n_predict(args),
        stop: args.sampling.stop.clone(),
        ignore_eos: args.sampling.ignore_eos,
        continues: template.is_none() && !prompt.is_empty(),
        ..Request::greedy(tokens.clone())
    };
    let outcome = generate(&mut session.core, request, None, &mut show)?;
    show("\n")?;
    if let Some((path, key)) = key.filter(|_| n_restored + 1 < tokens.len() && !args.prompt_cache_ro) {
        prompt_cache::save(path, &key, &session.core, (&tokens, &outcome.tokens))?;
    }

    session.report_placement(setup.verbose);
    report_end(&outcome, session.core.n_ctx());
    session.core.draft_use().map(draft_line).iter().for_each(note);
    if shows_seed && !outcome.tokens.is_empty() {
        note(format_args!("seed {seed}"));
    }
    note(timings(session.load, &outcome));
    match outcome.finish {
        Finish::Cancelled => Err(Error::interrupted()),
        _ => Ok(()),
    }
}

/// No prompt on a terminal, and no chat.
const NO_PROMPT: &str = "there is no prompt, and no chat since the model has no chat template: give a prompt with -p, a \
                         file with -f, a template with --chat-template, or --raw to let the model begin by itself";

/// Refuses the flags that act on a single text which is written while it is generated.
fn only_for_streams(args: &Run, what: &str) -> Result<()> {
    if args.echo {
        return Err(Error::usage(format!("--echo does nothing with {what}: leave it out")));
    }
    no_prompt_cache(args, what)
}

fn no_prompt_cache(args: &Run, what: &str) -> Result<()> {
    match args.prompt_cache {
        Some(_) => Err(Error::usage(format!("--prompt-cache does nothing with {what}: leave it out"))),
        None => Ok(()),
    }
}

/// The file of `--prompt-cache`, and what its contents must agree with.
fn cache_key<'a>(
    args: &'a Run,
    model: &OpenModel,
    options: &EngineOptions,
    setup: &Setup,
) -> Result<Option<(&'a Path, Key)>> {
    let Some(path) = &args.prompt_cache else { return Ok(None) };
    if !args.prompt_cache_ro {
        prompt_cache::check_writable(path)?;
    }
    Ok(Some((path, Key::new(&model.identity()?, options, &setup.device_names()))))
}

/// A function that writes text of a model to stdout at once.
pub fn to_stdout() -> impl FnMut(&str) -> Result<()> {
    |text| Ok(output::model_text(text)?)
}

/// `-n`: less than 0 means no limit but the model's end and the context's, 0 that the prompt alone is computed.
pub fn n_predict(args: &Run) -> Option<usize> {
    args.n_predict.and_then(|n| usize::try_from(n).ok())
}

/// Notes on stderr why a text stopped short.
pub fn report_end(outcome: &Outcome, n_ctx: usize) {
    if outcome.is_context_full {
        note(format_args!("stopped: the context of {n_ctx} tokens is full; raise it with -c"));
    }
}

/// The numbers of the last line.
pub fn timings(load: Duration, outcome: &Outcome) -> Timings {
    Timings {
        load,
        n_prompt: outcome.n_prompt,
        prompt: outcome.prompt,
        n_generated: outcome.tokens.len(),
        n_decoded: outcome.n_decoded,
        generate: outcome.generate,
    }
}

/// A prompt must leave room for an answer.
pub fn check_fits(n_tokens: usize, n_ctx: usize, n_ctx_train: Option<usize>) -> Result<()> {
    if n_tokens < n_ctx {
        return Ok(());
    }
    let trained = n_ctx_train.map_or(String::new(), |n| format!(" (the model was trained on {n})"));
    Err(Error::usage(format!(
        "the prompt has {} and the context holds {n_ctx}: raise it with -c{trained} or shorten the prompt",
        n_things(n_tokens, "token")
    )))
}

/// The ids of the prompt, in the words of the template if there is one.
fn prompt_tokens(
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
    prompt: &str,
    args: &Run,
    n_ctx: usize,
) -> Result<Vec<TokenId>> {
    let limits = interrupt::limits(n_ctx);
    let Some(template) = template else {
        if args.system.is_some() {
            let why = if args.raw { "--raw leaves it out" } else { "this model has none" };
            return Err(Error::usage(format!(
                "--system needs a chat template, and {why}: put it into the prompt"
            )));
        }
        let options = EncodeOptions { add_special: true, parse_special: true };
        let tokens = tokenizer.encode_within(prompt, options, limits)?;
        return Ok(if tokens.is_empty() { vec![start_token(tokenizer)?] } else { tokens });
    };
    if prompt.is_empty() {
        return Err(Error::usage(
            "the prompt is empty: give one, or use --raw to let the model begin by itself",
        ));
    }
    prompt::of_message(tokenizer, template, args.system.as_deref(), prompt, limits)
}

/// What a text without a prompt begins with.
fn start_token(tokenizer: &Tokenizer) -> Result<TokenId> {
    tokenizer.bos().or(tokenizer.eos()).ok_or_else(|| {
        Error::usage("the prompt is empty and the model has no token that begins a text: give a prompt")
    })
}

/// A word of the prompt, where a file's name may be any bytes.
fn prompt_word(word: &OsString) -> Result<String> {
    let text = word.to_str().map(String::from);
    text.ok_or_else(|| {
        Error::usage(format!("{}: the prompt is no UTF-8 text: give it in a file with -f", word.display()))
    })
}

/// What the words after `run` are.
#[derive(Debug)]
struct Words {
    model: Option<PathBuf>,
    prompt: Option<String>,
}

impl Words {
    /// Without `-m` the first word is the model and the others are the prompt; with it all words are the prompt.
    fn of(args: &Run) -> Result<Words> {
        let (model, mut prompt) = match &args.model_file {
            Some(file) => {
                (Some(file.clone()), args.model.as_ref().map(prompt_word).transpose()?.into_iter().collect())
            }
            None => (args.model.as_ref().map(PathBuf::from), Vec::new()),
        };
        prompt.extend(args.prompt.iter().cloned());
        if args.model_file.is_none() && args.model.as_deref() == Some(OsStr::new("")) {
            return Err(Error::usage(
                "the model's name is empty: give a file, or leave it out for the embedded model",
            ));
        }
        let prompt = (!prompt.is_empty()).then(|| prompt.join(" "));
        let named = args.prompt_text.is_some() || args.prompt_file.is_some();
        if let (Some(prompt), true) = (&prompt, named) {
            return Err(Error::usage(format!(
                "two prompts: `{prompt}` and the one of -p or -f; leave one out"
            )));
        }
        Ok(Words { model, prompt })
    }

    /// Whether a prompt is on the command line.
    fn has_prompt(&self, args: &Run) -> bool {
        self.prompt.is_some() || args.prompt_text.is_some() || args.prompt_file.is_some()
    }

    /// The prompt, from the first of: the words, -p, -f, stdin if it is no terminal.
    fn prompt(&self, args: &Run) -> Result<Option<String>> {
        if let Some(prompt) = self.prompt.as_ref().or(args.prompt_text.as_ref()) {
            return Ok(Some(prompt.clone()));
        }
        let read = match &args.prompt_file {
            Some(path) => Some(text::of_file(path)?),
            None if std::io::stdin().is_terminal() => None,
            None => Some(text::of_stdin()?),
        };
        if interrupt::is_requested() {
            return Err(Error::interrupted());
        }
        Ok(read.map(text::without_last_line_end))
    }

    /// `llmrt run "Once upon a time"` and `llmrt run llama3 hi` look for a file of that name.
    fn with_hint(&self, e: Error, args: &Run) -> Error {
        // Names of models elsewhere have versions: llama3.2, qwen2.5:7b.
        let is_ending =
            |ending: &OsStr| !ending.as_encoded_bytes()[..].first().is_some_and(u8::is_ascii_digit);
        let is_word = |path: &PathBuf| !path.exists() && !path.extension().is_some_and(is_ending);
        if e.exit != Exit::File || !self.model.as_ref().is_some_and(is_word) {
            return e;
        }
        let prompt = match self.has_prompt(args) {
            true => "",
            false => "a prompt for the embedded model goes after -p, and ",
        };
        let message = format!(
            "{}; {prompt}a model is a GGUF file or a name of the store: `llmrt list` shows these, `llmrt pull NAME` gets \
             one",
            e.message
        );
        Error { message, ..e }
    }
}
