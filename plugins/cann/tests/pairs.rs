//! Every release on every chip: what the plugin claims there is computed, and no operator refuses. The ops' cases are dealt to
//! the pairs in turn; `cases.rs` has all of them on the newest release.

mod common;
#[path = "common/placed.rs"]
mod placed;

use cann_simulator::release::Release;
use common::Machine;
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::{case::Case, rules};
use placed::{has_empty, on_cards, run};

const CHIPS: [&str; 5] = ["Ascend910A", "Ascend910B3", "Ascend910_9391", "Ascend310P3", "Ascend310B1"];

/// A pair has each case whose place is its own, modulo this.
const SHARES: usize = 8;

#[test]
fn every_release_on_every_chip_computes_what_is_claimed() {
    let cases = Op::ALL.iter().flat_map(|&op| rules(op).cases().into_iter().map(move |case| (op, case)));
    let mut shares: [Vec<(Op, Case)>; SHARES] = Default::default();
    for (place, case) in cases.filter(|(_, case)| !has_empty(case)).enumerate() {
        shares[place % SHARES].push(case);
    }
    let pairs = Release::ALL.iter().flat_map(|release| CHIPS.map(|soc| (release.name(), soc)));
    for (place, (release, soc)) in pairs.enumerate() {
        // Not the same cases for a chip in each release, nor for a release on each chip.
        let mine = &shares[(place + place / CHIPS.len()) % SHARES];
        let m = Machine::of(release, soc, "devices=2,memory=2g");
        let (taken, mut wrong) =
            on_cards(&m.host().devices(), mine, |card, stream, op, case| match run(card, stream, case) {
                Ok(None) => None,
                Ok(Some(error)) if error <= limit(soc, op, case) => Some(vec![]),
                Ok(Some(error)) => Some(vec![format!("NMSE {error:e}")]),
                Err(e) => Some(vec![e.to_string()]),
            });
        println!("{release} {soc}: {taken} of {} cases", mine.len());
        wrong.extend(m.reports());
        assert!(wrong.is_empty(), "{release} {soc}:\n{}", wrong.join("\n"));
        assert_eq!(m.count("refused"), 0, "{release} {soc}: operators refused");
        assert!(taken * 3 > mine.len(), "{release} {soc}: {taken} of {}", mine.len());
    }
}

/// Products of F16 numbers are as near as these are.
fn limit(soc: &str, op: Op, case: &Case) -> f64 {
    let multiplies =
        matches!(op, Op::MulMat | Op::MulMatId | Op::OutProd | Op::Attention | Op::AttentionContiguous);
    let halves = case.graph.tensors.iter().any(|t| t.dtype != DType::F32 && t.dtype != DType::I32);
    let exact = soc.starts_with("Ascend910B") || soc.starts_with("Ascend910_93");
    if multiplies && (!exact || halves) { case.nmse.max(1e-6) } else { case.nmse }
}
