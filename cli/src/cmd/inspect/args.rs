//! The flags of `inspect`.

use crate::args::{ContextArgs, OpenArgs};
use clap::Args;
use std::path::PathBuf;

/// Show what a model file holds, and where it would run.
///
/// Nothing is loaded, but --check-tensors reads it all, and --placement measures devices on some weights where neurons are divided. In JSON an array of more than 8 elements is shown as its type, length and first elements.
#[derive(Args, Debug)]
pub struct Inspect {
    /// Model file [default: the embedded model].
    #[arg(value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Model file.
    #[arg(short = 'm', long = "model", value_name = "FILE", conflicts_with = "model")]
    pub model_file: Option<PathBuf>,
    /// List all tensors.
    #[arg(long)]
    pub tensors: bool,
    /// Show splits, nodes per device, the reason of each fallback, bytes copied per step; where neurons are divided, the time that
    /// they are predicted to take, by rates of the devices that are measured now.
    #[arg(long)]
    pub placement: bool,
    /// Dump the graph of one decode step.
    #[arg(long)]
    pub graph: bool,
    /// One JSON object on stdout.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    /// Check all weights for NaN and infinity.
    #[arg(long, help_heading = "Loading")]
    pub check_tensors: bool,
    #[command(flatten)]
    pub open: OpenArgs,
}
