//! `cargo ci bench serve`: `llmrt serve` and llama.cpp's llama-server on the same file, in turn, under the same load: streams
//! that each wait for the end of a completion before the next.

pub mod client;
mod load;
pub mod server;

use super::program::Llmrt;
use super::table::machine;
use load::{Load, Measured};
use serde_json::json;
use server::Server;
use std::path::{Path, PathBuf};

/// Streams at a time.
const STREAMS: &str = "1,4,16,32";

const TITLES: &str = "\
Medians over the pairs; a ratio is llmrt's value over the peer's: above 1 for tok/s, below 1 for times and memory is in favour
of llmrt.

| streams | prefix | value | llmrt | peer | ratio (each pair) |
|--:|---|---|--:|--:|---|";

/// What is measured of a load, with its unit, in the order of [`Measured::values`].
const VALUES: [&str; 5] = [
    "generated tok/s",
    "time to first token, p50, ms",
    "time to first token, p99, ms",
    "between tokens, p99, ms",
    "peak memory, MB",
];

/// What is run.
struct Options {
    peer: PathBuf,
    model: PathBuf,
    llmrt: Option<PathBuf>,
    streams: Vec<usize>,
    pairs: usize,
    json: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Options, String> {
        let (mut peer, mut model, mut llmrt, mut json) = (None, None, None, None);
        let (mut streams, mut pairs) = (STREAMS, "3");
        let mut rest = words.iter();
        while let Some(&flag) = rest.next() {
            let value = *rest.next().ok_or_else(|| format!("{flag}: expected a value after it"))?;
            match flag {
                "--peer" => peer = Some(PathBuf::from(value)),
                "-m" => model = Some(PathBuf::from(value)),
                "--llmrt" => llmrt = Some(PathBuf::from(value)),
                "--streams" => streams = value,
                "--pairs" => pairs = value,
                "--json" => json = Some(PathBuf::from(value)),
                _ => {
                    return Err(format!(
                        "bench serve {flag}: expected --peer, -m, --llmrt, --streams, --pairs or --json"
                    ));
                }
            }
        }
        let number = |text: &str| text.trim().parse().ok().filter(|n: &usize| *n > 0);
        let numbers = streams.split(',').map(number).collect::<Option<Vec<_>>>();
        Ok(Options {
            peer: peer.ok_or("bench serve: expected --peer and the path of a llama-server")?,
            model: model.ok_or("bench serve: expected -m and a GGUF file; `llmrt synth` writes one")?,
            llmrt,
            streams: numbers.ok_or_else(|| format!("--streams {streams}: expected numbers above 0"))?,
            pairs: number(pairs).ok_or_else(|| format!("--pairs {pairs}: expected a number above 0"))?,
            json,
        })
    }
}

/// Measures and prints a Markdown table.
pub fn serve(words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    let llmrt = Llmrt::new(options.llmrt.as_deref(), None)?;
    println!("`cargo ci bench serve {}` on {}.\n\n{TITLES}", words.join(" "), machine());
    let mut rows = Vec::new();
    for &n_streams in &options.streams {
        for load in [Load::unshared(n_streams), Load::shared(n_streams)] {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..options.pairs {
                ours.push(measure(|port| Server::llmrt(&llmrt, &options.model, &load, port), &load)?);
                theirs
                    .push(measure(|port| Server::llama(&options.peer, &options.model, &load, port), &load)?);
            }
            print_rows(&load, &ours, &theirs);
            let values = |of: &[Measured]| of.iter().map(|m| m.values()).collect::<Vec<_>>();
            rows.push(json!({
                "streams": n_streams, "prefix": load.name(), "values": VALUES,
                "llmrt": values(&ours), "peer": values(&theirs),
            }));
        }
    }
    match &options.json {
        Some(path) => write(path, &json!({ "command": words, "machine": machine(), "rows": rows })),
        None => Ok(()),
    }
}

/// A server of its own for each load: no memory or prefix of another is in it.
fn measure(start: impl Fn(u16) -> Result<Server, String>, load: &Load) -> Result<Measured, String> {
    let server = start(server::free_port()?)?;
    let mut measured = load.run(server.address())?;
    measured.peak_bytes = server.peak_bytes();
    Ok(measured)
}

fn print_rows(load: &Load, ours: &[Measured], theirs: &[Measured]) {
    for (i, name) in VALUES.iter().enumerate() {
        let column = |of: &[Measured]| of.iter().map(|m| m.values()[i]).collect::<Vec<f64>>();
        let (ours, theirs) = (column(ours), column(theirs));
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(|(a, b)| a / b).collect();
        let each: Vec<String> = ratios.iter().map(|r| format!("{r:.2}")).collect();
        println!(
            "| {} | {} | {name} | {:.1} | {:.1} | {:.2} ({}) |",
            load.n_streams,
            load.name(),
            median(&ours),
            median(&theirs),
            median(&ratios),
            each.join(", ")
        );
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 }
}

fn write(path: &Path, value: &serde_json::Value) -> Result<(), String> {
    std::fs::write(path, format!("{value:#}\n")).map_err(|e| format!("{}: {e}", path.display()))
}
