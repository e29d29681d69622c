//! `llmrt conform`: tests a plugin, case by case, in worker processes.

mod args;

pub use args::{Conform, ConformWorker};

use crate::args::Global;
use crate::cmd::Command;
use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::new_file::NewFile;
use crate::output::{self, note};
use llmrt_conform::child::Child;
use llmrt_conform::session::{NO_DEVICE, Session};
use llmrt_conform::{Entry, Launch, Level, Options, Outcome, Report, Run, Selection, catalogue, worker};
use sha2::{Digest, Sha256};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

impl Command for Conform {
    const NAME: &'static str = "conform";

    fn run(&self, global: &Global) -> Result<()> {
        conform(global, self)
    }
}

impl Command for ConformWorker {
    const NAME: &'static str = "conform-worker";
    const ENDS_AT_ONCE: bool = true;

    fn run(&self, global: &Global) -> Result<()> {
        worker(global, self)
    }
}

/// Threads of a worker's pool, so that work on several threads is tested too.
const POOL: usize = 2;

/// Runs the cases that the flags select, and reports.
fn conform(global: &Global, args: &Conform) -> Result<()> {
    let selection = selection(args)?;
    let limit = Duration::try_from_secs_f64(args.time_limit).ok().filter(|limit| !limit.is_zero());
    let limit = limit.ok_or_else(|| {
        Error::usage(format!("--time-limit {}: expected a number of seconds above 0", args.time_limit))
    })?;
    let entries = entries(global, args, &selection)?;
    if args.list {
        let lines: String = entries.iter().map(|entry| format!("{}\n", entry.id())).collect();
        return Ok(output::print(lines)?);
    }
    if entries.is_empty() {
        return Err(Error::usage("no case is selected: --list shows all; look at --level, --ops and --part"));
    }
    let report = run(global, args, entries, limit, checksum(&args.plugin)?)?;
    let mut to_stdout = false;
    let json = output::json_escaped(&format!("{:#}\n", report.json()));
    for (path, text) in [(&args.json, json), (&args.markdown, report.markdown())] {
        match path {
            Some(path) if path == Path::new("-") => {
                to_stdout = true;
                output::print(text)?;
            }
            Some(path) => write_file(path, text.as_bytes())?,
            None => {}
        }
    }
    match to_stdout {
        true => note(report.text().trim_end()),
        false => output::print(report.text())?,
    }
    let total = report.total();
    let found_none = matches!(&report.about, Err(why) if why == NO_DEVICE);
    match (total.failed, total.run) {
        (0, _) if found_none => Err(Error::new(
            Exit::Device,
            format!(
                "{}: {NO_DEVICE}, so {} cases were skipped: test it on a machine with the device and its driver; \
                 -v shows what the plugin found",
                args.plugin.display(),
                total.skipped
            ),
        )),
        (0, 0) => Err(Error::new(Exit::Wrong, "no case was run: all were skipped")),
        (0, _) => Ok(()),
        (n, _) => Err(Error::new(Exit::Wrong, format!("{n} of {} cases failed", total.run))),
    }
}

fn selection(args: &Conform) -> Result<Selection> {
    let mut levels = match &args.level {
        Some(text) => Level::parse(text).map_err(|e| Error::usage(format!("--level {e}")))?,
        None => Level::ALL.into_iter().filter(|&level| level != Level::L6).collect(),
    };
    if args.perf && !levels.contains(&Level::L6) {
        levels.push(Level::L6);
    }
    let ops = args.ops.as_deref().map(Selection::pattern).transpose();
    let ops = ops.map_err(|e| Error::usage(format!("--ops {e}")))?;
    Ok(Selection { levels, ops, part: args.part.as_deref().map(part).transpose()? })
}

/// `I/N` with 1 ≤ I ≤ N.
fn part(text: &str) -> Result<(usize, usize)> {
    let numbers =
        text.split_once('/').and_then(|(i, n)| Some((i.trim().parse().ok()?, n.trim().parse().ok()?)));
    numbers
        .filter(|&(i, n)| (1..=n).contains(&i))
        .ok_or_else(|| Error::usage(format!("--part {text}: expected I/N with I from 1 to N, such as 1/20")))
}

fn entries(global: &Global, args: &Conform, selection: &Selection) -> Result<Vec<Entry>> {
    let mut session = Session::new(options(global, args.worker()));
    let recorded = session.recorded_names();
    if let Some(problem) = session.recorded_failure() {
        return Err(Error::new(Exit::File, problem));
    }
    let mut entries = catalogue::select(selection, recorded);
    if args.repro.is_some() {
        entries.retain(|entry| matches!(entry.work, catalogue::Work::Recorded(_)));
    }
    Ok(entries)
}

fn options(global: &Global, args: ConformWorker) -> Options {
    Options {
        plugin: args.plugin,
        device: args.device,
        plugin_options: global.plugin_option.clone(),
        pool: global.pool,
        seed: args.seed,
        n_threads: global.threads.unwrap_or(POOL),
        model: args.from_model,
        repro: args.repro,
    }
}

