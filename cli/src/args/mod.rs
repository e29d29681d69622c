//! The command line: global flags, and the groups of flags that commands share. Each command's own are in its file.

mod model;
mod sampling;

pub use model::{ContextArgs, LoadModeArg, ModelArgs, OpenArgs};
pub use sampling::{SamplerArg, SamplingArgs};

use crate::cmd::{COMMANDS, Row};
use crate::values;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser};
use llmrt_host::PoolKind;
use llmrt_host::sched::SplitMode;
use std::ffi::OsString;
use std::path::PathBuf;

/// Runs large language models on whatever devices are there.
///
/// Devices are plugins: the CPU is built in, others are found as libllmrt_*.so (see `llmrt plugins`). Work that a
/// device cannot do falls back to the CPU and is reported; `--strict-device` refuses it instead.
#[derive(Parser, Debug)]
#[command(name = "llmrt", version, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
}

const AFTER_HELP: &str = "\
Examples:
  llmrt run                                   a story from the embedded model
  llmrt run model.gguf \"Why is the sky blue?\"
  llmrt run model.gguf                        a chat, if the model has a chat template
  llmrt --backend cpu:0 bench -m model.gguf
  llmrt inspect model.gguf --placement

Exit codes:
  0    success
  1    any other failure, such as output that cannot be written: stdout or a file
  2    wrong usage: flags, token ids or lengths that make no sense
  3    a file that cannot be used: model, tokenizer, prompt
  4    a device or plugin failed, or a file named by --plugin was rejected
  5    work would fall back, and --strict-device forbids it
  6    out of memory, or `plan` finds that there is too little
  7    `conform` found a case that fails, or `diff` an op over its limit
  130  interrupted by Ctrl-C";

/// Flags that every command takes, before or after its name.
#[derive(Args, Debug, Clone, Default)]
pub struct Global {
    /// Devices to use, first choice first: NAME, NAME:INDEX or NAME:DEVICE, comma-separated; NAME is a device, a
    /// plugin or a plugin's file, by name or path. DEVICE is one of the plugin's devices, or the part of several
    /// devices' names before a dot. The CPU always comes last [default: all that run models, without plugins that
    /// want to be named].
    #[arg(long, global = true, value_name = "NAME[:D],…", value_delimiter = ',', help_heading = "Devices")]
    pub backend: Vec<String>,
    /// Tell plugins something (repeatable): what KEY means is the plugin's business, such as `cpu.isa` or `sim.memory`.
    /// The environment says it too: LLMRT_CPU_ISA, LLMRT_SIM_MEMORY.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = values::option, help_heading = "Devices")]
    pub plugin_option: Vec<(String, String)>,
    /// Load this plugin file before all others (repeatable); one named like the built-in `cpu` takes its place.
    #[arg(long = "plugin", global = true, value_name = "FILE", help_heading = "Devices")]
    pub plugins: Vec<PathBuf>,
    /// Fail instead of letting work fall back to the CPU.
    #[arg(long, global = true, help_heading = "Devices")]
    pub strict_device: bool,
    /// How several devices share a model: layer (each has whole layers, as far as the first has no room for all) or row
    /// (each has rows of every large matrix, the first one everything else).
    #[arg(long, global = true, value_name = "MODE", value_parser = values::split, default_value = "layer")]
    #[arg(hide_default_value = true, help_heading = "Devices")]
    pub split: SplitMode,
    /// How scratch memory of devices is managed: auto, legacy (best fit among cached blocks) or vmm (one range of
    /// addresses, mapped as used) [default: what LLMRT_<PLUGIN>_POOL or LLMRT_POOL says, else auto].
    #[arg(long, global = true, value_name = "KIND", value_parser = values::pool, help_heading = "Devices")]
    pub pool: Option<PoolKind>,
    /// Threads of the CPU pool, 1 to 1024 [default: one per core].
    #[arg(short = 't', long, global = true, value_name = "N", value_parser = values::whole)]
    #[arg(allow_negative_numbers = true, help_heading = "Devices")]
    pub threads: Option<usize>,
    /// Say more on stderr: device placement, plugin messages. Twice: everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The program with every command of the table.
pub fn program() -> Command {
    let commands = COMMANDS.iter().map(|row| (row.flags)(Command::new(row.name)));
    Cli::command().subcommand_required(true).arg_required_else_help(true).subcommands(commands)
}

/// The global flags, the command's row and its own flags.
pub fn parse(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<(Global, &'static Row, ArgMatches), clap::Error> {
    let mut matches = program().try_get_matches_from(words)?;
    let global = Cli::from_arg_matches(&matches)?.global;
    let (name, flags) =
        matches.remove_subcommand().ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
    let row = COMMANDS
        .iter()
        .find(|row| row.name == name)
        .ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?;
    Ok((global, row, flags))
}

/// The flags of one command, for tests.
#[cfg(test)]
pub fn flags<C: crate::cmd::Command>(words: &str) -> C {
    let (_, row, flags) = parse(words.split_whitespace()).expect("words that clap takes");
    assert_eq!(row.name, C::NAME);
    C::from_arg_matches(&flags).expect("flags of the command")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--help` of every command is kept in `cli/src/help`; a change shows there. To accept a new text, empty
    /// or remove the file and run this test: it writes the file and fails once.
    #[test]
    fn every_help_text_is_the_one_that_was_read_last() {
        let mut program = program().term_width(100);
        program.build();
        let mut texts = vec![("llmrt".to_string(), program.render_long_help().to_string())];
        for command in program.get_subcommands_mut().filter(|c| c.get_name() != "help") {
            texts.push((command.get_name().to_string(), command.render_long_help().to_string()));
        }
        let changed: Vec<_> = texts.into_iter().filter(|(name, text)| !is_kept(name, text)).collect();
        let told: Vec<_> =
            changed.iter().map(|(name, text)| format!("{name} --help is now:\n{text}")).collect();
        assert!(changed.is_empty(), "{}", told.join("\n"));
    }

    fn is_kept(name: &str, text: &str) -> bool {
        let path = format!("{}/src/help/{name}.txt", env!("CARGO_MANIFEST_DIR"));
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        if kept.is_empty() {
            std::fs::write(&path, text).expect("the folder of help texts can be written");
        }
        kept == text
    }

    #[test]
    fn flags_of_devices_may_stand_before_or_behind_the_command() {
        for line in ["llmrt --backend a,b:1 run", "llmrt run --backend a,b:1"] {
            let (global, ..) = parse(line.split(' ')).expect("a good command line");
            assert_eq!(global.backend, ["a", "b:1"]);
        }
    }
}
