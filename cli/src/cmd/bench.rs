//! `llmrt bench`: prompt and decode speed on random tokens.

use crate::args::{Bench, Global};
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::generate::next_logits;
use crate::model::{self, OpenModel};
use crate::output::{self, bytes, count};
use crate::session::Session;
use crate::setup::Setup;
use llmrt_abi::DType;
use llmrt_engine::{Engine, TokenId};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Measures and prints a table or JSON.
pub fn bench(global: &Global, args: &Bench) -> Result<()> {
    check_flags(args)?;
    let model = OpenModel::open(args.model.as_deref(), &model::open_options(&args.loading))?;
    let about = About::of(&model);
    let setup = Setup::new(global)?;
    let n_needed = args.n_prompt.max(args.n_gen + 1);
    let defaults = Defaults { n_ctx: Some(n_needed), kv_type: DType::F16 };
    let options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.strict)?;
    if options.n_ctx < n_needed {
        let n_ctx = options.n_ctx;
        return Err(Error::usage(format!(
            "--ctx {n_ctx}: the test needs {n_needed} tokens; raise it, or lower -p and -n"
        )));
    }
    let kv_type = options.k_type;
    let mut session = Session::load(&setup, model, &args.loading, options)?;

    let mut tokens = Tokens::new(session.engine.model().config.n_vocab);
    let engine = &mut session.engine;
    if args.n_prompt > 0 {
        measure_prompt(engine, &mut tokens, args.n_prompt)?; // warm-up
    }
    measure_decode(engine, &mut tokens, args.n_gen.min(8))?;
    let mut prompt = Speeds::default();
    let mut decode = Speeds::default();
    for _ in 0..args.repetitions {
        if args.n_prompt > 0 {
            prompt.push(args.n_prompt, measure_prompt(engine, &mut tokens, args.n_prompt)?);
        }
        if args.n_gen > 0 {
            decode.push(args.n_gen, measure_decode(engine, &mut tokens, args.n_gen)?);
        }
    }
    session.tell_placement(setup.verbose);

    let devices = setup.device_names();
    let n_threads = setup.host.threads().n_threads();
    if args.json {
        let result = json!({
            "model": about.name, "model_bytes": about.n_bytes, "n_params": about.n_params,
            "devices": devices, "threads": n_threads,
            "kv_type": kv_type.name(), "load_s": session.load.as_secs_f64(),
            "n_prompt": args.n_prompt, "n_gen": args.n_gen, "repetitions": args.repetitions,
            "prompt_tok_s": prompt.mean_json(), "prompt_tok_s_sd": prompt.sd_json(),
            "decode_tok_s": decode.mean_json(), "decode_tok_s_sd": decode.sd_json(),
        });
        return Ok(output::json(&result)?);
    }
    let row = |test: String, speeds: &Speeds| {
        let cells = [about.name.clone(), bytes(about.n_bytes), count(about.n_params), devices.join(",")];
        cells.into_iter().chain([n_threads.to_string(), test, speeds.shown()]).collect()
    };
    let mut rows: Vec<Vec<String>> = Vec::new();
    if args.n_prompt > 0 {
        rows.push(row(format!("prompt {}", args.n_prompt), &prompt));
    }
    if args.n_gen > 0 {
        rows.push(row(format!("decode {}", args.n_gen), &decode));
    }
    Ok(output::table(&["model", ">size", ">params", "devices", ">threads", "test", ">tok/s"], &rows)?)
}

fn check_flags(args: &Bench) -> Result<()> {
    const MOST: usize = 1 << 24;
    if args.n_prompt == 0 && args.n_gen == 0 {
        return Err(Error::usage("-p 0 -n 0: there is nothing to measure; expected one of them above 0"));
    }
    if args.repetitions == 0 {
        return Err(Error::usage("-r 0: expected 1 or more repetitions"));
    }
    if args.n_prompt > MOST || args.n_gen > MOST {
        return Err(Error::usage(format!(
            "-p {} -n {}: expected at most {MOST} tokens",
            args.n_prompt, args.n_gen
        )));
    }
    Ok(())
}

