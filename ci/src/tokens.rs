//! `cargo ci tokens --peer LLAMA_SERVER`: ids of random Unicode texts, by llmrt's tokenizer and by llama.cpp's server
//! (`POST /tokenize`); and the ids that are stored beside vocabularies.

mod compare;
mod known;
mod options;
mod parts;
mod stored;
mod texts;

use compare::{Outcome, Sides};
use options::{Options, Vocabulary};
use texts::Texts;

/// How texts are encoded: as they are; and with special tokens parsed and put around them.
const MODES: [(&str, bool); 2] = [("text", false), ("parsed", true)];

/// How often each outcome was found, and the first difference that counts.
#[derive(Default)]
struct Found {
    equal: usize,
    known: usize,
    different: usize,
    first: Option<String>,
}

/// Encodes the texts by each vocabulary twice, and prints a Markdown table. A difference that is not known is an error.
pub fn tokens(words: &[&str]) -> Result<(), String> {
    let options = Options::parse(words)?;
    println!("Seed {}, {} texts of each vocabulary.\n", options.seed, options.n_texts);
    println!("| vocabulary | special tokens | texts | equal | known differences | different |");
    println!("|---|---|--:|--:|--:|--:|");
    let mut differences = Vec::new();
    for vocabulary in options.vocabularies()? {
        let name = vocabulary.name.clone();
        if let Err(e) = rows(&options, vocabulary, &mut differences) {
            println!("| {name} | failed | | | | |");
            differences.push(format!("{name}: {e}"));
        }
    }
    println!("\nKnown differences:");
    known::ALL.iter().for_each(|known| println!("- {}: {}", known.model, known.reason));
    differences.iter().for_each(|difference| println!("\n{difference}"));
    match differences.len() {
        0 => Ok(()),
        n => Err(format!("{n} comparisons failed or have other ids")),
    }
}

/// Prints the rows of a vocabulary.
fn rows(options: &Options, vocabulary: Vocabulary, differences: &mut Vec<String>) -> Result<(), String> {
    let Vocabulary { name, file, metadata } = vocabulary;
    if let Some([equal, n]) = file.map(|file| stored::equal(&file, &metadata)).transpose()?.flatten() {
        println!("| {name} | stored | {n} | {equal} | 0 | {} |", n - equal);
        if equal < n {
            differences
                .push(format!("{name}: {} texts have other ids than those that are stored", n - equal));
        }
    }
    let sides = Sides::start(&options.peer, &name, metadata)?;
    for (mode, special) in MODES {
        let Found { equal, known, different, first } = found(&sides, special, options)?;
        let n = equal + known + different;
        println!("| {name} | {mode} | {n} | {equal} | {known} | {different} |");
        differences.extend(first.map(|first| format!("{name}, {mode}:\n{first}")));
    }
    Ok(())
}

/// What the texts of a vocabulary give.
fn found(sides: &Sides, special: bool, options: &Options) -> Result<Found, String> {
    let mut texts = Texts::new(options.seed, sides.pieces(), sides.specials());
    let mut found = Found::default();
    for _ in 0..options.n_texts {
        let text = texts.text();
        match sides.compare(&text, special)? {
            Outcome::Equal => found.equal += 1,
            Outcome::Known => found.known += 1,
            Outcome::Different => {
                found.different += 1;
                if found.first.is_none() {
                    found.first = Some(sides.example(&text, special)?);
                }
            }
        }
    }
    Ok(found)
}