/// SHA-256 of a file, in hexadecimal: a report must identify what was tested.
fn checksum(path: &Path) -> Result<String> {
    let unreadable = |e: std::io::Error| Error::file(path, format!("the plugin cannot be read: {e}"));
    let mut hash = Sha256::new();
    std::io::copy(&mut std::fs::File::open(path).map_err(unreadable)?, &mut hash).map_err(unreadable)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn run(
    global: &Global,
    args: &Conform,
    entries: Vec<Entry>,
    limit: Duration,
    sha256: String,
) -> Result<Report> {
    let started = Instant::now();
    let launch = launch(global, args)?;
    let about = describe(&launch, limit);
    let has_no_device = matches!(&about, Err(why) if why == NO_DEVICE);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let n = entries.len();
    let bar = std::io::stderr().is_terminal();
    let progress = move |n_done: usize, n_failed: usize| {
        if bar && (n_done.is_multiple_of(50) || n_done == n) {
            let end = if n_done == n { "\n" } else { "\r" };
            // A closed stderr is no failure.
            let _ = write!(std::io::stderr(), "{n_done}/{n} cases, {n_failed} failed{end}");
        }
    };
    // Without a device there is nothing after L0.
    let (now, never): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| about.is_ok() || entry.level == Level::L0);
    let run = Run {
        launch: &launch,
        n_jobs: args.jobs.unwrap_or(cores).max(1),
        limit,
        max_failures: args.max_failures.map_or(usize::MAX, |n| n.max(1)),
        is_cancelled: &interrupt::is_requested,
        progress: &progress,
    };
    let outcomes = run.outcomes(&now);
    if interrupt::is_requested() {
        return Err(Error::interrupted());
    }
    let unreached = || Outcome::Skipped("not reached: --max-failures ended the run".into());
    let outcomes = outcomes.into_iter().map(|outcome| outcome.unwrap_or_else(unreached));
    let mut cases: Vec<_> = now.into_iter().zip(outcomes).collect();
    let lost = || match has_no_device {
        true => Outcome::Skipped(NO_DEVICE.into()),
        false => Outcome::Skipped("the plugin did not load, or its device did not open".into()),
    };
    cases.extend(never.into_iter().map(|entry| (entry, lost())));
    // No case of L0 may have been selected, and the reason must be in the report.
    let has_failure = cases.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    match &about {
        Err(why) if !has_failure && !has_no_device => {
            cases.push((Entry::of_loading(), Outcome::Failed(why.clone())));
        }
        _ => {}
    }
    Ok(Report { about, sha256, cases, time: started.elapsed(), seed: args.seed })
}

/// What is tested, from a worker: the parent never runs the plugin's code.
fn describe(launch: &Launch, limit: Duration) -> std::result::Result<serde_json::Value, String> {
    let mut child = Child::start(launch).map_err(|e| format!("no worker process could be started: {e}"))?;
    match child.run(worker::DESCRIBE, limit, &interrupt::is_requested).0 {
        Outcome::Passed(text) => serde_json::from_str(&text).map_err(|e| e.to_string()),
        Outcome::Failed(why) | Outcome::Skipped(why) => Err(why),
    }
}

/// This program, as a worker.
fn launch(global: &Global, args: &Conform) -> Result<Launch> {
    let (program, mut words) = match crate::LAUNCHER.get().and_then(|words| words.split_first()) {
        Some((program, words)) => (program.into(), words.to_vec()),
        None => (this_program()?, Vec::new()),
    };
    words.extend(["conform-worker".into(), "--seed".into(), args.seed.to_string().into()]);
    words.extend(["--threads".into(), global.threads.unwrap_or(POOL).to_string().into()]);
    for (flag, path) in [("--from-model", &args.from_model), ("--repro", &args.repro)] {
        words.extend(path.iter().flat_map(|path| [flag.into(), path.into()]));
    }
    let option = |(key, value): &(String, String)| format!("{key}={value}").into();
    words.extend(global.plugin_option.iter().flat_map(|pair| ["--plugin-option".into(), option(pair)]));
    words.extend(global.pool.iter().flat_map(|kind| ["--pool".into(), kind.to_string().into()]));
    words.extend(args.device.iter().flat_map(|name| ["--device".into(), name.into()]));
    words.extend(["--".into(), args.plugin.clone().into()]);
    Ok(Launch { program, args: words })
}

fn this_program() -> Result<PathBuf> {
    let path = std::env::current_exe();
    path.map_err(|e| Error::new(Exit::Failure, format!("this program's own path is unknown: {e}")))
}

/// Serves a parent on stdin and stdout.
fn worker(global: &Global, args: &ConformWorker) -> Result<()> {
    Ok(worker::serve(options(global, args.clone()))?)
}

/// Writes a file whole.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = NewFile::create(path)?;
    file.out().write_all(bytes).map_err(|e| Error::unwritable(path, &e))?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_one_of_so_many() {
        assert_eq!(part("1/1").unwrap(), (1, 1));
        assert_eq!(part("3/20").unwrap(), (3, 20));
        for text in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(part(text).unwrap_err().message.contains("expected I/N"), "{text}");
        }
    }
}
