//! `llmrt run --sampler llama2c`: the loop of llama2.c's `run`, so that a seed gives the same text.
//!
//! Positions are counted, prompt included. Tokens of the prompt are forced and take no random number, so they can
//! go through the model in one step: the text is the same as token by token.

use crate::args::Global;
use crate::cmd::run::Run;
use crate::cmd::run::to_stdout;
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::generate::next_logits;
use crate::model::OpenModel;
use crate::output::{n_things, note};
use crate::session::Session;
use crate::setup::Setup;
use crate::{interrupt, sampling};
use llmrt_abi::DType;
use llmrt_engine::{Timings, TokenId};
use llmrt_tokenizer::{Decoder, Tokenizer};
use std::time::Instant;

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

    let Session { mut engine, load } = Session::load(&setup, model, &args.loading, options)?;
    let n_vocab = engine.model().config.n_vocab;
    let (mut sampler, seed) = sampling::sampler(&args.sampling, n_vocab)?;
    if setup.verbose > 0 {
        let n_prompt = n_things(prompt.len(), "token");
        note(format_args!("prompt {n_prompt}, {n_steps} positions, seed {seed}"));
    }

    let mut out = Out { decoder: tokenizer.decoder(false) };
    let mut timings = Timings { load, ..Timings::default() };
    let mut position = 0;
    let mut ended = false;
    for &token in &prompt[1..] {
        if position == n_steps || ended {
            break;
        }
        position += 1;
        ended = token == BOS || interrupt::is_requested();
        if !ended {
            out.push(token)?;
        }
    }

    let mut last = Instant::now();
    let id = engine.add(prompt[..prompt.len().min(n_steps)].to_vec())?;
    engine.set_required_top_k(id, sampler.required_top_k())?;
    while position < n_steps && !ended {
        let Some(step) = next_logits(&mut engine, id, usize::MAX)? else {
            if timings.n_prompt == 0 {
                let n_missing = engine.sequence(id).map_or(0, |seq| seq.n_missing());
                (timings.n_prompt, timings.prompt) = (prompt.len() - n_missing, last.elapsed());
            }
            break;
        };
        let token = sampler.sample(step.row(0), &[])?;
        position += 1;
        count(&mut timings, prompt.len(), &mut last);
        timings.n_generated += usize::from(token != BOS);
        ended = token == BOS || interrupt::is_requested();
        if !ended {
            out.push(token)?;
            if position < n_steps {
                engine.push(id, token)?;
            }
        }
    }
    out.finish()?;
    Session { engine, load }.report_placement(setup.verbose);
    if setup.verbose == 0 && sampling::is_seed_news(&args.sampling) {
        note(format_args!("seed {seed}"));
    }
    note(timings);
    if interrupt::is_requested() { Err(Error::interrupted()) } else { Ok(()) }
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

/// The first token comes with the prompt's step, every other one has a step of its own.
fn count(timings: &mut Timings, n_prompt: usize, last: &mut Instant) {
    let now = Instant::now();
    let time = now - std::mem::replace(last, now);
    if timings.n_prompt == 0 {
        (timings.n_prompt, timings.prompt) = (n_prompt, time);
    } else {
        timings.n_decoded += 1;
        timings.generate += time;
    }
}

/// Tokens as text on stdout.
struct Out<'t> {
    decoder: Decoder<&'t Tokenizer>,
}

impl Out<'_> {
    fn push(&mut self, token: TokenId) -> Result<()> {
        let text = self.decoder.push(token)?;
        to_stdout()(&text)
    }

    fn finish(&mut self) -> Result<()> {
        let rest = self.decoder.flush();
        to_stdout()(&(rest + "\n"))
    }
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
