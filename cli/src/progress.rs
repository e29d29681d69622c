//! The bars that show how far a load and a prompt are. Only a terminal sees them.

use crate::interrupt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Steps of the bar of a load.
const STEPS: u64 = 1000;

/// What is shorter than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(300);

/// How often the bar of a prompt is drawn again while a step runs.
const TICK: Duration = Duration::from_millis(100);

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
        !interrupt::is_requested()
    }
}

impl Drop for LoadBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How much of a file is transferred. The bar is there from the first bytes that take longer than [`PATIENCE`].
pub struct TransferBar {
    bar: ProgressBar,
    started: Instant,
    what: String,
}

impl TransferBar {
    /// A bar without a file; `quiet`: none ever.
    pub fn new(quiet: bool) -> TransferBar {
        let target = match !quiet && std::io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let template = "{msg} {bar:30} {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        TransferBar { bar, started: Instant::now(), what: String::new() }
    }

    /// Shows that `done` bytes of a file are there; another `what` is another file.
    pub fn show(&mut self, what: &str, done: u64, total: Option<u64>) {
        if self.what != what {
            self.what = what.into();
            self.bar.reset();
            self.bar.set_message(what.to_string());
        }
        if self.started.elapsed() > PATIENCE {
            total.into_iter().for_each(|total| self.bar.set_length(total));
            self.bar.set_position(done);
        }
    }

    /// Writes a line above the bar.
    pub fn above(&self, write: impl FnOnce()) {
        self.bar.suspend(write);
    }
}

impl Drop for TransferBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How much of a prompt has been computed, how fast, and how long the rest takes.
///
/// A step can take seconds, so a thread brings up the bar.
pub struct PromptBar {
    bar: ProgressBar,
    n_tokens: usize,
    started: Instant,
    waiting: Option<(Sender<()>, JoinHandle<()>)>,
}

impl PromptBar {
    /// A bar for so many tokens; none for a single one.
    pub fn new(n_tokens: usize) -> PromptBar {
        let bar = ProgressBar::with_draw_target(Some(n_tokens as u64), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("prompt {bar:30} {pos}/{len} tokens{msg}  {elapsed}")
        {
            bar.set_style(style);
        }
        let is_shown = n_tokens > 1 && std::io::stderr().is_terminal();
        let waiting = is_shown.then(|| {
            let (sender, ended) = channel::<()>();
            let bar = bar.clone();
            let show_later = move || {
                if ended.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                    bar.enable_steady_tick(TICK);
                }
            };
            (sender, std::thread::spawn(show_later))
        });
        PromptBar { bar, n_tokens, started: Instant::now(), waiting }
    }

    /// Shows that `n_done` tokens are computed.
    pub fn show(&self, n_done: usize) {
        if self.waiting.is_some() && n_done > 0 {
            self.bar.set_message(rate(n_done, self.n_tokens, self.started.elapsed()));
            self.bar.set_position(n_done as u64);
        }
    }
}

impl Drop for PromptBar {
    fn drop(&mut self) {
        if let Some((sender, thread)) = self.waiting.take() {
            drop(sender);
            let _ = thread.join();
            self.bar.finish_and_clear();
        }
    }
}

/// `, 84.2 tok/s, 12 s left`.
fn rate(n_done: usize, n_tokens: usize, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let left = n_tokens.saturating_sub(n_done) as f64 * seconds / n_done.max(1) as f64;
    format!(", {:.1} tok/s, {left:.0} s left", n_done as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_rate_so_far() {
        assert_eq!(rate(512, 2048, Duration::from_secs(4)), ", 128.0 tok/s, 12 s left");
        assert_eq!(rate(7, 7, Duration::from_millis(500)), ", 14.0 tok/s, 0 s left");
    }
}
