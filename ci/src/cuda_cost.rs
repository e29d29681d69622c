//! `cargo ci cuda-cost`: what the cuda plugin's kernels for decodes cost on cards, predicted without one.
//!
//! The plugin makes its launches for the simulated driver, which writes them down; NVRTC's machine code of the kernels is
//! disassembled, and one block of each launch is run instruction by instruction. What that block did, times the number of
//! blocks, is held against what a card has (`chips`): slots of its schedulers, units, caches, memory, and the time that warps
//! wait for each other's results (`timing`, `model`). A model, no measurement: limits are taken to overlap fully, latencies are
//! those of idle cards, launches follow each other without a gap.

mod chips;
mod code;
mod launches;
mod model;
mod sources;
mod table;

mod dataflow;
mod execute;
mod float;
mod integer;
mod machine;
mod sass;
mod tensor;
mod timing;

#[cfg(test)]
mod tests;

use crate::root;
use chips::{CHIPS, Chip};
use code::Codes;
use launches::Case;
use machine::{Launch, Machine};
use model::Cost;
use std::path::{Path, PathBuf};

const TABLE: &str = "plugins/cuda/kernels/cost.txt";

/// The costs of a case's launches on a card.
pub struct Row {
    /// The case.
    pub name: String,
    /// Bytes that it reads and writes at least.
    pub least: f64,
    /// Of each launch.
    pub costs: Vec<Cost>,
}

/// Writes the table, compares it, or prints a part of it.
pub fn cuda_cost(words: &[&str]) -> Result<(), String> {
    let value = |name: &str| words.iter().position(|w| *w == name).and_then(|i| words.get(i + 1)).copied();
    let (only, chip) = (value("--only").unwrap_or(""), value("--chip"));
    let has_mix = words.contains(&"--mix");
    let tree = value("--tree").map_or_else(|| root().to_path_buf(), PathBuf::from);
    let mut codes = Codes::new(&tree)?;
    let mut text = table::head(codes.sources.hash());
    for card in CHIPS.iter().filter(|card| chip.is_none_or(|name| name == card.name || name == card.target)) {
        let rows = rows(card, &mut codes, &tree, only)?;
        text += &table::card(card, &rows, has_mix);
    }
    let (is_check, is_part) =
        (words.contains(&"--check"), has_mix || chip.is_some() || !only.is_empty() || tree != root());
    match (is_check, is_part) {
        (_, true) => {
            print!("{text}");
            Ok(())
        }
        (false, false) => crate::cuda_kernels::write(&root().join(TABLE), text.as_bytes()),
        (true, false) => table::compare(&crate::committed(TABLE), &text),
    }
}

fn rows(card: &Chip, codes: &mut Codes, tree: &Path, only: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for Case { name, least, launches, .. } in launches::launches(card, tree)? {
        let launches: Vec<&Launch> = launches.iter().filter(|launch| is_meant(launch)).collect();
        if !name.contains(only) && !launches.iter().any(|launch| launch.kernel.contains(only)) {
            continue;
        }
        let costs = launches.iter().map(|launch| cost(card, codes, launch));
        rows.push(Row { costs: costs.collect::<Result<_, _>>()?, name, least });
    }
    Ok(rows)
}

/// Whether a launch has a row: the weights are read by it.
fn is_meant(launch: &Launch) -> bool {
    launch.kernel != "quantise"
}

/// Runs the block in the middle of a launch.
fn cost(card: &Chip, codes: &mut Codes, launch: &Launch) -> Result<Cost, String> {
    let code = codes.of(&launch.kernel, card.target)?;
    let block = launch.grid.map(|n| n / 2);
    let mut machine = Machine::new(&code.kernel, launch, block, card.params_at, &code.tables);
    let warps = machine.run().map_err(|e| format!("{} on {}: {e}", launch.kernel, card.target))?;
    Ok(model::cost(card, &code.kernel, launch, &warps, code.registers, code.shared))
}
