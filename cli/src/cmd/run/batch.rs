//! `run --json` and `run --batch-file`: prompts computed together, their results whole and in the order of the prompts.

use super::{Run, check_fits, n_predict, prompt_tokens};
use crate::args::{Global, SamplingArgs};
use crate::cmd::tokenize::piece_json;
use crate::context::{self, Defaults};
use crate::error::{Error, Exit, Result};
use crate::generate::{Request, Text};
use crate::model::OpenModel;
use crate::output::{self, n_things, note};
use crate::session::{self, Session};
use crate::setup::Setup;
use crate::values::Seed;
use crate::{interrupt, sampling};
use llmrt_abi::DType;
use llmrt_engine::{Engine, Finish, Logits, Row, Sampler, Sequence, SequenceId, Step, TokenId};
use llmrt_tokenizer::{ChatTemplate, Tokenizer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

/// Most prompts that are computed at the same time: each has a KV cache of the context's length.
const MAX_TOGETHER: usize = 8;

/// Computes all prompts and writes a result per prompt.
pub fn run(
    global: &Global,
    args: &Run,
    model: OpenModel,
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
    prompts: &[String],
) -> Result<()> {
    let setup = Setup::new(global)?;
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    let encode = |(i, prompt): (usize, &String)| {
        let tokens = prompt_tokens(tokenizer, template, prompt, args, options.n_ctx)
            .map_err(|e| e.of_model(&model.name))
            .and_then(|tokens| check_fits(tokens.len(), options.n_ctx, model.n_ctx_train()).map(|()| tokens));
        let named = |e: Error| Error { message: format!("prompt {}: {}", i + 1, e.message), ..e };
        tokens.map_err(|e| if args.results.batch_file.is_some() { named(e) } else { e })
    };
    let tokens: Vec<Vec<TokenId>> = prompts.iter().enumerate().map(encode).collect::<Result<_>>()?;
    options.n_ctx = n_ctx_needed(args, &tokens).unwrap_or(options.n_ctx).min(options.n_ctx);
    options.max_seqs = prompts.len().clamp(1, MAX_TOGETHER);
    options.n_batch = options.n_batch.max(options.max_seqs);
    let mut session = Session::load(&setup, model, &args.loading, options)?;
    let n_vocab = session.engine.model().config.n_vocab;
    let (_, seed) = sampling::sampler(&args.sampling, n_vocab)?;
    let sampling = SamplingArgs { seed: Some(Seed(Some(seed))), ..args.sampling.clone() };

    let started = Instant::now();
    let mut batch = Batch {
        args,
        sampling,
        tokenizer,
        continues: template.is_none(),
        prompts,
        seed,
        load_s: session.load.as_secs_f64(),
        results: BTreeMap::new(),
        n_written: 0,
        n_prompt: 0,
        n_cached: 0,
        n_generated: 0,
    };
    let outcome = batch.compute(&mut session.engine, tokens);
    session.report_placement(setup.verbose);
    note(batch.summary(started.elapsed().as_secs_f64()));
    outcome
}

/// The context that the longest answer of a file needs with -n and without -c, since every prompt has its own.
fn n_ctx_needed(args: &Run, tokens: &[Vec<TokenId>]) -> Option<usize> {
    let is_open = args.results.batch_file.is_some() && args.context.ctx.is_none();
    let n_predict = n_predict(args).filter(|_| is_open)?;
    let longest = tokens.iter().map(Vec::len).max()?;
    Some(longest.saturating_add(n_predict).saturating_add(1))
}

/// Prompts on their way to results.
struct Batch<'a> {
    args: &'a Run,
    /// With one seed for all prompts: each result is that of its prompt alone.
    sampling: SamplingArgs,
    tokenizer: &'a Tokenizer,
    continues: bool,
    prompts: &'a [String],
    seed: u64,
    load_s: f64,
    /// Results that wait for one before them.
    results: BTreeMap<usize, Value>,
    n_written: usize,
    /// Tokens of the prompts that ended: computed or cached, cached, generated.
    n_prompt: usize,
    n_cached: usize,
    n_generated: usize,
}

/// A prompt that is computed.
struct Running<'a> {
    index: usize,
    id: SequenceId,
    sampler: Sampler,
    text: Text<'a>,
    n_prompt: usize,
    n_cached: usize,
    generated: Vec<TokenId>,
    /// Where each one's text begins.
    starts: Vec<usize>,
    logprobs: Vec<Value>,
    started: Instant,
    first_token: Option<Instant>,
}

impl Running<'_> {
    /// Leaves out the tokens that have no part in the text, since a stop string ended it before them.
    fn leave_out_stop(&mut self) {
        let end = self.text.shown().len();
        let n_kept = self.starts.iter().take_while(|&&start| start < end).count();
        self.generated.truncate(n_kept);
        self.logprobs.truncate(n_kept);
    }
}

