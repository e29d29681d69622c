//! `run --json` and `run --batch-file`: prompts computed together, their results whole and in the order of the prompts.

use super::{Run, check_fits, n_predict, prompt_tokens};
use crate::args::Global;
use crate::cmd::tokenize::piece_json;
use crate::context::{self, Defaults};
use crate::error::{Error, Exit, Result};
use crate::model::OpenModel;
use crate::output::{self, n_things, note};
use crate::session::{Core, Session};
use crate::setup::Setup;
use crate::speculation::{self, draft_line};
use crate::{interrupt, sampling, session};
use llmrt_abi::DType;
use llmrt_engine::core::Usage;
use llmrt_engine::output::{CompletionOutput, SampledToken};
use llmrt_engine::{Decoding, EngineEvent, Finish, Request, RequestId, RequestOutput, TokenId};
use llmrt_tokenizer::{ChatTemplate, Tokenizer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Most prompts that are computed at the same time, without --parallel.
const DEFAULT_PARALLEL: usize = 8;

/// Computes all prompts and writes a result per prompt.
pub fn run(
    global: &Global,
    args: &Run,
    model: OpenModel,
    tokenizer: &Arc<Tokenizer>,
    template: Option<&ChatTemplate>,
    prompts: &[String],
) -> Result<()> {
    let setup = Setup::new(global)?;
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    let encode = |prompt: &String| {
        prompt_tokens(tokenizer, template, prompt, args, options.n_ctx)
            .map_err(|e| e.of_model(&model.name))
            .and_then(|tokens| check_fits(tokens.len(), options.n_ctx, model.n_ctx_train()).map(|()| tokens))
    };
    let mut tokens: Vec<Result<Vec<TokenId>>> = Vec::new();
    for prompt in prompts {
        match encode(prompt) {
            // Of a file one prompt that cannot run leaves the others their answers.
            Err(e) if args.results.batch_file.is_none() || e.exit == Exit::Interrupted => return Err(e),
            encoded => tokens.push(encoded),
        }
    }
    options.n_ctx = n_ctx_needed(args, &tokens).unwrap_or(options.n_ctx).min(options.n_ctx);
    let parallel = args.results.parallel.unwrap_or(DEFAULT_PARALLEL);
    if parallel == 0 {
        return Err(Error::usage("--parallel 0: expected 1 or more prompts"));
    }
    options.max_seqs = prompts.len().clamp(1, parallel);
    options.max_drafts = speculation::max_drafts(&args.speculation);
    options.n_batch = options.n_batch.max(options.max_seqs);
    args.requests.apply(&mut options, &setup, &model)?;
    let mut session = Session::load(&setup, model, &args.loading, options, Some(tokenizer.clone()))?
        .for_text()?
        .speculating(&setup, &args.speculation, &args.loading)?;
    let n_vocab = session.model().config.n_vocab;
    let (decoding, seed) = sampling::decoding(&args.sampling, n_vocab)?;

    let started = Instant::now();
    let mut batch = Batch {
        args,
        decoding,
        tokenizer,
        continues: template.is_none(),
        prompts,
        seed,
        load_s: session.load.as_secs_f64(),
        parallel,
        running: Vec::new(),
        failed: None,
        results: BTreeMap::new(),
        n_written: 0,
        n_prompt: 0,
        n_cached: 0,
        n_generated: 0,
    };
    let outcome = batch.compute(&mut session.core, tokens);
    session.core.draft_use().map(draft_line).iter().for_each(note);
    session.report_placement(setup.verbose);
    note(batch.summary(started.elapsed().as_secs_f64()));
    outcome
}

/// The context that the longest answer of a file needs with -n and without -c, since every prompt has its own.
fn n_ctx_needed(args: &Run, tokens: &[Result<Vec<TokenId>>]) -> Option<usize> {
    let is_open = args.results.batch_file.is_some() && args.context.ctx.is_none();
    let n_predict = n_predict(args).filter(|_| is_open)?;
    let longest = tokens.iter().flatten().map(Vec::len).max()?;
    Some(longest.saturating_add(n_predict).saturating_add(1))
}

/// Prompts on their way to results.
struct Batch<'a> {
    args: &'a Run,
    /// One for all prompts: each result is that of its prompt alone.
    decoding: Decoding,
    tokenizer: &'a Tokenizer,
    continues: bool,
    prompts: &'a [String],
    seed: u64,
    load_s: f64,
    /// Most prompts that are computed at the same time.
    parallel: usize,
    running: Vec<Running>,
    /// The first error of a prompt.
    failed: Option<Error>,
    /// Results that wait for one before them.
    results: BTreeMap<usize, Value>,
    n_written: usize,
    /// Tokens of the prompts that ended: computed or cached, cached, generated.
    n_prompt: usize,
    n_cached: usize,
    n_generated: usize,
}

