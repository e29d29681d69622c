//! `cargo ci bench`: speed of llmrt beside a peer on the same files, in turn, and beside the roofline.

mod cases;
mod engine;
mod families;
mod floor;
mod ops;
mod options;
mod padded;
mod peer;
mod process;
mod program;
mod quality;
mod serve;
mod sparse;
mod table;

pub use floor::floor;
pub use ops::ops;
pub use quality::quality;
pub use serve::serve;
pub use serve::{client, server};
pub use sparse::sparse;

use cases::{Case, Measure};
use options::Options;
use peer::Peer;
use program::{Ceilings, Llmrt};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Measures and prints a Markdown table; `words` are the command's arguments.
pub fn bench(words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let llmrt = Llmrt::new(options.llmrt.as_deref(), options.card.as_ref())?;
    let peer = options.peer.as_deref().map(|bench| Peer::new(bench, options.card.is_some()));
    let models = options.models(&llmrt)?;
    let floor_files = match options.floor {
        true => floor_files(&models)?,
        false => Vec::new(),
    };
    let mut ceilings = Vec::new();
    for &n_threads in &options.threads {
        ceilings.push((n_threads, llmrt.ceilings(n_threads)?));
    }
    println!("{}", table::head(words, &ceilings));
    println!("{}", table::TITLES);

    let mut results = Vec::new();
    for model in &models {
        for (n_threads, ceilings) in &ceilings {
            for case in &options.cases {
                let has_floor = floor_files.contains(&model) && floor::can(*case);
                let programs =
                    Programs { llmrt: &llmrt, peer: peer.as_ref().filter(|peer| peer.can(*case)), has_floor };
                let row = row(&programs, model, *case, *n_threads, &options)?;
                println!("{}", table::row(&row, ceilings));
                results.push(row);
            }
        }
    }
    print!("{}{}", table::scaling(&results), table::floor(&results));
    if options.card.is_none() {
        print!("{}", table::target(&results, engine::target()));
    }
    if options.has_families {
        print!("{}", families::summary(&results));
    }
    match &options.json {
        Some(path) => write_json(path, words, &ceilings, &results),
        None => Ok(()),
    }
}

/// One line of the table.
pub struct Row {
    /// The file's name.
    model: String,
    case: Case,
    n_threads: usize,
    quick: bool,
    /// What each run of llmrt gave.
    ours: Vec<Measure>,
    /// What each run of the peer gave, in the same order; empty without a peer, or one that lacks the case.
    theirs: Vec<Measure>,
    /// What each run of the floor gave, in the same order; empty where it was not requested, or cannot run.
    floor: Vec<Measure>,
}

/// What is run in turn.
struct Programs<'a> {
    llmrt: &'a Llmrt,
    peer: Option<&'a Peer>,
    has_floor: bool,
}

/// The files that the floor reads.
fn floor_files(models: &[PathBuf]) -> Result<Vec<&PathBuf>, String> {
    let mut files = Vec::new();
    for model in models {
        files.extend(floor::reads(model)?.then_some(model));
    }
    match files.is_empty() {
        true => Err("--floor: expected a file in F32 among those measured; add f32 to --types".into()),
        false => Ok(files),
    }
}

/// Runs a case: a warm-up of each program, then rounds in which each has its turn.
fn row(
    programs: &Programs<'_>,
    model: &Path,
    case: Case,
    n_threads: usize,
    options: &Options,
) -> Result<Row, String> {
    let quick = options.quick;
    let name = model.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut row = Row { model: name, case, n_threads, quick, ours: vec![], theirs: vec![], floor: vec![] };
    let reads = || if case.is_read() { programs.llmrt.reads(n_threads) } else { Ok(None) };
    for pair in 0..=options.pairs {
        // Before each program, so that both find the machine alike.
        let before = reads()?;
        let mut ours = programs.llmrt.run(case, model, n_threads, quick)?;
        let after = reads()?;
        ours.reads = before.zip(after).map(|(before, after)| (before + after) / 2.0);
        let theirs = programs.peer.map(|peer| peer.run(case, model, n_threads, quick)).transpose()?;
        let floor = programs.has_floor.then(|| floor::run(case, model, n_threads, quick)).transpose()?;
        if pair > 0 {
            row.ours.push(ours);
            row.theirs.extend(theirs);
            row.floor.extend(floor);
        }
    }
    Ok(row)
}

fn write_json(
    path: &Path,
    words: &[&str],
    ceilings: &[(usize, Ceilings)],
    rows: &[Row],
) -> Result<(), String> {
    let ceilings: Vec<Value> =
        ceilings.iter().map(|(n, c)| json!({ "threads": n, "ceilings": c.json() })).collect();
    let result = json!({
        "command": words, "machine": table::machine(), "ceilings": ceilings,
        "rows": rows.iter().map(table::json).collect::<Vec<_>>(),
    });
    std::fs::write(path, format!("{result:#}\n")).map_err(|e| format!("{}: {e}", path.display()))
}
