//! Lets a session guess next tokens.

use crate::args::{ModelArgs, SpecArgs, SpecType};
use crate::error::{Error, Exit, Result};
use crate::model::{self, OpenModel};
use crate::output::n_things;
use crate::session::{Core, Session, note_warnings};
use crate::setup::Setup;
use llmrt_engine::memory::{MemoryPlan, memory_plan};
use llmrt_engine::speculation::{
    DraftLayers, DraftModel, DraftUse, Ngrams, attach_layers, check_vocabulary, is_layers,
};
use llmrt_engine::{DeviceRunner, EngineOptions};
use llmrt_host::load::LoadOptions;
use llmrt_tokenizer::Tokenizer;
use std::path::Path;

/// Adds layers that predict ahead for this model, if the file of `--model-draft` has such.
pub fn attach(model: &mut OpenModel, args: &SpecArgs, loading: &ModelArgs) -> Result<()> {
    check_flags(args)?;
    let Some(path) = args.model_draft.as_deref() else { return Ok(()) };
    let draft = open(path, loading)?;
    let arch = draft.metadata().str("general.architecture").unwrap_or_default();
    // Files of layers may leave the vocabulary to the model's.
    if !is_layers(arch) || draft.metadata().contains("tokenizer.ggml.tokens") {
        check(&model.tokenizer()?, &draft)?;
    }
    let attached = attach_layers(&mut model.files, draft.files);
    attached.map(drop).map_err(|e| Error::new(Exit::File, format!("--model-draft {}: {e}", draft.name)))
}

/// Refuses flags that contradict each other.
fn check_flags(args: &SpecArgs) -> Result<()> {
    let spec_type = spec_type(args);
    let usage = |message: String| Err(Error::usage(message));
    match (&args.model_draft, spec_type) {
        (Some(path), SpecType::None | SpecType::Ngram) => {
            usage(format!("--model-draft {} is for --spec-type draft: leave one out", path.display()))
        }
        (None, SpecType::Draft) => usage("--spec-type draft needs --model-draft FILE".into()),
        (_, SpecType::Draft | SpecType::Ngram) if args.draft_max == 0 => {
            usage("--draft-max 0: expected 1 or more tokens; --spec-type none guesses none".into())
        }
        _ => Ok(()),
    }
}

/// Guesses of a text that steps have room for.
pub fn max_drafts(args: &SpecArgs) -> usize {
    if spec_type(args) == SpecType::None { 0 } else { args.draft_max }
}

/// What a model that guesses needs on the devices, beside one with these options; `None` without one.
pub fn draft_memory(setup: &Setup, args: &SpecArgs, options: &EngineOptions) -> Result<Option<MemoryPlan>> {
    let Some(path) = args.model_draft.as_deref() else { return Ok(None) };
    let draft = open(path, &ModelArgs::default())?;
    if is_layers(draft.metadata().str("general.architecture").unwrap_or_default()) {
        return Ok(None);
    }
    let options = DraftModel::options(options, options.n_ctx);
    let plan = memory_plan(&setup.devices, &draft.files, &options);
    plan.map(Some).map_err(|e| Error::from(e).of_model(&draft.name))
}

/// What guesses.
fn spec_type(args: &SpecArgs) -> SpecType {
    let default = if args.model_draft.is_some() { SpecType::Draft } else { SpecType::None };
    args.spec_type.unwrap_or(default)
}

/// The file of `--model-draft`.
fn open(path: &Path, loading: &ModelArgs) -> Result<OpenModel> {
    let opened = OpenModel::open(Some(path), &model::open_options(&of_draft(loading)));
    opened.map_err(|e| Error::new(e.exit, format!("--model-draft {}", e.message)))
}

/// How the file of `--model-draft` is opened: the model's overrides and tokenizer are not its own.
fn of_draft(loading: &ModelArgs) -> ModelArgs {
    ModelArgs { open: Default::default(), ..loading.clone() }
}

/// Refuses a draft model with other tokens.
fn check(tokenizer: &Tokenizer, draft: &OpenModel) -> Result<()> {
    let other = |e| Error::new(Exit::File, format!("--model-draft {}: {e}", draft.name));
    check_vocabulary(tokenizer, &draft.tokenizer()?).map_err(other)
}

impl Session {
    /// The same, with what the flags have for guesses.
    pub fn speculating(mut self, setup: &Setup, args: &SpecArgs, loading: &ModelArgs) -> Result<Session> {
        match spec_type(args) {
            SpecType::None => {}
            SpecType::Ngram => self.core.speculate(Box::new(Ngrams::default()), args.draft_max),
            SpecType::Draft if self.model().drafts() => {
                let layers = DraftLayers { min_probability: args.draft_p_min };
                self.core.speculate(Box::new(layers), args.draft_max);
            }
            SpecType::Draft => {
                let drafter = draft_model(&self.core, setup, args, loading)?;
                self.core.speculate(Box::new(drafter), args.draft_max);
            }
        }
        Ok(self)
    }
}

/// The model of `--model-draft` on the devices of the setup, with room for as many tokens as the core has.
fn draft_model(core: &Core, setup: &Setup, args: &SpecArgs, loading: &ModelArgs) -> Result<DraftModel> {
    let Some(path) = &args.model_draft else {
        return Err(Error::usage("--spec-type draft needs --model-draft FILE"));
    };
    let loading = of_draft(loading);
    let mut model = open(path, &loading)?;
    let name = model.name.clone();
    model.drop_vocabulary();
    let cache = model::seal_cache(&loading);
    let load = LoadOptions {
        mode: model::load_mode(&loading),
        check_tensors: loading.check_tensors,
        seal_cache: cache.as_ref(),
        ..LoadOptions::default()
    };
    let options = DraftModel::options(core.runner().options(), core.n_ctx());
    let runner = DeviceRunner::new(&setup.host, setup.devices.clone(), model.files, load, options);
    let mut runner = runner.map_err(|e| Error::from(e).of_model(&name))?;
    runner.set_cancel_token(crate::interrupt::token());
    note_warnings(runner.take_warnings());
    DraftModel::new(runner, args.draft_p_min).map_err(|e| Error::from(e).of_model(&name))
}

/// What guesses came to, in a line.
pub fn draft_line(used: DraftUse) -> String {
    let DraftUse { n_drafts, n_draft_tokens, n_accepted_tokens } = used;
    if n_draft_tokens == 0 {
        return "drafts: no token was guessed".into();
    }
    let share = 100.0 * used.acceptance_rate();
    let steps = n_things(n_drafts as usize, "step");
    format!("drafts: {n_accepted_tokens} of {n_draft_tokens} tokens accepted ({share:.1} %) in {steps}")
}
