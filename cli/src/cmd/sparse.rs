//! `llmrt sparse`: files and plans of models of which only some neurons fire.

mod convert;
mod ffn;
mod inputs;
mod predictor;
mod profile;
mod report;
mod solve;
mod split;
mod thresholds;
mod times;

pub use inputs::{model_id, save};
pub use times::times_line;

use crate::args::Global;
use crate::cmd::Command;
use crate::error::Result;
use clap::{Args, Subcommand};

/// Models of which only some neurons fire: convert PowerInfer's files, measure and report activations, divide neurons.
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
  llmrt sparse profile model.gguf -f text.txt
  llmrt sparse report model.gguf
  llmrt sparse thresholds model.gguf --zeros 0.4";

#[derive(Subcommand, Debug)]
enum Action {
    Convert(convert::Convert),
    Solve(solve::Solve),
    Report(report::Report),
    Profile(profile::Profile),
    Predictor(predictor::Predictor),
    Thresholds(thresholds::Thresholds),
}

impl Command for Sparse {
    const NAME: &'static str = "sparse";

    fn run(&self, global: &Global) -> Result<()> {
        match &self.action {
            Action::Convert(args) => args.run(),
            Action::Solve(args) => args.run(global),
            Action::Report(args) => args.run(),
            Action::Profile(args) => args.run(global),
            Action::Predictor(args) => args.run(global),
            Action::Thresholds(args) => args.run(),
        }
    }
}