impl<'a> Batch<'a> {
    /// Up to [`MAX_TOGETHER`] prompts share each step; one that ends makes room for the next.
    fn compute(&mut self, engine: &mut Engine, tokens: Vec<Vec<TokenId>>) -> Result<()> {
        let mut waiting = tokens.into_iter().enumerate();
        let mut running: Vec<Running<'a>> = Vec::new();
        loop {
            let n_free = MAX_TOGETHER - running.len();
            for (index, tokens) in waiting.by_ref().take(n_free) {
                running.push(self.start(engine, index, tokens)?);
            }
            if running.is_empty() {
                return Ok(());
            }
            let step = match session::step(engine, Logits::Last, usize::MAX) {
                Err(e) if e.exit == Exit::Interrupted => return self.cancel(engine, running, e),
                step => step?,
            };
            if step.n_tokens == 0 {
                let why = "the KV cache has no room for the prompts: raise the context size (-c)";
                return Err(Error::new(Exit::Failure, why));
            }
            self.advance(engine, &mut running, &step)?;
            if interrupt::is_requested() {
                return self.cancel(engine, running, Error::interrupted());
            }
        }
    }

    fn start(&self, engine: &mut Engine, index: usize, tokens: Vec<TokenId>) -> Result<Running<'a>> {
        let (sampler, _) = sampling::sampler(&self.sampling, engine.model().config.n_vocab)?;
        let n_prompt = tokens.len();
        let id = engine.add(tokens)?;
        let top_k = if self.args.results.logprobs.is_some() { None } else { sampler.required_top_k() };
        engine.set_required_top_k(id, top_k)?;
        let text = Text::new(&Request {
            tokenizer: self.tokenizer,
            n_predict: n_predict(self.args),
            stops: self.args.sampling.stop.clone(),
            continues: self.continues && !self.prompts[index].is_empty(),
            ignores_eog: self.args.sampling.ignore_eos,
            make_room: None,
        })?;
        Ok(Running {
            index,
            id,
            sampler,
            text,
            n_prompt,
            n_cached: 0,
            generated: Vec::new(),
            starts: Vec::new(),
            logprobs: Vec::new(),
            started: Instant::now(),
            first_token: None,
        })
    }

    /// Gives every prompt of the step its next token, and writes the results of those that end.
    fn advance(&mut self, engine: &mut Engine, running: &mut Vec<Running<'a>>, step: &Step) -> Result<()> {
        for (i, row) in step.rows.iter().enumerate() {
            let Some(at) = running.iter().position(|prompt| prompt.id == row.id) else { continue };
            if let Some(finish) = self.next_token(engine, &mut running[at], step.row(i))? {
                let prompt = running.remove(at);
                engine.remove(prompt.id)?;
                self.end(prompt, finish)?;
            }
        }
        Ok(())
    }

    fn next_token(
        &self,
        engine: &mut Engine,
        prompt: &mut Running<'a>,
        row: Row<'_>,
    ) -> Result<Option<Finish>> {
        let n_predict = n_predict(self.args);
        if prompt.first_token.is_none() {
            prompt.first_token = Some(Instant::now());
            prompt.n_cached = engine.sequence(prompt.id).map_or(0, Sequence::n_cached);
        }
        if n_predict == Some(0) {
            return Ok(Some(Finish::Length));
        }
        let history = engine.sequence(prompt.id).map_or(&[][..], |seq| seq.tokens());
        let has_room = history.len() < engine.n_ctx();
        let token = prompt.sampler.sample(row, history)?;
        if self.tokenizer.is_eog(token) && !self.args.sampling.ignore_eos {
            return Ok(Some(Finish::Eos));
        }
        prompt.generated.push(token);
        prompt.starts.push(prompt.text.n_decoded());
        if let (Some(n), Row::All(logits)) = (self.args.results.logprobs, row) {
            prompt.logprobs.push(self.logprobs(logits, token, n)?);
        }
        if let Some(stop) = prompt.text.push(token, &mut |_| Ok(()))? {
            return Ok(Some(Finish::Stop(stop)));
        }
        if has_room {
            engine.push(prompt.id, token)?;
        }
        let is_full = engine.sequence(prompt.id).is_none_or(|seq| seq.tokens().len() >= engine.n_ctx());
        let is_last = is_full || n_predict == Some(prompt.generated.len());
        Ok(is_last.then_some(Finish::Length))
    }

    /// Natural logarithms of the probabilities that the model gave, before any sampler changed them.
    fn logprobs(&self, logits: &[f32], token: TokenId, n: usize) -> Result<Value> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| f64::from(logit - max).exp()).sum();
        let entry = |id: TokenId| -> Result<Value> {
            let logprob = f64::from(logits[id as usize] - max) - sum.ln();
            Ok(json!({ "id": id, "token": piece_json(self.tokenizer, id)?, "logprob": logprob }))
        };
        let mut ids: Vec<TokenId> = (0..logits.len() as TokenId).collect();
        let by_logit =
            |&a: &TokenId, &b: &TokenId| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b));
        let n = n.min(ids.len());
        if n < ids.len() {
            ids.select_nth_unstable_by(n, by_logit);
            ids.truncate(n);
        }
        ids.sort_unstable_by(by_logit);
        let mut chosen = entry(token)?;
        chosen["top_logprobs"] = ids.into_iter().map(entry).collect::<Result<_>>()?;
        Ok(chosen)
    }

    /// Ctrl-C: what is running ends with the text that it has, and counts the tokens that were computed.
    fn cancel(&mut self, engine: &Engine, mut running: Vec<Running<'a>>, e: Error) -> Result<()> {
        running.sort_by_key(|prompt| prompt.index);
        for prompt in running.iter_mut().filter(|prompt| prompt.first_token.is_none()) {
            let sequence = engine.sequence(prompt.id);
            prompt.n_prompt = sequence.map_or(0, Sequence::n_computed).min(prompt.n_prompt);
            prompt.n_cached = sequence.map_or(0, Sequence::n_cached).min(prompt.n_prompt);
        }
        running.into_iter().try_for_each(|prompt| self.end(prompt, Finish::Cancelled))?;
        Err(e)
    }

    fn end(&mut self, mut prompt: Running<'a>, finish: Finish) -> Result<()> {
        prompt.text.finish(&finish, &mut |_| Ok(()))?;
        self.n_prompt += prompt.n_prompt;
        self.n_cached += prompt.n_cached;
        self.n_generated += prompt.generated.len();
        let has_no_text = finish == Finish::Cancelled && prompt.text.shown().is_empty();
        self.results.insert(prompt.index, self.result(prompt, &finish));
        while let Some(result) = self.results.remove(&self.n_written) {
            match self.args.results.json {
                true => output::json_line(&result)?,
                false if has_no_text => {}
                false => output::model_text(&self.answer(result["text"].as_str().unwrap_or_default()))?,
            }
            self.n_written += 1;
        }
        Ok(())
    }

    /// The next answer under a line with the number of its prompt, as `tail` has one of each file.
    fn answer(&self, text: &str) -> String {
        let gap = if self.n_written > 0 { "\n" } else { "" };
        format!("{gap}==> {} <==\n{text}\n", self.n_written + 1)
    }

    /// The last line: prompt and generated tokens apart, and how many of both were computed in a second.
    fn summary(&self, seconds: f64) -> String {
        let n_computed = self.n_prompt - self.n_cached + self.n_generated;
        let cached =
            if self.n_cached > 0 { format!(" ({} of them cached)", self.n_cached) } else { String::new() };
        format!(
            "load {:.2} s, {} in {seconds:.2} s: {}{cached}, {}, {:.1} tok/s, seed {}",
            self.load_s,
            n_things(self.n_written, "prompt"),
            n_things(self.n_prompt, "prompt token"),
            n_things(self.n_generated, "generated token"),
            n_computed as f64 / seconds,
            self.seed
        )
    }

    fn result(&self, mut prompt: Running<'a>, finish: &Finish) -> Value {
        let now = Instant::now();
        let first_token = prompt.first_token.unwrap_or(now);
        let (prompt_s, generate_s) =
            ((first_token - prompt.started).as_secs_f64(), (now - first_token).as_secs_f64());
        let n_decoded = prompt.generated.len().saturating_sub(1);
        if matches!(finish, Finish::Stop(_)) {
            prompt.leave_out_stop();
        }
        let per_s = |n: usize, s: f64| (n > 0 && s > 0.0).then(|| n as f64 / s);
        let (finish_reason, stop) = match finish {
            Finish::Eos => ("stop", None),
            Finish::Stop(text) => ("stop", Some(text)),
            Finish::Length => ("length", None),
            Finish::Cancelled => ("cancelled", None),
        };
        let mut result = json!({
            "text": prompt.text.shown(), "tokens": prompt.generated, "finish_reason": finish_reason,
            "stop": stop, "n_prompt": prompt.n_prompt,
            "n_cached": prompt.n_cached, "n_generated": prompt.generated.len(),
            "seed": self.seed,
            "timings": {
                "load_s": self.load_s, "prompt_s": prompt_s, "prompt_tok_s": per_s(prompt.n_prompt - prompt.n_cached, prompt_s),
                "generate_s": generate_s, "generate_tok_s": per_s(n_decoded, generate_s),
            },
        });
        if self.args.results.logprobs.is_some() {
            result["logprobs"] = Value::Array(prompt.logprobs);
        }
        if self.args.results.batch_file.is_some() {
            result["index"] = json!(prompt.index);
            result["prompt"] = json!(self.prompts[prompt.index]);
        }
        result
    }
}
