//! Cases from elsewhere: the nodes of a model's graphs, and repro files.

use crate::budget::Budget;
use crate::outcome::Trouble;
use crate::problem::Problem;
use crate::repro;
use crate::session::Options;
use llmrt_abi::DType;
use llmrt_graph::ops::{case::Case, rules};
use llmrt_graph::{Graph, Kind, Node, Tensor};
use llmrt_host::load::{ModelFiles, OpenOptions};
use llmrt_models::{BatchShape, Input, Model, ModelGraph, StepOutput, WindowBlocks};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

/// Tokens of the recorded prompt.
const N_PROMPT: u64 = 7;
/// Blocks of the recorded cache, at least.
const N_BLOCKS: u64 = 4;
/// Tokens of a block.
const BLOCK: u64 = 16;
/// The limit of ops that have no cases.
const EXACT: f64 = 1e-7;

/// Every distinct node of the model's prompt and decode steps, then the repro file's.
pub fn problems(options: &Options) -> Result<Vec<Problem>, String> {
    let mut problems = Vec::new();
    if let Some(path) = &options.model {
        problems = of_model(path, options.seed).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    if let Some(path) = &options.repro {
        problems.push(repro::read(path).map_err(|e| format!("{}: {e}", path.display()))?);
    }
    Ok(problems)
}

fn of_model(path: &Path, seed: u64) -> Result<Vec<Problem>, String> {
    let files = ModelFiles::open(path, &OpenOptions::default()).map_err(|e| e.to_string())?;
    let find = |name: &str| files.model.tensor(name).map(|t| (t.dtype, t.ne));
    let model = Model::new(&files.model.metadata, find).map_err(|e| e.to_string())?;
    let (mut seen, mut problems) = (HashSet::new(), Vec::new());
    for (n_tokens, n_before) in [(N_PROMPT, 0), (1, N_PROMPT)] {
        let step = step(&model, n_tokens, DType::F16)?;
        let ints = integers(&step, n_tokens, n_before, &vec![0; n_tokens as usize]);
        for row in 0..step.graph.nodes.len() {
            let (case, signature) = one_node(&step.graph, row, &ints);
            if seen.insert(signature) {
                check_size(&case, files.file_bytes())?;
                problems.push(Problem::of_case(&case, seed).map_err(|t| match t {
                    Trouble::Wrong(why) | Trouble::Lacking(why) => why,
                })?);
            }
        }
    }
    Ok(problems)
}

/// Fails if the operands of a case are more than a file of this size may request.
fn check_size(case: &Case, file_bytes: u64) -> Result<(), String> {
    let (g, mut budget) = (&case.graph, Budget::of_file(file_bytes));
    let operands = g.nodes.iter().flat_map(|node| node.src.iter().flatten().chain([&node.dst]));
    let owners: BTreeSet<Tensor> = operands.map(|&t| g.owner(t)).collect();
    let each = owners.into_iter().try_for_each(|t| budget.take(g.def(t)));
    each.map_err(|e| format!("node `{}` {e}", case.name))
}

/// The graph of a step of one sequence in a small cache.
pub fn step(model: &Model, n_tokens: u64, cache: DType) -> Result<ModelGraph, String> {
    let n_blocks = N_BLOCKS.max(n_tokens.div_ceil(BLOCK) + 1);
    let shape = BatchShape {
        n_tokens,
        n_encoder_tokens: 0,
        max_encoder_tokens: 0,
        n_seqs: 1,
        n_outputs: n_tokens,
        output: StepOutput::Logits,
        max_blocks: n_blocks,
        n_blocks,
        windows: WindowBlocks::All,
        block_size: BLOCK,
        n_state_slots: 2,
        k_type: cache,
        v_type: cache,
    };
    model.graph(&shape).map_err(|e| e.to_string())
}

/// What the step's inputs hold: `tokens` after `n_before` others of one sequence.
pub fn integers(
    step: &ModelGraph,
    n_tokens: u64,
    n_before: u64,
    tokens: &[i32],
) -> BTreeMap<Tensor, Vec<i32>> {
    let positions: Vec<i32> = (n_before..n_before + n_tokens).map(|p| p as i32).collect();
    let values = |input: Input, t: Tensor| match input {
        Input::Tokens => tokens.to_vec(),
        Input::NgramRows(_) => vec![0; step.graph.def(t).n_elems() as usize],
        Input::Positions | Input::Slots(_) => positions.clone(),
        Input::BlockTable(_) => (0..step.graph.ne(t)[0] as i32).collect(),
        Input::SeqLens => vec![(n_before + n_tokens) as i32],
        Input::QueryStarts => vec![0, n_tokens as i32],
        Input::StateSlots => vec![if n_before == 0 { -1 } else { 0 }, 1],
        Input::OutputIds => (0..n_tokens as i32).collect(),
        Input::EncoderTokens
        | Input::EncoderSlots
        | Input::EncoderTable
        | Input::EncoderStarts
        | Input::EncoderLens
        | Input::Hidden(_) => vec![0; step.graph.ne(t).iter().product::<u64>() as usize],
    };
    step.inputs.iter().map(|&(input, t)| (t, values(input, t))).collect()
}

/// A node as a case whose operands are given, and what makes it differ from others.
fn one_node(g: &Graph, row: usize, ints: &BTreeMap<Tensor, Vec<i32>>) -> (Case, String) {
    let node = &g.nodes[row];
    let mut graph = g.clone();
    let mut given: Vec<(Tensor, Vec<i32>)> = Vec::new();
    for t in node.src.iter().flatten().map(|&t| g.owner(t)) {
        let def = &mut graph.tensors[t.0 as usize];
        if def.kind == Kind::Computed {
            def.kind = Kind::Input;
        }
        if let Some(values) = ints.get(&t) {
            given.push((t, values.clone()));
        }
    }
    // Tensors of other nodes need no values.
    let used: HashSet<Tensor> =
        node.src.iter().flatten().chain([&node.dst]).flat_map(|&t| [t, g.owner(t)]).collect();
    for (i, def) in graph.tensors.iter_mut().enumerate() {
        if !used.contains(&Tensor(i as u32)) {
            def.kind = Kind::Computed;
        }
    }
    graph.nodes = vec![node.clone()];
    let shape = |t: Tensor| {
        let def = g.def(t);
        format!("{} {:?} {:?} {:?}", def.dtype, def.ne, def.nb, def.view.map(|(_, offset)| offset))
    };
    let sources: Vec<_> = node.src.iter().map(|s| s.map_or("-".into(), shape)).collect();
    let signature = format!("{} {:?} {} {}", node.op, node.params, sources.join(", "), shape(node.dst));
    let case = Case { name: g.def(node.dst).name.clone(), graph, ints: given, nmse: limit(g, node) };
    (case, signature)
}

/// The largest limit that the op's own cases have for tensors of just these types; without such a case, for this type
/// of the first operand.
pub fn limit(g: &Graph, node: &Node) -> f64 {
    let types = |g: &Graph, node: &Node| -> BTreeSet<u32> {
        node.src.iter().flatten().chain([&node.dst]).map(|&t| g.def(t).dtype.id()).collect()
    };
    let first = |g: &Graph, node: &Node| node.src.first().copied().flatten().map(|t| g.def(t).dtype);
    let cases = rules(node.op).cases();
    let largest = |is_alike: &dyn Fn(&Graph, &Node) -> bool| {
        let alike =
            cases.iter().filter(|case| case.graph.nodes.last().is_some_and(|n| is_alike(&case.graph, n)));
        alike.map(|case| case.nmse).reduce(f64::max)
    };
    largest(&|of, n| types(of, n) == types(g, node))
        .or_else(|| largest(&|of, n| first(of, n) == first(g, node)))
        .unwrap_or(EXACT)
}
