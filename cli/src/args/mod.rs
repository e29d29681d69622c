//! The command line: global flags, and the groups of flags that commands share. Each command's own are in its file.

mod model;
mod peers;
mod requests;
mod sampling;
mod server;
mod speculation;

pub use model::{ContextArgs, LoadModeArg, ModelArgs, OpenArgs, TemplateArgs};
pub use requests::RequestsArgs;
pub use sampling::{SamplerArg, SamplingArgs};
pub use server::ServerArgs;
pub use speculation::{SpecArgs, SpecType};

use crate::cmd::{COMMANDS, Row};
use crate::error::Error;
use crate::values;
use clap::error::{ContextKind, ErrorKind};
use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser};
use llmrt_engine::tensor_rules::TensorRule;
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
  130  interrupted by Ctrl-C; 129, 131 and 143: ended by SIGHUP, SIGQUIT, SIGTERM";

/// Flags that every command takes, before or after its name.
#[derive(Args, Debug, Clone, Default)]
pub struct Global {
    /// Devices to use, first choice first: NAME, NAME:INDEX or NAME:DEVICE, comma-separated; NAME is a device, a
    /// plugin or a plugin's file, by name or path. DEVICE is one of the plugin's devices, or the part of several
    /// devices' names before a dot. The CPU always comes last [default: all that run models, without opt-in plugins,
    /// which are used only when named].
    #[arg(long, global = true, value_name = "NAME[:D],…", value_delimiter = ',', help_heading = "Devices")]
    pub backend: Vec<OsString>,
    /// Set a plugin option (repeatable): each plugin defines its keys, such as `cpu.isa` or `sim.memory`. Environment
    /// variables set them too: LLMRT_CPU_ISA, LLMRT_SIM_MEMORY.
    #[arg(long, global = true, value_name = "KEY=VALUE", value_parser = values::option, help_heading = "Devices")]
    pub plugin_option: Vec<(String, String)>,
    /// Load this plugin file before all others (repeatable); one named like the built-in `cpu` takes its place.
    #[arg(long = "plugin", global = true, value_name = "FILE", help_heading = "Devices")]
    pub plugins: Vec<PathBuf>,
    /// Fail instead of letting work fall back to the CPU.
    #[arg(long, global = true, help_heading = "Devices")]
    pub strict_device: bool,
    /// How several devices share a model: layer (each holds whole layers, the first as many as fit) or row (each holds
    /// rows of every large matrix, the first one everything else).
    #[arg(long, global = true, value_name = "MODE", value_parser = values::split, default_value = "layer")]
    #[arg(hide_default_value = true, help_heading = "Devices")]
    pub split: SplitMode,
    /// Keep weights whose name REGEX matches on DEVICE, and compute there what they are for, such as ffn_.*_exps=cpu
    /// (comma-separated or repeatable; the first that matches counts); `llmrt inspect --tensors` lists names.
    #[arg(
        long,
        global = true,
        value_name = "REGEX=DEVICE,…",
        value_delimiter = ',',
        help_heading = "Devices"
    )]
    pub tensor_placement: Vec<TensorRule>,
    /// How scratch memory of devices is managed: auto, legacy (best fit among cached blocks) or vmm (one range of
    /// addresses, mapped as used) [default: the value of LLMRT_<PLUGIN>_POOL or LLMRT_POOL, else auto].
    #[arg(long, global = true, value_name = "KIND", value_parser = values::pool, help_heading = "Devices")]
    pub pool: Option<PoolKind>,
    /// Threads of the CPU pool, 1 to 1024 [default: one per core].
    #[arg(short = 't', long, global = true, value_name = "N", value_parser = values::whole)]
    #[arg(allow_negative_numbers = true, help_heading = "Devices")]
    pub threads: Option<usize>,
    /// Print more on stderr: device placement, plugin messages. Twice: everything.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The program with every command of the table. Of a flag that is given twice the last value counts.
pub fn program() -> Command {
    let command = |row: &Row| (row.flags)(Command::new(row.name)).args_override_self(true);
    let commands = COMMANDS.iter().map(command);
    Cli::command()
        .args_override_self(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands)
}

