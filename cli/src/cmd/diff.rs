//! `llmrt diff`: two devices on one model, op by op.

use crate::args::{Global, OpenArgs};
use crate::backend;
use crate::cmd::Command;
use crate::cmd::conform::write_file;
use crate::error::{Error, Exit, Result};
use crate::interrupt::UNTIL_INTERRUPTED;
use crate::model::{self, OpenModel};
use crate::output::{self, note};
use crate::setup::Plugins;
use crate::{interrupt, tokens};
use clap::Args;
use llmrt_conform::diff::NodeDiff;
use llmrt_conform::outcome::Trouble;
use llmrt_conform::repro;
use llmrt_host::Device;
use llmrt_tokenizer::EncodeOptions;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

/// Compare two devices on a model, op by op.
///
/// Both get equal operands: those that the first computed. The first op over its limit is reported with its shapes;
/// exit code 7: there is one.
#[derive(Args, Debug)]
#[command(after_help = DIFF_HELP)]
pub struct Diff {
    /// The device that is right.
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    pub a: OsString,
    /// The device in question.
    #[arg(long, value_name = "NAME")]
    pub b: OsString,
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Text to run.
    #[arg(short, long, value_name = "TEXT", conflicts_with = "tokens")]
    pub prompt: Option<String>,
    /// Token ids to run, with spaces or commas between them [default: 1 2 3 4 5 6 7 8].
    #[arg(long, value_name = "IDS")]
    pub tokens: Option<String>,
    /// Go on after the first op over its limit, and show all ops.
    #[arg(long)]
    pub all: bool,
    /// Write the first op over its limit with its operands to this file, for `llmrt conform --repro`.
    #[arg(long, value_name = "FILE")]
    pub repro: Option<PathBuf>,
    #[command(flatten)]
    pub open: OpenArgs,
}

const DIFF_HELP: &str = "\
Examples:
  llmrt diff --b mydevice model.gguf -p \"Why is the sky blue?\"
  llmrt --plugin ./libllmrt_mydevice.so diff --b mydevice model.gguf --repro wrong.repro
  llmrt conform ./libllmrt_mydevice.so --repro wrong.repro";

impl Command for Diff {
    const NAME: &'static str = "diff";

    fn run(&self, global: &Global) -> Result<()> {
        diff(global, self)
    }
}

/// What is run without -p and --tokens.
const TOKENS: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Runs both devices on equal operands and reports the first op over its limit.
fn diff(global: &Global, args: &Diff) -> Result<()> {
    let model = OpenModel::open(args.model.as_deref(), &model::table_options(&args.open))?;
    let ids = token_ids(args, &model)?;
    let plugins = Plugins::load(global)?;
    let (a, b) = (find(&plugins, "--a", &args.a)?, find(&plugins, "--b", &args.b)?);

    let (mut rows, mut first, mut n_not_run) = (Vec::new(), None, 0);
    let outcome = llmrt_conform::diff::diff([&a, &b], &model.files, &ids, &mut |node, problem| {
        rows.push(cells(&node));
        n_not_run += usize::from(node.is_refused());
        if node.is_over() && first.is_none() {
            first = Some((node, repro::write(problem)));
        }
        (first.is_none() || args.all) && !interrupt::is_requested()
    });
    outcome.map_err(|why| Error::new(Exit::Device, format!("{}: {why}", model.name)))?;
    if interrupt::is_requested() {
        return Err(Error::interrupted());
    }
    if args.all {
        output::table(&[">node", "op", "result", ">NMSE", ">max", ">limit", "operands → result"], &rows)?;
    }
    let n = rows.len();
    let Some((node, file)) = first else {
        if n_not_run == n {
            let message = format!(
                "{} runs none of the {n} ops, so nothing was compared: choose another device with --b; `llmrt ops` lists \
                 what each runs",
                b.name()
            );
            return Err(Error::new(Exit::Device, message));
        }
        let text = format!("{n} ops, none over its limit; {n_not_run} not run by {}\n", b.name());
        return Ok(output::print(text)?);
    };
    if let Some(path) = &args.repro {
        write_file(path, &file)?;
        note(format_args!("{}: `llmrt conform FILE.so --repro {0}` runs it alone", path.display()));
    }
    Err(Error::new(Exit::Wrong, report(&node, a.name(), b.name())))
}

fn cells(node: &NodeDiff) -> Vec<String> {
    let (nmse, max) = match &node.difference {
        Ok(d) => (format!("{:.1e}", d.nmse), format!("{:.1e}", d.max_abs)),
        Err(Trouble::Lacking(why)) => (format!("not run: {why}"), String::new()),
        Err(Trouble::Wrong(why)) => (format!("failed: {why}"), String::new()),
    };
    let limit = format!("{:.0e}{}", node.limit, if node.is_over() { " !" } else { "" });
    vec![node.row.to_string(), node.op.into(), node.name.clone(), nmse, max, limit, node.shapes.clone()]
}

fn report(node: &NodeDiff, a: &str, b: &str) -> String {
    let head = format!("node {}, {} `{}`: {}", node.row, node.op, node.name, node.shapes);
    match &node.difference {
        Ok(d) => format!(
            "{head}\nNMSE {:.3e}, at most {:.0e}; element {:?} is {} on {b} and {} on {a}; largest difference {:.3e}",
            d.nmse, node.limit, d.worst, d.found, d.expected, d.max_abs
        ),
        Err(Trouble::Lacking(why)) => format!("{head}\nnot run on {b}: {why}"),
        Err(Trouble::Wrong(why)) => format!("{head}\nfailed on {b}: {why}"),
    }
}

fn token_ids(args: &Diff, model: &OpenModel) -> Result<Vec<i32>> {
    let (ids, source) = match (&args.prompt, &args.tokens) {
        (Some(text), _) => {
            let options = EncodeOptions { add_special: true, parse_special: true };
            (model.tokenizer()?.encode_within(text, options, UNTIL_INTERRUPTED)?, "--prompt")
        }
        (None, Some(text)) => (tokens::parse(text, "--tokens")?, "--tokens"),
        (None, None) => (TOKENS.to_vec(), "the tokens"),
    };
    if ids.is_empty() {
        return Err(Error::usage(format!("{source}: there are no tokens: expected at least one")));
    }
    let n_vocab = model.files.model.tensor("token_embd.weight").map_or(u64::MAX, |t| t.ne[1]);
    tokens::check(&ids, n_vocab, source)?;
    Ok(ids.into_iter().map(|id| id as i32).collect())
}

fn find(plugins: &Plugins, flag: &str, name: &OsStr) -> Result<Arc<Device>> {
    let (devices, offered): (Vec<_>, Vec<_>) = plugins.offered().into_iter().unzip();
    let rows = backend::choose(&[name.into()], &offered);
    let rows = rows.map_err(|e| Error::new(e.exit, e.message.replacen("--backend", flag, 1)))?;
    rows.first()
        .map(|&row| devices[row].clone())
        .ok_or_else(|| Error::usage(format!("{flag} {}: no device", name.display())))
}
