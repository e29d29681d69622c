//! L3: an op computed over and over costs no memory, and computed on two streams at once gives what it gives alone.

use crate::growth;
use crate::l1_sharing::on_threads;
use crate::l3_ops::{compute, enqueue};
use crate::outcome::{Verdict, insist, lacking};
use crate::problem::Problem;
use crate::raw::{self, RawNode};
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::Op;
use llmrt_host::{Device, Stream};
use std::sync::Arc;

/// How an op is repeated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// On one stream.
    Often,
    /// With other operands on another stream.
    SideBySide,
}

impl Repeat {
    /// Both.
    pub const ALL: &[Repeat] = &[Repeat::Often, Repeat::SideBySide];

    /// A sentence.
    pub fn name(self) -> &'static str {
        match self {
            Repeat::Often => "computed over and over it takes no memory",
            Repeat::SideBySide => "two streams compute it at once",
        }
    }
}

/// Repeats cases of an op that the device runs.
pub fn run(session: &mut Session, op: Op, repeat: Repeat) -> Verdict {
    let device = session.device()?;
    let rows = supported(session, &device, op)?;
    let Some(&first) = rows.first() else { return lacking("the device runs no case of this op") };
    let bytes = |row: usize, most: u64| {
        session.cases[&op].get(row).map_or(0, |case| {
            case.graph.tensors.iter().map(|def| def.n_bytes()).filter(|&n| n < most).sum::<u64>()
        })
    };
    match repeat {
        Repeat::Often => {
            // Thousands of repetitions of the first one can take minutes where an op is made of many.
            let size = |row: &usize| bytes(*row, u64::MAX);
            let small = rows.iter().copied().filter(|row| size(row) >= SMALLEST).min_by_key(size);
            often(session, &device, op, small.unwrap_or(first))
        }
        Repeat::SideBySide => {
            // The one with the most work is most likely to overlap with itself.
            let largest = rows.iter().copied().max_by_key(|row| bytes(*row, LARGEST)).unwrap_or(first);
            side_by_side(session, &device, op, largest)
        }
    }
}

/// Bytes of all tensors of a case that is no trifle.
const SMALLEST: u64 = 1 << 10;
/// Larger operands make the test slow and not better.
const LARGEST: u64 = 1 << 20;

fn supported(session: &mut Session, device: &Arc<Device>, op: Op) -> Verdict<Vec<usize>> {
    let mut rows = Vec::new();
    for (row, case) in session.cases(op).iter().enumerate() {
        let Some(node) = case.graph.nodes.last().map(RawNode::from) else { continue };
        let graph = raw::unbound(&case.graph, &[node])?;
        if device.supports(&graph, 0..1)?[0].support != 0 {
            rows.push(row);
        }
    }
    Ok(rows)
}

fn often(session: &mut Session, device: &Arc<Device>, op: Op, row: usize) -> Verdict {
    let (problem, stream) = (session.problem(op, row)?, session.stream()?);
    let stage = Stage::new(device, &problem)?;
    stage.upload()?;
    growth::none(device, 40, "computations", || enqueue(&stream, &stage.graph))
}

/// Two streams, each with operands of its own and a thread that feeds it: neither result may have anything of the
/// other's.
fn side_by_side(session: &mut Session, device: &Arc<Device>, op: Op, row: usize) -> Verdict {
    const ROUNDS: usize = 12;
    let mut sides = Vec::new();
    for side in 0..2 {
        let seed = session.options.seed + 17 * side;
        let Some(case) = session.cases(op).get(row) else { return lacking("no such case") };
        let problem = Problem::of_case(case, seed)?;
        let (stage, stream) = (Stage::new(device, &problem)?, device.stream(0)?);
        let alone = compute(&stream, &stage)?;
        sides.push((problem, stage, stream, alone));
    }
    let start = std::sync::Barrier::new(2);
    on_threads(2, &|side| {
        let (problem, stage, stream, alone): &(Problem, Stage, Stream, Vec<u8>) = &sides[side as usize];
        let mut outcome = Ok(());
        for round in 0..ROUNDS {
            // A side that failed still comes, or the other would wait for ever.
            start.wait();
            if outcome.is_ok() {
                outcome = compute(stream, stage).and_then(|found| {
                    let same = stage.target(problem, &found) == stage.target(problem, alone);
                    insist(same, || {
                        format!("streams disturb each other: run {round} beside another stream gave other bits than alone ({})", problem.name)
                    })
                });
            }
        }
        outcome
    })
}
