//! L5: operands whose elements do not start at multiples of their size. A device refuses them, or computes the right
//! result.

use crate::l3_ops;
use crate::outcome::{Trouble, Verdict, lacking};
use crate::problem::Problem;
use crate::raw::{self, RawNode};
use crate::session::Session;
use llmrt_abi::{DType, Op};
use llmrt_graph::{Kind, Role, Tensor, TensorDef};

/// Cases of an op that are looked at for operands.
const MAX_CASES: usize = 60;

/// How an operand is misaligned.
#[derive(Clone, Copy, Debug)]
enum Skew {
    /// Rows, matrices and batches are a byte further apart.
    Rows,
    /// Elements within rows too; plain dtypes only.
    Elements,
    /// The first element is at byte 1 of the tensor that holds it.
    Start,
}

/// Tries each source of an op, of each dtype that a case has it in, askew in each way.
pub fn run(session: &mut Session, op: Op) -> Verdict {
    let mut tried: Vec<(usize, DType)> = vec![];
    for row in 0..session.cases(op).len().min(MAX_CASES) {
        let problem = session.problem(op, row)?;
        for i in 0..problem.node().src.len() {
            let Some(t) =
                lone_source(&problem, i).filter(|&t| !tried.contains(&(i, problem.graph.def(t).dtype)))
            else {
                continue;
            };
            if runs(session, &problem)? {
                tried.push((i, problem.graph.def(t).dtype));
                each_skew(session, &problem, t).map_err(|trouble| trouble.during(&format!("source {i}")))?;
            }
        }
    }
    if tried.is_empty() {
        lacking("the device runs no case of this op with rows in memory of their own")
    } else {
        Ok(())
    }
}

fn each_skew(session: &mut Session, problem: &Problem, t: Tensor) -> Verdict {
    for skew in [Skew::Rows, Skew::Elements, Skew::Start] {
        let Some(askew) = askew(problem, t, skew)? else { continue };
        match l3_ops::run(session, &askew) {
            Err(Trouble::Lacking(_)) => {}
            other => other.map_err(|t| t.during(&format!("{skew:?} askew in: {}", problem.name)))?,
        }
    }
    Ok(())
}

fn runs(session: &mut Session, problem: &Problem) -> Verdict<bool> {
    let graph = raw::unbound(&problem.graph, &[RawNode::from(problem.node())])?;
    Ok(session.device()?.supports(&graph, 0..1)?[0].support != 0)
}

/// Source `i`, if it has several rows in memory that no other operand sees.
fn lone_source(problem: &Problem, i: usize) -> Option<Tensor> {
    let (g, node) = (&problem.graph, problem.node());
    let t = node.src[i]?;
    let def = g.def(t);
    let others = node.src.iter().enumerate().filter(|(j, _)| *j != i).filter_map(|(_, s)| *s);
    let is_seen = others.chain([node.dst]).any(|other| g.owner(other) == t);
    let has_rows = def.n_rows() > 1 && def.ne[0] > 1 && def.n_elems() > 0;
    (def.view.is_none() && !is_seen && has_rows).then_some(t)
}

/// The problem with the same values, `t` askew.
fn askew(problem: &Problem, t: Tensor, skew: Skew) -> Verdict<Option<Problem>> {
    let value = problem.given.get(&problem.graph, t)?;
    let mut askew = problem.clone();
    let g = &mut askew.graph;
    // Views of it are of other nodes, and would not fit any more.
    let is_stale = |def: &TensorDef| def.view.is_some_and(|(owner, _)| owner == t);
    g.tensors.iter_mut().filter(|def| is_stale(def)).for_each(|def| def.view = None);
    let owner = match skew {
        Skew::Start => {
            let n = g.def(t).n_bytes() + 1;
            let holder = TensorDef {
                name: "bytes".into(),
                dtype: DType::I8,
                ne: [n, 1, 1, 1],
                nb: [1, n, n, n],
                kind: Kind::Input,
                role: Role::Other,
                output: false,
                view: None,
                listed: None,
            };
            let owner = Tensor(g.tensors.len() as u32);
            g.tensors.push(holder);
            let def = &mut g.tensors[t.0 as usize];
            (def.view, def.kind) = (Some((owner, 1)), Kind::Computed);
            owner
        }
        _ => {
            let def = &mut g.tensors[t.0 as usize];
            if matches!(skew, Skew::Elements) {
                if def.dtype.is_quantised() {
                    return Ok(None);
                }
                def.nb[0] += 1;
            }
            let n_blocks = def.ne[0] / def.dtype.block_elems() as u64;
            def.nb[1] = n_blocks * def.nb[0] + 1;
            def.nb[2] = def.ne[1] * def.nb[1] + 1;
            def.nb[3] = def.ne[2] * def.nb[2] + 1;
            t
        }
    };
    let mut bytes = vec![0; askew.graph.def(owner).n_bytes() as usize];
    value.encode(askew.graph.def(t), &mut bytes);
    askew.given.set_bytes(owner, bytes);
    Ok(Some(askew))
}
