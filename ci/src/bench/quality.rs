//! `cargo ci bench quality`: what types of weights cost, in llmrt and in a peer on the same files: perplexity, and the
//! divergence from F32. Fails where llmrt loses more than the peer, or the text is too short to decide.

mod compared;
mod lab;

use super::program::Llmrt;
use super::table::machine;
use compared::Verdict;
use lab::Lab;
use std::path::Path;

/// Types whose blocks suit the rows of the embedded model, then those that need longer rows.
const TYPES: &str = "f32,f16,bf16,q4_0,q4_1,q5_0,q5_1,q8_0,iq4_nl,mxfp4,q2_k,q3_k,q4_k,q5_k,q6_k,iq4_xs";

/// Parts of the text, of which each is measured alone: their spread gives the ratios' standard error.
const PARTS: &str = "8";

const TITLES: &str = "\
A ratio is llmrt's value over the peer's, below 1 in favour of llmrt, ± its standard error.

| type | perplexity: llmrt | peer | ratio | divergence: llmrt | peer | ratio | within 1 % |
|---|--:|--:|--:|--:|--:|--:|---|";

/// Measures and prints a Markdown table.
pub fn quality(words: &[&str]) -> Result<(), String> {
    let (mut peer, mut llmrt, mut types, mut parts) = (None, None, TYPES, PARTS);
    let mut rest = words.iter();
    while let Some(&flag) = rest.next() {
        let value = *rest.next().ok_or_else(|| format!("{flag}: expected a value after it"))?;
        match flag {
            "--peer" => peer = Some(Path::new(value)),
            "--llmrt" => llmrt = Some(Path::new(value)),
            "--types" => types = value,
            "--parts" => parts = value,
            _ => return Err(format!("bench quality {flag}: expected --peer, --llmrt, --types or --parts")),
        }
    }
    let peer = peer.ok_or("bench quality: expected --peer and the path of a llama-perplexity")?;
    let n_parts = parts.parse().ok().filter(|&n: &usize| n > 1);
    let n_parts = n_parts.ok_or_else(|| format!("--parts {parts}: expected a whole number above 1"))?;
    let lab = Lab::new(Llmrt::new(llmrt, None)?, peer, n_parts)?;
    println!("`cargo ci bench quality {}` on {}.\n", words.join(" "), machine());
    println!("{TITLES}");
    let (mut beyond, mut undecided) = (Vec::new(), Vec::new());
    for name in types.split(',') {
        let row = lab.row(name)?;
        println!("{}", row.text(name));
        match row.verdict() {
            Verdict::Within => (),
            Verdict::Undecided => undecided.push(name),
            Verdict::Beyond => beyond.push(name),
        }
    }
    let listed = |what: &str, names: &[&str]| match names {
        [] => String::new(),
        names => format!("\n  {what}: {}", names.join(", ")),
    };
    let problems = listed("worse by more", &beyond) + &listed("undecided; more --parts decide", &undecided);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(format!("not all types are within 1 % of the peer:{problems}")),
    }
}
