//! Lets a session guess next tokens.

use crate::args::{ModelArgs, SpecArgs, SpecType};
use crate::error::{Error, Exit, Result};
use crate::model::{self, OpenModel};
use crate::output::n_things;
use crate::session::{Core, Session, note_warnings};
use crate::setup::Setup;
use llmrt_engine::memory::{MemoryPlan, memory_plan};
use llmrt_engine::speculation::{
    DraftLayers, DraftModel, DraftUse, Ngrams, attach_layers, brings_vocabulary, check_vocabulary,
};
use llmrt_engine::{DeviceRunner, EngineOptions};
use llmrt_host::load::{LoadOptions, ModelFiles};

/// The file of a model that guesses.
pub struct DraftFile {
    /// Its name in messages.
    name: String,
    /// Without a vocabulary: it is the other model's.
    files: ModelFiles,
}

/// Opens the file of `--model-draft` for this model: layers that predict ahead become part of it, a model of its own goes along.
pub fn attach(model: &mut OpenModel, args: &SpecArgs, loading: &ModelArgs) -> Result<()> {
    check_flags(args)?;
    let Some(path) = args.model_draft.as_deref() else { return Ok(()) };
    let opened = OpenModel::open(Some(path), &model::open_options(&of_draft(loading)));
    let mut draft = opened.map_err(|e| Error::new(e.exit, format!("--model-draft {}", e.message)))?;
    let of_file = |e| Error::new(Exit::File, format!("--model-draft {}: {e}", path.display()));
    if brings_vocabulary(&draft.files) {
        check_vocabulary(&model.tokenizer()?, &draft.tokenizer()?).map_err(of_file)?;
        draft.drop_vocabulary();
    }
    let name = draft.name.clone();
    let own = attach_layers(model.files_mut()?, draft.into_files()?).map_err(of_file)?;
    model.draft = own.map(|files| DraftFile { name, files });
    Ok(())
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

/// What a model that guesses needs on the devices, beside one with these options.
pub fn draft_memory(setup: &Setup, draft: &DraftFile, options: &EngineOptions) -> Result<MemoryPlan> {
    let options = DraftModel::options(options, options.n_ctx);
    let plan = memory_plan(&setup.devices, &draft.files, &options);
    plan.map_err(|e| Error::from(e).of_model(&draft.name))
}

/// What guesses.
fn spec_type(args: &SpecArgs) -> SpecType {
    let default = if args.model_draft.is_some() { SpecType::Draft } else { SpecType::None };
    args.spec_type.unwrap_or(default)
}

/// How the file of `--model-draft` is opened: the model's overrides and tokenizer are not its own.
fn of_draft(loading: &ModelArgs) -> ModelArgs {
    ModelArgs { open: Default::default(), ..loading.clone() }
}

impl Session {
    /// The same, with what the flags have for guesses.
    pub fn speculating(mut self, setup: &Setup, args: &SpecArgs, loading: &ModelArgs) -> Result<Session> {
        match (spec_type(args), self.draft.take()) {
            (SpecType::None, _) => {}
            (SpecType::Ngram, _) => self.core.speculate(Box::new(Ngrams::default()), args.draft_max),
            (SpecType::Draft, None) => {
                let layers = DraftLayers { min_probability: args.draft_p_min };
                self.core.speculate(Box::new(layers), args.draft_max);
            }
            (SpecType::Draft, Some(model)) => {
                let drafter = draft_model(&self.core, setup, model, args.draft_p_min, loading)?;
                self.core.speculate(Box::new(drafter), args.draft_max);
            }
        }
        Ok(self)
    }
}

/// A model that guesses on the devices of the setup, with room for as many tokens as the core has.
fn draft_model(
    core: &Core,
    setup: &Setup,
    DraftFile { name, files }: DraftFile,
    min_probability: f32,
    loading: &ModelArgs,
) -> Result<DraftModel> {
    let cache = model::seal_cache(loading);
    let load = LoadOptions {
        mode: model::load_mode(loading),
        check_tensors: loading.check_tensors,
        seal_cache: cache.as_ref(),
        ..LoadOptions::default()
    };
    let options = DraftModel::options(core.runner().options(), core.n_ctx());
    let runner = DeviceRunner::new(&setup.host, setup.devices.clone(), files, load, options);
    let mut runner = runner.map_err(|e| Error::from(e).of_model(&name))?;
    runner.set_cancel_token(crate::interrupt::token());
    note_warnings(runner.take_warnings());
    DraftModel::new(runner, min_probability).map_err(|e| Error::from(e).of_model(&name))
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