/// The global flags, the command's row and its own flags. Help and version are text for stdout and an error here.
pub fn parse(
    words: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<(Global, &'static Row, ArgMatches), Refusal> {
    let mut words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    let mut program = program();
    program.build();
    let named = words.iter().skip(1).find_map(|word| program.find_subcommand(word));
    words = peers::translate(&words, named.unwrap_or(&program))?;

    let misplaced = |e: clap::Error| match before_command(&e, &words, &program) {
        Some(hint) => Refusal::Foreign(Error::usage(hint)),
        None => e.into(),
    };
    let mut matches = program.clone().try_get_matches_from(&words).map_err(misplaced)?;
    let global = Cli::from_arg_matches(&matches)?.global;
    let (name, flags) =
        matches.remove_subcommand().ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
    let row = COMMANDS.iter().find(|row| row.name == name);
    Ok((global, row.ok_or_else(|| clap::Error::new(ErrorKind::InvalidSubcommand))?, flags))
}

/// What helps against a flag of a command that stands before the command's name, or without one.
fn before_command(e: &clap::Error, words: &[OsString], program: &Command) -> Option<String> {
    let flag = e.get(ContextKind::InvalidArg).filter(|_| e.kind() == ErrorKind::UnknownArgument)?.to_string();
    let n_before = words.iter().skip(1).position(|word| program.find_subcommand(word).is_some());
    let name = n_before.map_or("run".into(), |n| words[n + 1].to_string_lossy());
    let before = &words[1..n_before.map_or(words.len(), |n| n + 1)];
    let is_before = before.iter().any(|word| word.to_string_lossy().starts_with(&flag));
    let is_its = program.find_subcommand(&*name).is_some_and(|command| peers::has(command, &flag));
    (is_before && is_its)
        .then(|| format!("{flag} is a flag of `{name}` and goes after the command: llmrt {name} {flag} …"))
}

/// A command line that runs no command.
#[derive(Debug)]
pub enum Refusal {
    /// Wrong usage, or a request for help or the version.
    Clap(clap::Error),
    /// A flag of another program.
    Foreign(Error),
}

impl From<clap::Error> for Refusal {
    fn from(e: clap::Error) -> Refusal {
        let invalid = e.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
        match invalid.and_then(|name| peers::command_hint(&name)) {
            Some(hint) => Refusal::Foreign(Error::usage(hint)),
            None => Refusal::Clap(e),
        }
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Refusal {
        Refusal::Foreign(e)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        match refusal {
            Refusal::Foreign(e) => e,
            Refusal::Clap(e) => Error::usage(e),
        }
    }
}

/// The flags of one command, for tests.
#[cfg(test)]
pub fn flags<C: crate::cmd::Command>(words: &str) -> C {
    let (_, row, flags) = parse(words.split_whitespace()).expect("words that clap takes");
    assert_eq!(row.name, C::NAME);
    C::from_arg_matches(&flags).expect("flags of the command")
}

/// Whether a text is the one that `cli/src/help` keeps; an absent or empty file is written.
#[cfg(test)]
fn is_kept(name: &str, text: &str) -> bool {
    let path = format!("{}/src/help/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    if kept.is_empty() {
        std::fs::write(&path, text).expect("the folder of help texts can be written");
    }
    kept == text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--help` of every command, and of each of its own, is kept in `cli/src/help`; a change shows there. To accept a new text, empty
    /// or remove the file and run this test: it writes the file and fails once.
    #[test]
    fn every_help_text_is_the_one_that_was_read_last() {
        let mut program = program().term_width(100);
        program.build();
        let mut texts = vec![("llmrt".to_string(), program.render_long_help().to_string())];
        for command in program.get_subcommands_mut().filter(|c| c.get_name() != "help") {
            let name = command.get_name().to_string();
            texts.push((name.clone(), command.render_long_help().to_string()));
            for action in command.get_subcommands_mut().filter(|c| c.get_name() != "help") {
                texts.push((format!("{name}-{}", action.get_name()), action.render_long_help().to_string()));
            }
        }
        let changed: Vec<_> = texts.into_iter().filter(|(name, text)| !is_kept(name, text)).collect();
        let texts: Vec<_> =
            changed.iter().map(|(name, text)| format!("{name} --help is now:\n{text}")).collect();
        assert!(changed.is_empty(), "{}", texts.join("\n"));
    }

    /// clap wraps at 100 columns: a line end inside a longer line's paragraph would be a second break.
    #[test]
    fn paragraphs_after_the_flags_are_one_line_each() {
        let mut program = program();
        program.build();
        for command in program.get_subcommands() {
            let help = command.get_after_long_help().or(command.get_after_help());
            let text = help.map(ToString::to_string).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            for pair in lines.windows(2) {
                let is_broken = pair[0].chars().count() > 100 && !pair[1].is_empty();
                assert!(!is_broken, "{}: {}", command.get_name(), pair[0]);
            }
        }
    }

    #[test]
    fn a_flag_of_a_command_before_its_name_is_answered_with_where_it_goes() {
        let refused = |line: &str| match parse(line.split(' ')) {
            Err(e) => Error::from(e).message,
            Ok((_, row, _)) => panic!("{line} runs {}", row.name),
        };
        let expected = "-m is a flag of `bench` and goes after the command: llmrt bench -m …";
        assert_eq!(refused("llmrt -m x -t 2 bench"), expected);
        assert_eq!(refused("llmrt -m x"), expected.replace("bench", "run"));
        assert!(refused("llmrt --ids run").contains("unexpected argument '--ids'"));
    }

    #[test]
    fn flags_of_devices_may_stand_before_or_after_the_command() {
        for line in ["llmrt --backend a,b:1 run", "llmrt run --backend a,b:1"] {
            let (global, ..) = parse(line.split(' ')).expect("a good command line");
            assert_eq!(global.backend, ["a", "b:1"]);
        }
    }

    #[test]
    fn of_a_flag_that_is_given_twice_the_last_value_counts() {
        let run: crate::cmd::run::Run =
            flags("llmrt run -s 1 -c 5 -s 2 --temp 0 --temp 1 --raw --raw --stop a --stop b");
        let sampling = &run.sampling;
        assert_eq!(
            (sampling.seed.and_then(|seed| seed.0), run.context.ctx, sampling.temp),
            (Some(2), Some(5), Some(1.0))
        );
        assert_eq!(sampling.stop, ["a", "b"], "repeatable flags add up");
        let (global, ..) =
            parse("llmrt -t 1 --strict-device run -t 2 --strict-device".split(' ')).expect("good flags");
        assert_eq!(global.threads, Some(2));
        let (global, ..) =
            parse("llmrt run -v -v --pool vmm --pool auto -t 4 -t 3".split(' ')).expect("good flags");
        assert_eq!((global.verbose, global.threads), (2, Some(3)));
    }
}
