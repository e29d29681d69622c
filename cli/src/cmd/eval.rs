//! `llmrt eval`: logits of given tokens. Needs no tokenizer.

use crate::args::{ContextArgs, Global, ModelArgs};
use crate::cmd::Command;
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::model::{self, OpenModel};
use crate::new_file::NewFile;
use crate::output::{self, n_things, note};
use crate::session::{self, Core, Session};
use crate::setup::Setup;
use crate::values;
use crate::{interrupt, text, tokens};
use clap::{Args, ValueEnum};
use llmrt_abi::DType;
use llmrt_engine::{DeviceRunner, EngineEvent, Request, TokenId};
use llmrt_models::StepOutput;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Write raw logits for given tokens.
///
/// Logits are little-endian f32, one row of n_vocab values per token. The model's tokenizer is not needed, so models
/// work whose tokenizer llmrt does not have.
#[derive(Args, Debug)]
#[command(after_long_help = EVAL_HELP)]
pub struct Eval {
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE")]
    pub model: PathBuf,
    /// Token ids, separated by spaces or commas.
    #[arg(long, value_name = "IDS", required_unless_present = "tokens_file", conflicts_with = "tokens_file")]
    pub tokens: Option<String>,
    /// File with token ids.
    #[arg(long, value_name = "FILE")]
    pub tokens_file: Option<PathBuf>,
    /// Where the logits go [default: stdout shows the likeliest tokens instead].
    #[arg(long, value_name = "FILE")]
    pub logits_out: Option<PathBuf>,
    /// Which rows: every position, or the last.
    #[arg(long, value_enum, default_value_t, value_name = "WHICH")]
    pub logits: LogitsArg,
    /// Feed the tokens in chunks of these sizes, repeating the last: `1`, `5,16,3`. Models whose tokens see those after
    /// them compute all in one step.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = values::whole)]
    #[arg(allow_negative_numbers = true)]
    pub chunks: Vec<usize>,
    /// Write the result of every op into this folder, one file of f32 values each, named by node.
    #[arg(long, value_name = "DIR")]
    pub per_op: Option<PathBuf>,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub loading: ModelArgs,
}

#[derive(ValueEnum, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogitsArg {
    /// Every position.
    All,
    /// The last position.
    #[default]
    Last,
}

const EVAL_HELP: &str = "\
The output has no header: the first row comes first, n_vocab values of 4 bytes per row. It appears when all is \
computed. --per-op also writes index.tsv: file, node, and dims (innermost first) of every result.

Example:
  llmrt eval -m model.gguf --tokens \"1 15043 3186\" --logits all --logits-out logits.f32";

impl Command for Eval {
    const NAME: &'static str = "eval";

    fn run(&self, global: &Global) -> Result<()> {
        eval(global, self)
    }
}

/// Likeliest tokens, or numbers of models without logits, shown per row without --logits-out.
const N_SHOWN: usize = 5;

/// Runs tokens through the model and writes the logits of the next token.
fn eval(global: &Global, args: &Eval) -> Result<()> {
    let (ids, source) = given_tokens(args)?;
    if ids.is_empty() {
        return Err(Error::usage(format!("{source}: there are no token ids: expected at least one")));
    }
    if args.chunks.contains(&0) {
        return Err(Error::usage("--chunks: a size is 0: expected 1 or more tokens"));
    }
    let model = OpenModel::open(Some(&args.model), &model::open_options(&args.loading))?;
    let setup = Setup::new(global)?;
    let defaults = Defaults { n_ctx: Some(ids.len()), kv_type: DType::F32 };
    let mut options = context::engine_options(&args.context, model.n_ctx_train(), defaults, setup.placing())?;
    if ids.len() > options.n_ctx {
        let (n, n_ctx) = (ids.len(), options.n_ctx);
        return Err(Error::usage(format!(
            "{source}: {n} tokens do not fit into a context of {n_ctx}: raise -c"
        )));
    }
    let is_whole = args.per_op.is_some() || !is_causal(&model)?;
    if is_whole && !args.chunks.is_empty() && args.per_op.is_none() {
        note(
            "--chunks has no effect: tokens of this model see those after them, so all are computed in one step",
        );
    }
    let largest = if is_whole { Some(ids.len()) } else { args.chunks.iter().copied().max() };
    options.n_batch = options.n_batch.max(largest.unwrap_or(0).min(options.n_ctx));

    options.max_prompt_logits = options.n_batch;
    let mut session = Session::load(&setup, model, &args.loading, options, None)?;
    tokens::check(&ids, session.model().config.n_vocab, &source)?;
    if let Some(folder) = &args.per_op {
        write_ops(session.core.runner_mut(), &ids, folder)?;
    }
    let started = Instant::now();
    match &args.logits_out {
        Some(path) => {
            let mut file = NewFile::create(path)?;
            rows(&mut session.core, &ids, args, &mut |_, row| {
                let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
                file.out().write_all(&bytes).map_err(|e| Error::unwritable(path, &e))
            })?;
            file.finish()?;
        }
        None if session.model().spec().output() == StepOutput::Logits => {
            rows(&mut session.core, &ids, args, &mut show_row)?
        }
        None => rows(&mut session.core, &ids, args, &mut show_numbers)?,
    }
    session.report_placement(setup.verbose);
    let (n, time) = (ids.len(), started.elapsed().as_secs_f64());
    note(format_args!(
        "load {:.2} s, {} at {:.1} tok/s",
        session.load.as_secs_f64(),
        n_things(n, "token"),
        n as f64 / time
    ));
    Ok(())
}

