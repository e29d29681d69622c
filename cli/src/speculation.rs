//! Lets a session guess next tokens.

use crate::args::{ModelArgs, SpecArgs, SpecType};
use crate::error::{Error, Exit, Result};
use crate::model::{self, OpenModel};
use crate::output::n_things;
use crate::session::{Core, Session, note_warnings};
use crate::setup::Setup;
use llmrt_engine::DeviceRunner;
use llmrt_engine::speculation::{DraftModel, DraftUse, Ngrams, check_vocabulary};
use llmrt_host::load::LoadOptions;
use llmrt_tokenizer::Tokenizer;

impl Session {
    /// The same, with what the flags have for guesses.
    pub fn speculating(
        mut self,
        setup: &Setup,
        args: &SpecArgs,
        loading: &ModelArgs,
        tokenizer: &Tokenizer,
    ) -> Result<Session> {
        let default = if args.model_draft.is_some() { SpecType::Draft } else { SpecType::None };
        let spec_type = args.spec_type.unwrap_or(default);
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
            SpecType::Draft => {
                let drafter = draft_model(&self.core, setup, args, loading, tokenizer)?;
                self.core.speculate(Box::new(drafter), args.draft_max);
            }
        }
        Ok(self)
    }
}

/// The model of `--model-draft` on the devices of the setup, with room for as many tokens as the core has.
fn draft_model(
    core: &Core,
    setup: &Setup,
    args: &SpecArgs,
    loading: &ModelArgs,
    tokenizer: &Tokenizer,
) -> Result<DraftModel> {
    let Some(path) = &args.model_draft else {
        return Err(Error::usage("--spec-type draft needs --model-draft FILE"));
    };
    let loading = ModelArgs { open: Default::default(), ..loading.clone() };
    let mut model = OpenModel::open(Some(path), &model::open_options(&loading))?;
    let name = model.name.clone();
    let other = |e| Error::new(Exit::File, format!("{name}: {e}"));
    check_vocabulary(tokenizer, &model.tokenizer()?).map_err(other)?;
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
