//! The commands, one file each. A new command is its file, with an `impl Command`, and a row of [`COMMANDS`].

pub mod run;

pub mod chat;
pub mod llama2c;

pub mod ps;
pub mod serve;
pub mod stop;

pub mod embed;
pub mod eval;
pub mod perplexity;

pub mod bench;

pub mod tokenize;

pub mod inspect;
pub mod plan;

pub mod cache;
pub mod cp;
pub mod create;
pub mod list;
pub mod pull;
pub mod push;
pub mod rm;
pub mod show;

pub mod convert;
pub mod quantize;
pub mod sparse;
pub mod synth;

pub mod devices;
pub mod doctor;
pub mod ops;
pub mod plugins;

pub mod conform;
pub mod diff;

use crate::args::Global;
use crate::error::{Error, Exit, Result};
use clap::{ArgMatches, Args};

/// A command: its flags, and what it does with them.
pub trait Command: Args {
    /// Its name on the command line.
    const NAME: &'static str;

    /// Whether Ctrl-C ends the process at once, without the command's help.
    const ENDS_AT_ONCE: bool = false;

    /// Runs it.
    fn run(&self, global: &Global) -> Result<()>;
}

/// Every command, in the order of `llmrt --help`.
pub const COMMANDS: &[Row] = &[
    row::<run::Run>(),
    row::<serve::Serve>(),
    row::<ps::Ps>(),
    row::<stop::Stop>(),
    row::<embed::Embed>(),
    row::<eval::Eval>(),
    row::<perplexity::Perplexity>(),
    row::<bench::Bench>(),
    row::<tokenize::Tokenize>(),
    row::<tokenize::Detokenize>(),
    row::<inspect::Inspect>(),
    row::<plan::PlanArgs>(),
    row::<pull::Pull>(),
    row::<push::Push>(),
    row::<create::Create>(),
    row::<list::List>(),
    row::<show::Show>(),
    row::<cp::Cp>(),
    row::<rm::Rm>(),
    row::<cache::Cache>(),
    row::<convert::Convert>(),
    row::<quantize::Quantize>(),
    row::<sparse::Sparse>(),
    row::<synth::Synth>(),
    row::<plugins::Listing>(),
    row::<devices::Devices>(),
    row::<doctor::Doctor>(),
    row::<ops::Ops>(),
    row::<conform::Conform>(),
    row::<conform::ConformWorker>(),
    row::<diff::Diff>(),
];

/// A command of the table.
pub struct Row {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whether Ctrl-C ends the process at once.
    pub ends_at_once: bool,
    /// Adds its flags and help.
    pub flags: fn(clap::Command) -> clap::Command,
    /// Runs it with parsed flags.
    pub run: fn(&Global, &ArgMatches) -> Result<()>,
}

const fn row<C: Command>() -> Row {
    Row { name: C::NAME, ends_at_once: C::ENDS_AT_ONCE, flags: C::augment_args, run: run_with::<C> }
}

fn run_with<C: Command>(global: &Global, flags: &ArgMatches) -> Result<()> {
    C::from_arg_matches(flags).map_err(|e| Error::new(Exit::Usage, e))?.run(global)
}