/// Whether tokens see those before them alone, so that they can be computed in chunks.
fn is_causal(model: &OpenModel) -> Result<bool> {
    let built = model.build()?;
    Ok(built.spec().is_causal)
}

/// The ids, and where they came from.
fn given_tokens(args: &Eval) -> Result<(Vec<TokenId>, String)> {
    let (text, source) = match (&args.tokens, &args.tokens_file) {
        (Some(text), _) => (text.clone(), "--tokens".to_string()),
        (None, Some(path)) => (text::of_file(path)?, path.display().to_string()),
        (None, None) => return Err(Error::usage("there are no tokens: give --tokens or --tokens-file")),
    };
    Ok((tokens::parse(&text, &source)?, source))
}

/// Feeds the tokens in chunks and passes on the requested rows, in order, with their positions.
fn rows(
    core: &mut Core,
    ids: &[TokenId],
    args: &Eval,
    take: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
) -> Result<()> {
    let prompt_logits = match args.logits {
        LogitsArg::All => Some(0),
        LogitsArg::Last => Some(ids.len() - 1),
    };
    // Encoder and decoder get the same tokens.
    let encoder_tokens = if core.has_encoder() { ids.into() } else { [].into() };
    let request = Request { prompt_logits, max_tokens: Some(0), ..Request::greedy(ids.to_vec()) };
    let id = core.add(Request { encoder_tokens, ..request })?;
    let is_causal = core.runner().model().spec().is_causal;
    let mut sizes = args.chunks.iter().copied().filter(|_| is_causal);
    let (n_batch, mut size, mut end) = (core.scheduler().config().max_num_batched_tokens, usize::MAX, 0);
    while let Some((_, n_done)) = core.progress(id) {
        if n_done >= end {
            size = sizes.next().unwrap_or(size);
            end = n_done.saturating_add(size);
        }
        // A chunk may be larger than a step.
        core.set_max_num_batched_tokens((end - n_done).min(n_batch))?;
        for event in session::step(core)? {
            match event {
                EngineEvent::Logits { position, logits, .. } => take(position, &logits)?,
                EngineEvent::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
        if interrupt::is_requested() {
            return Err(Error::interrupted());
        }
    }
    Ok(())
}

/// The likeliest tokens after a position, with their logits.
fn show_row(position: usize, row: &[f32]) -> Result<()> {
    let mut best: Vec<usize> = (0..row.len()).collect();
    best.sort_by(|&a, &b| row[b].total_cmp(&row[a]));
    let words: Vec<_> = best.iter().take(N_SHOWN).map(|&id| format!("{id}:{:.4}", row[id])).collect();
    Ok(output::print(format_args!("{position}\t{}\n", words.join(" ")))?)
}

/// The first numbers of a hidden state or of scores, of models that give no logits.
fn show_numbers(position: usize, row: &[f32]) -> Result<()> {
    let words: Vec<_> = row.iter().take(N_SHOWN).map(|x| format!("{x:.4}")).collect();
    let rest =
        if row.len() > N_SHOWN { format!(" … ({})", n_things(row.len(), "number")) } else { String::new() };
    Ok(output::print(format_args!("{position}\t{}{rest}\n", words.join(" ")))?)
}

/// One file of little-endian f32 per op, in the order of execution, and `index.tsv` with their names and dims.
fn write_ops(runner: &mut DeviceRunner, ids: &[TokenId], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::unwritable(folder, &e))?;
    let mut index = String::from("file\tname\tne\n");
    let mut i = 0;
    let outcome = runner.per_op(ids, &mut |name, ne, values| {
        let plain: String =
            name.chars().map(|c| if c.is_alphanumeric() || ".-_".contains(c) { c } else { '_' }).collect();
        let file = format!("{i:04}-{plain}.f32");
        i += 1;
        index += &format!("{file}\t{name}\t{},{},{},{}\n", ne[0], ne[1], ne[2], ne[3]);
        std::fs::write(folder.join(&file), values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>())
    })?;
    let written = outcome.and_then(|()| std::fs::write(folder.join("index.tsv"), &index));
    written.map_err(|e| Error::unwritable(folder, &e))
}
