//! Every case there is, by name, and which of them a run takes.

use crate::level::Level;
use crate::outcome::{Outcome, Verdict};
use crate::session::Session;
use crate::{
    l0_load, l1_layouts, l1_leaks, l1_memory, l1_seal, l1_sharing, l2_collectives, l2_events, l2_sticky,
    l2_streams,
};
use crate::{l3_again, l3_ops, l4_plans, l5_faults, l5_nodes, l5_strides, l6_perf, l6_rows, pools};
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::rules;
use regex_automata::meta::Regex;
use std::collections::BTreeMap;

/// A case.
#[derive(Clone)]
pub struct Entry {
    /// Its level.
    pub level: Level,
    /// The op, or what is tested.
    pub group: String,
    /// What is special about it; no other of its group and level has it.
    pub name: String,
    /// The dtype that the support table counts it under; of L3 only.
    pub dtype: Option<DType>,
    /// What it does.
    pub work: Work,
}

/// A case that is written out: its name, and what it does.
pub type Fixed = (&'static str, fn(&mut Session) -> Verdict);

/// What a case does.
#[derive(Clone)]
pub enum Work {
    /// One thing, written out.
    Fixed(fn(&mut Session) -> Verdict),
    /// A worker process that used the device ends well.
    ProcessEnd,
    /// A case of an op against its reference.
    Op(Op, usize),
    /// A case of an op, many times.
    Again(Op, l3_again::Repeat),
    /// A node of a model, or a repro file, against its reference.
    Recorded(usize),
    /// Plans of a case of an op.
    Plan(Op, usize),
    /// Nodes of an op that a device must refuse or survive.
    Hostile(Op, l5_nodes::Fault),
    /// Operands of an op that do not start at multiples of their elements.
    Askew(Op),
    /// A measurement.
    Perf(usize),
}

/// Which cases a run takes.
#[derive(Clone, Default)]
pub struct Selection {
    /// Levels; empty: all but L6.
    pub levels: Vec<Level>,
    /// Pattern that an op's name must match, whole; other cases are left out then.
    pub ops: Option<Regex>,
    /// This part of that many: every n-th case of each group.
    pub part: Option<(usize, usize)>,
}

impl Selection {
    /// A pattern for op names.
    pub fn pattern(text: &str) -> Result<Regex, String> {
        Regex::new(&format!("^(?:{text})$")).map_err(|e| {
            let why = e.syntax_error().map_or_else(|| e.to_string(), ToString::to_string);
            format!("{text}: no regular expression: {why}")
        })
    }

    fn takes(&self, entry: &Entry) -> bool {
        let is_level = match self.levels.is_empty() {
            true => entry.level != Level::L6,
            false => self.levels.contains(&entry.level),
        };
        is_level && self.ops.as_ref().is_none_or(|ops| entry.level >= Level::L3 && ops.is_match(&entry.group))
    }
}

impl Entry {
    /// The case that fails when the plugin does not load and no other case fails.
    pub fn of_loading() -> Entry {
        Entry {
            level: Level::L0,
            group: "load".into(),
            name: "the plugin loads and its device opens".into(),
            dtype: None,
            work: Work::ProcessEnd,
        }
    }

    /// Its whole name.
    pub fn id(&self) -> String {
        format!("{} {}: {}", self.level, self.group, self.name)
    }
}

impl Work {
    /// Runs the case in this process.
    pub fn run(&self, session: &mut Session) -> Outcome {
        match *self {
            Work::Fixed(run) => run(session).into(),
            Work::ProcessEnd => l0_load::use_device(session).into(),
            Work::Op(op, row) => session.problem(op, row).and_then(|p| l3_ops::run(session, &p)).into(),
            Work::Again(op, repeat) => l3_again::run(session, op, repeat).into(),
            Work::Recorded(row) => {
                session.recorded_problem(row).and_then(|p| l3_ops::run(session, &p)).into()
            }
            Work::Plan(op, row) => l4_plans::run(session, op, row).into(),
            Work::Hostile(op, fault) => l5_nodes::run(session, op, fault).into(),
            Work::Askew(op) => l5_strides::run(session, op).into(),
            Work::Perf(row) => match l6_perf::run(session, row) {
                Ok(measured) => Outcome::Passed(measured),
                Err(trouble) => Err(trouble).into(),
            },
        }
    }
}

/// Cases of one op for L4.
const MAX_PLANS: usize = 8;

/// The cases a run takes, in order. `recorded` are the nodes of a model and of a repro file, in their order.
pub fn select(selection: &Selection, recorded: Vec<(Op, String)>) -> Vec<Entry> {
    let mut entries = all(selection, recorded);
    entries.retain(|entry| selection.takes(entry));
    if let Some((part, n)) = selection.part {
        let mut seen: BTreeMap<(Level, String), usize> = BTreeMap::new();
        entries.retain(|entry| {
            let nth = seen.entry((entry.level, entry.group.clone())).or_default();
            *nth += 1;
            // Groups start at different parts, so that small ones do not all fall into the first.
            (*nth + entry.group.len()) % n == part % n
        });
    }
    entries
}

/// Every case of any selection, except those of ops that it leaves out.
pub fn all(selection: &Selection, recorded: Vec<(Op, String)>) -> Vec<Entry> {
    let fixed = |level, group: &str, table: &[Fixed]| {
        let entry = |&(name, run): &Fixed| Entry {
            level,
            group: group.into(),
            name: name.into(),
            dtype: None,
            work: Work::Fixed(run),
        };
        table.iter().map(entry).collect::<Vec<_>>()
    };
    let mut entries = fixed(Level::L0, "load", l0_load::CASES);
    entries.push(Entry {
        level: Level::L0,
        group: "load".into(),
        name: "a process that used the device ends by itself".into(),
        dtype: None,
        work: Work::ProcessEnd,
    });
    for table in [l1_memory::CASES, l1_sharing::CASES, l1_leaks::CASES] {
        entries.extend(fixed(Level::L1, "memory", table));
    }
    entries.extend(fixed(Level::L1, "seal", l1_seal::CASES));
    entries.extend(fixed(Level::L1, "seal", l1_layouts::CASES));
    entries.extend(fixed(Level::L1, "pool", pools::MEMORY));
    entries.extend(fixed(Level::L2, "streams", l2_streams::CASES));
    entries.extend(fixed(Level::L2, "streams", l2_sticky::CASES));
    entries.extend(fixed(Level::L2, "events", l2_events::CASES));
    entries.extend(fixed(Level::L2, "collectives", l2_collectives::CASES));
    for &op in Op::ALL.iter().filter(|op| selection.ops.as_ref().is_none_or(|re| re.is_match(op.name()))) {
        of_op(op, &mut entries);
    }
    entries.extend(recorded.into_iter().enumerate().map(|(row, (op, name))| Entry {
        level: Level::L3,
        group: op.name().into(),
        name: format!("recorded {row}, {name}"),
        dtype: None,
        work: Work::Recorded(row),
    }));
    entries.extend(fixed(Level::L4, "pool", pools::PLANS));
    entries.extend(fixed(Level::L5, "faults", l5_faults::CASES));
    entries.extend(fixed(Level::L5, "pool", pools::FAULTS));
    entries.extend(l6_rows::table().iter().enumerate().map(|(row, perf)| Entry {
        level: Level::L6,
        group: perf.op.name().into(),
        name: perf.name(),
        dtype: Some(perf.dtype),
        work: Work::Perf(row),
    }));
    // By level, and otherwise as they came.
    entries.sort_by_key(|entry| entry.level);
    entries
}

fn of_op(op: Op, entries: &mut Vec<Entry>) {
    let cases = rules(op).cases();
    let entry =
        |level, name: String, dtype, work| Entry { level, group: op.name().into(), name, dtype, work };
    let step = cases.len().div_ceil(MAX_PLANS).max(1);
    for (row, case) in cases.iter().enumerate() {
        let node = case.graph.nodes.last();
        let first = node.and_then(|n| n.src.iter().flatten().next().or(Some(&n.dst)));
        let dtype = first.map(|&t| case.graph.def(t).dtype);
        entries.push(entry(Level::L3, case.name.clone(), dtype, Work::Op(op, row)));
        if row % step == 0 {
            entries.push(entry(Level::L4, case.name.clone(), None, Work::Plan(op, row)));
        }
    }
    for &repeat in l3_again::Repeat::ALL {
        entries.push(entry(Level::L3, repeat.name().into(), None, Work::Again(op, repeat)));
    }
    for &fault in l5_nodes::Fault::ALL {
        entries.push(entry(Level::L5, fault.name().into(), None, Work::Hostile(op, fault)));
    }
    if op.info().max_src > 0 {
        let name = "operands at odd bytes are refused or computed with";
        entries.push(entry(Level::L5, name.into(), None, Work::Askew(op)));
    }
}
