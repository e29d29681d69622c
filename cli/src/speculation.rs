//! Lets a session guess next tokens.

use crate::args::{ModelArgs, SpecArgs, SpecType};
use crate::error::{Error, Exit, Result};
use crate::model::{self, OpenModel};
use crate::output::n_things;
use crate::session::{Core, Session, note_warnings};
use crate::setup::Setup;
use llmrt_engine::DeviceRunner;
use llmrt_engine::speculation::{DraftLayers, DraftModel, DraftUse, Ngrams, attach_layers, check_vocabulary};
use llmrt_host::load::LoadOptions;
use llmrt_models::drafts_for;
use llmrt_tokenizer::Tokenizer;

/// Adds layers that predict ahead for this model, if the file of `--model-draft` has such.
pub fn attach(model: &mut OpenModel, args: &SpecArgs, loading: &ModelArgs) -> Result<()> {
    let Some(path) = args.model_draft.as_deref().filter(|_| spec_type(args) == SpecType::Draft) else {
        return Ok(());
    };
    let draft = OpenModel::open(Some(path), &model::open_options(&of_draft(loading)))?;
    let arch = draft.metadata().str("general.architecture").unwrap_or_default();
    // Files of layers may leave the vocabulary to the model's.
    if drafts_for(arch).is_none() || draft.metadata().contains("tokenizer.ggml.tokens") {
        check(&model.tokenizer()?, &draft)?;
    }
    let attached = attach_layers(&mut model.files, draft.files);
    attached.map(drop).map_err(|e| Error::new(Exit::File, format!("{}: {e}", draft.name)))
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

/// Refuses a draft model with other tokens.
fn check(tokenizer: &Tokenizer, draft: &OpenModel) -> Result<()> {
    let other = |e| Error::new(Exit::File, format!("{}: {e}", draft.name));
    check_vocabulary(tokenizer, &draft.tokenizer()?).map_err(other)
}

impl Session {
    /// The same, with what the flags have for guesses.
    pub fn speculating(mut self, setup: &Setup, args: &SpecArgs, loading: &ModelArgs) -> Result<Session> {
        let spec_type = spec_type(args);
        if let (Some(path), SpecType::None | SpecType::Ngram) = (&args.model_draft, spec_type) {
            let path = path.display();
            return Err(Error::usage(format!(
                "--model-draft {path} is for --spec-type draft: leave one out"
            )));
        }
        if spec_type != SpecType::None && args.draft_max == 0 {
            return Err(Error::usage(
                "--draft-max 0: expected 1 or more tokens; --spec-type none guesses none",
            ));
        }
        match spec_type {
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
    let mut model = OpenModel::open(Some(path), &model::open_options(&loading))?;
    let name = model.name.clone();
    model.drop_vocabulary();
    let cache = model::seal_cache(&loading);
    let load = LoadOptions {
        mode: model::load_mode(&loading),
        check_tensors: loading.check_tensors,
        seal_cache: cache.as_ref(),
        ..LoadOptions::default()
    };
    let options = DraftModel::options(core);
    let runner = DeviceRunner::new(&setup.host, setup.devices.clone(), model.files, load, options);
    let mut runner = runner.map_err(|e| Error::from(e).of_model(&name))?;
    runner.set_cancel_token(crate::interrupt::token());
    note_warnings(runner.take_warnings());
    DraftModel::new(runner, args.draft_p_min).map_err(|e| Error::from(e).of_model(&name))
}

/// What guesses came to, in a line.
pub fn draft_line(used: DraftUse) -> String {
    let DraftUse { n_drafts, n_draft_tokens, n_accepted_tokens } = used;
    let share = 100.0 * used.acceptance_rate();
    let steps = n_things(n_drafts as usize, "step");
    format!("drafts: {n_accepted_tokens} of {n_draft_tokens} tokens accepted ({share:.1} %) in {steps}")
}
