//! `plugins`, `devices` and `ops`: what is there to run on.

use clap::Args;

#[derive(Args, Debug)]
pub struct Listing {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// List devices, their memory and kind, and why any is unused.
#[derive(Args, Debug)]
pub struct Devices {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// Show every environment variable that is read, and its value.
    #[arg(long)]
    pub knobs: bool,
}

/// List ops and which devices run them.
#[derive(Args, Debug)]
pub struct Ops {
    /// JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// A Markdown table per device, op × type of the first operand; --backend takes some devices only.
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
}
