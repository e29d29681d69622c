//! `llmrt run --sampler llama2c`: the loop of llama2.c's `run`, so that a seed gives the same text.
//!
//! Positions are counted, prompt included. Tokens of the prompt are forced and take no random number, so they can
//! go through the model in one step: the text is the same as token by token.

use crate::args::Global;
use crate::cmd::run::{self, Run, to_stdout};
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::generate::generate;
use crate::model::OpenModel;
use crate::output::{n_things, note};
use crate::session::Session;
use crate::setup::Setup;
use crate::{interrupt, sampling};
use llmrt_abi::DType;
use llmrt_engine::{Request, Timings, TokenId};
use llmrt_tokenizer::Tokenizer;
use std::sync::Arc;

/// The token that begins a text, and whose coming ends it.
const BOS: TokenId = 1;

/// Positions when `-n` is not given.
const DEFAULT_STEPS: usize = 256;

/// Generates with llama2.c's tokenizer, sampler and rules. The prompt is part of the output.
pub fn run(global: &Global, args: &Run, model: OpenModel, prompt: &str) -> Result<()> {
    if args.system.is_some() {
        return Err(Error::usage("--system does nothing with --sampler llama2c: leave one of them out"));
    }
    let tokenizer = model.llama2c_tokenizer()?;
    let prompt = prompt_tokens(&tokenizer, prompt)?;
    let setup = Setup::new(global)?;
    // The header's number of positions sizes the KV cache and nothing holds it against the file: it is capped.
    let defaults = Defaults { n_ctx: None, kv_type: DType::F32 };
    let options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    let n_steps = n_steps(args.n_predict, options.n_ctx);

    let tokenizer = Arc::new(tokenizer);
    let mut session = Session::load(&setup, model, &args.loading, options, Some(tokenizer.clone()))?;
    let (decoding, seed) = sampling::decoding(&args.sampling, session.model().config.n_vocab)?;
    if setup.verbose > 0 {
        let n_prompt = n_things(prompt.len(), "token");
        note(format_args!("prompt {n_prompt}, {n_steps} positions, seed {seed}"));
    }

    // A token of the prompt that ends a text ends this one.
    let n_shown = prompt[1..].iter().take_while(|&&token| token != BOS).count().min(n_steps);
    let mut show = to_stdout();
    show(&text_of(&tokenizer, &prompt[1..=n_shown])?)?;
    let mut timings = Timings { load: session.load, ..Timings::default() };
    if n_shown + 1 == prompt.len() && n_shown < n_steps {
        let request = Request {
            decoding,
            max_tokens: Some(n_steps - n_shown),
            stop_token_ids: vec![BOS],
            ignore_eos: true,
            continues: n_shown > 0,
            ..Request::greedy(prompt)
        };
        let outcome = generate(&mut session.core, request, None, &mut show)?;
        timings = run::timings(session.load, &outcome);
    }
    show("\n")?;
    session.report_placement(setup.verbose);
    if setup.verbose == 0 && sampling::is_seed_news(&args.sampling) {
        note(format_args!("seed {seed}"));
    }
    note(timings);
    if interrupt::is_requested() { Err(Error::interrupted()) } else { Ok(()) }
}

/// The text of a prompt, all of it.
fn text_of(tokenizer: &Tokenizer, tokens: &[TokenId]) -> Result<String> {
    let mut decoder = tokenizer.decoder(false);
    let mut text = String::new();
    for &token in tokens {
        text += &decoder.push(token)?;
    }
    Ok(text + &decoder.flush())
}

/// `-n`, where 0, less than 0 and more than there are mean all positions.
fn n_steps(given: Option<i64>, n_positions: usize) -> usize {
    let given = given.map_or(DEFAULT_STEPS, |n| usize::try_from(n).unwrap_or(0));
    if given == 0 { n_positions } else { given.min(n_positions) }
}

fn prompt_tokens(tokenizer: &Tokenizer, prompt: &str) -> Result<Vec<TokenId>> {
    let mut tokens = vec![BOS];
    tokens.extend(tokenizer.encode_within(
        prompt,
        llmrt_tokenizer::EncodeOptions::default(),
        interrupt::UNTIL_INTERRUPTED,
    )?);
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_counted_as_llama2c_counts_steps() {
        for (given, expected) in
            [(None, 256), (Some(0), 512), (Some(-5), 512), (Some(48), 48), (Some(9999), 512)]
        {
            assert_eq!(n_steps(given, 512), expected, "-n {given:?}");
        }
        assert_eq!(n_steps(None, 64), 64);
    }
}
