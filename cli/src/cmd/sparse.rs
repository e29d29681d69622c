//! `llmrt sparse`: files and plans of models of which only some neurons fire.

mod convert;
mod ffn;
mod inputs;
mod report;
mod solve;

use crate::args::Global;
use crate::cmd::Command;
use crate::error::Result;
use clap::{Args, Subcommand};

/// Models of which only some neurons fire: convert PowerInfer's files, report activations, divide neurons.
#[derive(Args, Debug)]
#[command(after_help = SPARSE_HELP)]
pub struct Sparse {
    #[command(subcommand)]
    action: Action,
}

const SPARSE_HELP: &str = "\
Examples:
  llmrt sparse convert model.powerinfer.gguf model.gguf
  llmrt sparse convert model-f16.gguf model.powerinfer.gguf --predictors DIR
  llmrt sparse solve model.powerinfer.gguf --activation DIR --vram-budget 8
  llmrt sparse report model.gguf --activation DIR";

#[derive(Subcommand, Debug)]
enum Action {
    Convert(convert::Convert),
    Solve(solve::Solve),
    Report(report::Report),
}

impl Command for Sparse {
    const NAME: &'static str = "sparse";

    fn run(&self, _: &Global) -> Result<()> {
        match &self.action {
            Action::Convert(args) => args.run(),
            Action::Solve(args) => args.run(),
            Action::Report(args) => args.run(),
        }
    }
}