/// Time for a prompt of `n` random tokens.
fn measure_prompt(engine: &mut Engine, tokens: &mut Tokens, n: usize) -> Result<Duration> {
    let id = engine.add(tokens.by_ref().take(n).collect())?;
    let started = Instant::now();
    next_logits(engine, id, usize::MAX)?.ok_or_else(Error::interrupted)?;
    let time = started.elapsed();
    engine.remove(id)?;
    Ok(time)
}

/// Time for `n` steps of one random token each, after a context of one token.
fn measure_decode(engine: &mut Engine, tokens: &mut Tokens, n: usize) -> Result<Duration> {
    let id = engine.add(tokens.by_ref().take(1).collect())?;
    next_logits(engine, id, usize::MAX)?.ok_or_else(Error::interrupted)?;
    let started = Instant::now();
    for token in tokens.by_ref().take(n) {
        engine.push(id, token)?;
        next_logits(engine, id, usize::MAX)?.ok_or_else(Error::interrupted)?;
        if crate::interrupt::is_asked() {
            return Err(Error::interrupted());
        }
    }
    let time = started.elapsed();
    engine.remove(id)?;
    Ok(time)
}

/// What is measured.
struct About {
    name: String,
    n_bytes: u64,
    n_params: u64,
}

impl About {
    fn of(model: &OpenModel) -> About {
        let name = model.metadata().str("general.name").map_or_else(|| model.name.clone(), String::from);
        let tensors = &model.files.model;
        About {
            name,
            n_bytes: tensors.nbytes(),
            n_params: tensors.tensors.iter().map(|t| t.n_elements()).sum(),
        }
    }
}

/// Random token ids, the same in every run: the upper half of a 64-bit linear congruential generator (Knuth's
/// multiplier).
struct Tokens {
    state: u64,
    n_vocab: u64,
}

impl Tokens {
    fn new(n_vocab: u64) -> Tokens {
        Tokens { state: 42, n_vocab: n_vocab.max(1) }
    }
}

impl Iterator for Tokens {
    type Item = TokenId;

    fn next(&mut self) -> Option<TokenId> {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(((self.state >> 32) % self.n_vocab) as TokenId)
    }
}

/// Tokens per second of each repetition.
#[derive(Default)]
struct Speeds(Vec<f64>);

impl Speeds {
    fn push(&mut self, n_tokens: usize, time: Duration) {
        self.0.push(n_tokens as f64 / time.as_secs_f64().max(1e-9));
    }

    fn mean(&self) -> Option<f64> {
        (!self.0.is_empty()).then(|| self.0.iter().sum::<f64>() / self.0.len() as f64)
    }

    /// Standard deviation of the sample; 0 for a single one.
    fn sd(&self) -> Option<f64> {
        let mean = self.mean()?;
        let squares: f64 = self.0.iter().map(|x| (x - mean).powi(2)).sum();
        Some((squares / (self.0.len() as f64 - 1.0).max(1.0)).sqrt())
    }

    fn mean_json(&self) -> Value {
        self.mean().map_or(Value::Null, Value::from)
    }

    fn sd_json(&self) -> Value {
        self.sd().map_or(Value::Null, Value::from)
    }

    fn shown(&self) -> String {
        format!("{:.2} ± {:.2}", self.mean().unwrap_or(0.0), self.sd().unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_deviation_are_those_of_the_sample() {
        assert_eq!(Speeds(vec![1.0, 2.0, 3.0]).shown(), "2.00 ± 1.00");
        assert_eq!(Speeds(vec![5.0]).shown(), "5.00 ± 0.00");
        assert_eq!(Speeds::default().mean(), None);
    }

    #[test]
    fn random_tokens_are_the_same_in_every_run_and_in_the_vocabulary() {
        let ids: Vec<_> = Tokens::new(10).take(1000).collect();
        assert!(ids.iter().all(|&id| id < 10) && (0..10).all(|id| ids.contains(&id)));
        assert_eq!(ids, Tokens::new(10).take(1000).collect::<Vec<_>>());
    }
}