/// A prompt that is computed.
struct Running {
    index: usize,
    id: RequestId,
    n_generated: usize,
    logprobs: Vec<Value>,
    started: Instant,
    first_token: Option<Instant>,
}

impl Batch<'_> {
    /// Several prompts share each step; one that ends makes room for the next.
    fn compute(&mut self, core: &mut Core, tokens: Vec<Result<Vec<TokenId>>>) -> Result<()> {
        let mut waiting = tokens.into_iter().enumerate();
        loop {
            while self.running.len() < self.parallel {
                match waiting.next() {
                    Some((index, Ok(tokens))) => self.start(core, index, tokens)?,
                    Some((index, Err(e))) => self.refuse(index, e)?,
                    None => break,
                }
            }
            if self.running.is_empty() {
                return self.failed.take().map_or(Ok(()), Err);
            }
            let events = match session::step(core) {
                Err(e) if e.exit == Exit::Interrupted => return self.cancel(core, e),
                events => events?,
            };
            events.into_iter().try_for_each(|event| self.take(event))?;
            if interrupt::is_requested() {
                return self.cancel(core, Error::interrupted());
            }
        }
    }

    fn start(&mut self, core: &mut Core, index: usize, tokens: Vec<TokenId>) -> Result<()> {
        let sampling = &self.args.sampling;
        let id = core.add(Request {
            decoding: self.decoding.clone(),
            max_tokens: n_predict(self.args),
            stop: sampling.stop.clone(),
            ignore_eos: sampling.ignore_eos,
            continues: self.continues && !self.prompts[index].is_empty(),
            logprobs: self.args.results.logprobs,
            ..Request::greedy(tokens)
        })?;
        let (n_generated, logprobs) = Default::default();
        let started = Instant::now();
        self.running.push(Running { index, id, n_generated, logprobs, started, first_token: None });
        Ok(())
    }

    fn take(&mut self, event: EngineEvent) -> Result<()> {
        match event {
            EngineEvent::Token { request, token, .. } => {
                let logprobs = token.logprob.map(|_| self.logprobs(&token)).transpose()?;
                if let Some(prompt) = self.running.iter_mut().find(|prompt| prompt.id == request) {
                    prompt.first_token.get_or_insert_with(Instant::now);
                    prompt.n_generated += 1;
                    prompt.logprobs.extend(logprobs.filter(|_| self.args.results.logprobs.is_some()));
                }
            }
            EngineEvent::Finished(output) => self.end(output)?,
            EngineEvent::Failed { request, error } => self.fail(request, Error::from(error))?,
            EngineEvent::TextEnded { .. } | EngineEvent::ContextFull { .. } | EngineEvent::Logits { .. } => {}
        }
        Ok(())
    }

    /// Natural logarithms of the probabilities that the model gave, before any sampler changed them.
    fn logprobs(&self, token: &SampledToken) -> Result<Value> {
        let entry = |id: TokenId, logprob: f64| -> Result<Value> {
            Ok(json!({ "id": id, "token": piece_json(self.tokenizer, id)?, "logprob": logprob }))
        };
        let mut chosen = entry(token.token, token.logprob.unwrap_or_default())?;
        let top = token.top_logprobs.iter().map(|top| entry(top.token, top.logprob));
        chosen["top_logprobs"] = top.collect::<Result<_>>()?;
        Ok(chosen)
    }

    /// Ctrl-C: what is running ends with the text that it has, and counts the tokens that were computed.
    fn cancel(&mut self, core: &mut Core, e: Error) -> Result<()> {
        let mut ids: Vec<(usize, RequestId)> = self.running.iter().map(|p| (p.index, p.id)).collect();
        ids.sort();
        for (_, id) in ids {
            let mut output = core.abort(id)?;
            output.usage.n_prompt = output.usage.n_computed;
            self.end(output)?;
        }
        Err(e)
    }

    /// A prompt that has no answer; the others go on.
    fn fail(&mut self, request: RequestId, error: Error) -> Result<()> {
        let Some(at) = self.running.iter().position(|prompt| prompt.id == request) else { return Ok(()) };
        let index = self.running.remove(at).index;
        self.refuse(index, error)
    }

    /// The result of a prompt that has no answer.
    fn refuse(&mut self, index: usize, error: Error) -> Result<()> {
        let mut result = json!({ "error": error.message });
        self.name(&mut result, index);
        let message = format!("prompt {}: {}", index + 1, error.message);
        note(&message);
        self.failed.get_or_insert(Error { message, ..error });
        self.results.insert(index, result);
        self.write()
    }

    fn end(&mut self, output: RequestOutput) -> Result<()> {
        let Some(at) = self.running.iter().position(|prompt| prompt.id == output.request) else {
            return Ok(());
        };
        let prompt = self.running.remove(at);
        self.n_prompt += output.usage.n_prompt;
        self.n_cached += output.usage.n_cached;
        self.n_generated += prompt.n_generated;
        for text in output.outputs {
            self.results.insert(prompt.index, self.result(&prompt, text, output.usage));
        }
        self.write()
    }

    /// Writes the results that do not wait for one before them.
    fn write(&mut self) -> Result<()> {
        while let Some(result) = self.results.remove(&self.n_written) {
            let text = result["text"].as_str().unwrap_or_default();
            let has_no_text = text.is_empty() && result["finish_reason"] == "cancelled";
            match self.args.results.json {
                true => output::json_line(&result)?,
                false if has_no_text => {}
                false => output::model_text(&self.answer(text))?,
            }
            self.n_written += 1;
        }
        Ok(())
    }

    /// Adds which prompt it is, where there are several.
    fn name(&self, result: &mut Value, index: usize) {
        if self.args.results.batch_file.is_some() {
            result["index"] = json!(index);
            result["prompt"] = json!(self.prompts[index]);
        }
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

    fn result(&self, prompt: &Running, text: CompletionOutput, usage: Usage) -> Value {
        let now = Instant::now();
        let first_token = prompt.first_token.unwrap_or(now);
        let (prompt_s, generate_s) =
            ((first_token - prompt.started).as_secs_f64(), (now - first_token).as_secs_f64());
        let n_decoded = prompt.n_generated.saturating_sub(1);
        let per_s = |n: usize, s: f64| (n > 0 && s > 0.0).then(|| n as f64 / s);
        let Usage { n_prompt, n_cached, .. } = usage;
        let n_generated = text.tokens.len();
        let (finish_reason, stop) = match text.finish {
            Finish::Eos | Finish::StopToken(_) => ("stop", None),
            Finish::Stop(text) => ("stop", Some(text)),
            Finish::Length => ("length", None),
            Finish::Cancelled => ("cancelled", None),
        };
        let mut result = json!({
            "text": text.text, "tokens": text.tokens, "finish_reason": finish_reason, "stop": stop,
            "n_prompt": n_prompt, "n_cached": n_cached, "n_generated": n_generated, "seed": self.seed,
            "timings": {
                "load_s": self.load_s, "prompt_s": prompt_s, "prompt_tok_s": per_s(n_prompt - n_cached, prompt_s),
                "generate_s": generate_s, "generate_tok_s": per_s(n_decoded, generate_s),
            },
        });
        if self.args.results.logprobs.is_some() {
            result["logprobs"] = Value::Array(prompt.logprobs.iter().take(n_generated).cloned().collect());
        }
        self.name(&mut result, prompt.index);
        result
    }
}
