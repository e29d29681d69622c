//! `llmrt perplexity`: how well a model predicts a text, and how far its predictions are from another model's.

mod args;
mod divergence;
mod windows;

pub use args::Perplexity;

use crate::args::Global;
use crate::cmd::Command;
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::interrupt::UNTIL_INTERRUPTED;
use crate::model::{self, OpenModel};
use crate::output;
use crate::session::Session;
use crate::setup::Setup;
use crate::{interrupt, text};
use divergence::{Comparison, Mean, log_probabilities};
use llmrt_abi::DType;
use llmrt_engine::TokenId;
use llmrt_tokenizer::EncodeOptions;
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::path::Path;
use windows::{Windows, predictions};

impl Command for Perplexity {
    const NAME: &'static str = "perplexity";

    fn run(&self, global: &Global) -> Result<()> {
        perplexity(global, self)
    }
}

/// Tokens of a window without -c: the length that published numbers use.
const WINDOW: usize = 512;

/// Measures and prints.
fn perplexity(global: &Global, args: &Perplexity) -> Result<()> {
    let setup = Setup::new(global)?;
    let text = text::of_file(&args.file)?;
    let path = args.model.as_deref().or(args.model_file.as_deref());
    let model = OpenModel::open(path, &model::open_options(&args.loading))?;
    let tokenizer = model.tokenizer()?;
    let options = EncodeOptions { add_special: true, parse_special: true };
    let tokens = tokenizer.encode_within(&text, options, UNTIL_INTERRUPTED)?;
    let n_ctx = args.context.ctx.filter(|&n| n > 0);
    let n_window = n_ctx.unwrap_or_else(|| model.n_ctx_train().map_or(WINDOW, |n| n.min(WINDOW)));
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let windows = Windows::new(&tokens, n_window, bos, args.chunks)
        .map_err(|e| Error::usage(format!("{}: {e}", args.file.display())))?;

    let mut session = load(&setup, model, args, n_window)?;
    let mut base =
        args.kl.as_deref().map(|path| load_base(&setup, path, args, n_window, &session)).transpose()?;
    let mut result = Outcome::default();
    for (i, window) in windows.iter().enumerate() {
        let rows = predictions(&mut session.core, &window)?;
        let base_rows = base.as_mut().map(|base| predictions(&mut base.core, &window)).transpose()?;
        result.add(&rows, base_rows.as_deref(), window.targets());
        report_progress(i + 1, windows.n(), &result);
        if interrupt::is_requested() {
            return Err(Error::interrupted());
        }
    }
    session.report_placement(setup.verbose);
    match args.json {
        true => Ok(output::json(&result.json(windows.n()))?),
        false => Ok(output::print(result.text(windows.n()))?),
    }
}

fn load(setup: &Setup, model: OpenModel, args: &Perplexity, n_window: usize) -> Result<Session> {
    let defaults = Defaults { n_ctx: Some(n_window), kv_type: DType::F16 };
    let mut flags = args.context.clone();
    flags.ctx = Some(n_window);
    let options = context::engine_options(&flags, model.n_ctx_train(), defaults, setup.placing())?;
    Session::load(setup, model, &args.loading, options, None)
}

/// The base, which must have the same vocabulary.
fn load_base(
    setup: &Setup,
    path: &Path,
    args: &Perplexity,
    n_window: usize,
    session: &Session,
) -> Result<Session> {
    let model = OpenModel::open(Some(path), &model::open_options(&args.loading))?;
    let base = load(setup, model, args, n_window)?;
    let n = |session: &Session| session.model().config.n_vocab;
    if n(&base) != n(session) {
        let (found, expected) = (n(&base), n(session));
        return Err(Error::file(
            path,
            format_args!(
                "has {found} tokens, the model has {expected}: predictions of the same vocabulary are compared"
            ),
        ));
    }
    Ok(base)
}

/// On a terminal the perplexity so far.
fn report_progress(n_done: usize, n: usize, result: &Outcome) {
    if std::io::stderr().is_terminal() {
        let end = if n_done == n { "\n" } else { "\r" };
        // A closed stderr is no failure.
        let _ = write!(
            std::io::stderr(),
            "{n_done}/{n} windows, perplexity {:.4}{end}",
            result.loss.mean().exp()
        );
    }
}

/// What came of all windows.
#[derive(Default)]
struct Outcome {
    /// Negative logarithms of the probability of each right token.
    loss: Mean,
    comparison: Option<Comparison>,
}

impl Outcome {
    /// Adds the rows of logits of a window, whose right tokens are `targets`.
    fn add(&mut self, rows: &[Vec<f32>], base: Option<&[Vec<f32>]>, targets: &[TokenId]) {
        for (i, (row, &target)) in rows.iter().zip(targets).enumerate() {
            let log_p = log_probabilities(row);
            self.loss.add(-log_p[target as usize]);
            if let Some(base) = base.and_then(|base| base.get(i)) {
                let comparison = self.comparison.get_or_insert_default();
                comparison.add(&log_p, &log_probabilities(base), target as usize);
            }
        }
    }

    /// e^loss, and its standard error.
    fn perplexity(loss: &Mean) -> (f64, f64) {
        let value = loss.mean().exp();
        (value, value * loss.error())
    }

    fn json(&self, n_windows: usize) -> serde_json::Value {
        let (perplexity, error) = Outcome::perplexity(&self.loss);
        let mut result = json!({
            "perplexity": perplexity, "perplexity_error": error, "windows": n_windows, "predictions": self.loss.n(),
        });
        if let Some(c) = &self.comparison {
            let k = c.kld();
            let of_kl = json!({
                "base_perplexity": Outcome::perplexity(&c.base_loss).0,
                "mean_kld": k.mean, "mean_kld_error": k.error, "median_kld": k.median, "kld_99": k.of_99, "max_kld": k.max,
                "same_top": c.same_top.mean(), "mean_dp": c.dp.mean(), "rms_dp": c.dp.rms(),
            });
            if let (Some(to), serde_json::Value::Object(from)) = (result.as_object_mut(), of_kl) {
                to.extend(from);
            }
        }
        result
    }

    fn text(&self, n_windows: usize) -> String {
        let (perplexity, error) = Outcome::perplexity(&self.loss);
        let n = self.loss.n();
        let mut text =
            format!("perplexity {perplexity:.4} ± {error:.4} ({n} predictions in {n_windows} windows)\n");
        if let Some(c) = &self.comparison {
            let (base, base_error) = Outcome::perplexity(&c.base_loss);
            let k = c.kld();
            text += &format!("base       {base:.4} ± {base_error:.4}\n");
            text += &format!(
                "KLD        mean {:.6} ± {:.6}, median {:.6}, 99 % {:.6}, most {:.6}\n",
                k.mean, k.error, k.median, k.of_99, k.max
            );
            text += &format!(
                "same top   {:.3} ± {:.3} %\n",
                100.0 * c.same_top.mean(),
                100.0 * c.same_top.error()
            );
            text +=
                &format!("Δp         mean {:.3} %, RMS {:.3} %\n", 100.0 * c.dp.mean(), 100.0 * c.dp.rms());
        }
        text
    }
}
