//! The bar that shows how far a load is. Only a terminal sees it.

use crate::interrupt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Steps of the bar.
const STEPS: u64 = 1000;

/// A load that is shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(300);

/// A bar on stderr, or nothing if stderr is no terminal.
pub struct LoadBar {
    bar: ProgressBar,
    started: Instant,
}

impl LoadBar {
    /// A bar that stands at the beginning.
    pub fn new() -> LoadBar {
        let target = match std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(STEPS), target);
        if let Ok(style) = ProgressStyle::with_template("loading {bar:40} {percent:>3} %  {elapsed}") {
            bar.set_style(style);
        }
        LoadBar { bar, started: Instant::now() }
    }

    /// Shows the part that is done, 0 to 1; the bar vanishes at 1. `false` if Ctrl-C requests a stop.
    pub fn show(&self, part: f32) -> bool {
        if part >= 1.0 {
            self.bar.finish_and_clear();
        } else if self.started.elapsed() > PATIENCE {
            self.bar.set_position((f64::from(part) * STEPS as f64) as u64);
        }
        !interrupt::is_asked()
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
