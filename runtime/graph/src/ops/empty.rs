//! Operands without elements: for every dim of every source of an op, one of its cases with that dim 0.

use super::{Rules, case::Case};
use crate::graph::{Graph, Node};
use crate::tensor::{Kind, Shape, Tensor, TensorDef, contiguous_strides};
use llmrt_abi::DType;

/// How many cases are tried for a dim, and how many dims of theirs are taken for related.
const CASES: usize = 24;
const RELATED: usize = 8;

/// A dim of a source.
pub(super) type Dim = (usize, usize);

/// A case for each dim that some case has several elements in and that the shape rule lets be 0.
pub(super) fn cases(rules: &Rules, cases: &[Case]) -> Vec<Case> {
    dims().filter_map(|dim| find(rules, cases, dim)).collect()
}

/// The dims that some case has several elements in and none has 0 in, each with the answer of the shape rule to 0.
#[cfg(test)]
pub(super) fn refused(rules: &Rules, cases: &[Case]) -> Vec<(Dim, String)> {
    let candidates = dims().filter_map(|dim| Some((dim, having(cases, dim, |n| n > 1).next()?)));
    let refused = candidates.filter(|(dim, _)| {
        find(rules, cases, *dim).is_none() && having(cases, *dim, |n| n == 0).next().is_none()
    });
    let reason = |(dim, case): (Dim, &Case)| {
        let sources = sources(case).1;
        let sources = emptied(&sources, dim, &[], 0);
        let src: Vec<_> = sources.iter().map(Option::as_ref).collect();
        let problem = rules.infer(&src, &last(case).params).err();
        (dim, problem.unwrap_or_else(|| "the graph refuses it".into()))
    };
    refused.map(reason).collect()
}

fn find(rules: &Rules, cases: &[Case], dim: Dim) -> Option<Case> {
    having(cases, dim, |n| n > 1).take(CASES).find_map(|case| variant(rules, case, dim))
}

fn dims() -> impl Iterator<Item = Dim> {
    (0..9).flat_map(|i| (0..4).map(move |d| (i, d)))
}

fn having(cases: &[Case], (i, d): Dim, is: fn(u64) -> bool) -> impl Iterator<Item = &Case> {
    let source = move |case: &Case| last(case).src.get(i).copied().flatten();
    cases.iter().filter(move |case| source(case).is_some_and(|t| is(case.graph.ne(t)[d])))
}

/// The case with this dim 0, and as few as possible of those that hang together with it.
fn variant(rules: &Rules, case: &Case, dim: Dim) -> Option<Case> {
    let (tensors, defs) = sources(case);
    let related = related(&defs, dim);
    (0..1u32 << related.len()).find_map(|chosen| {
        let defs = emptied(&defs, dim, &related, chosen);
        let src: Vec<_> = defs.iter().map(Option::as_ref).collect();
        rules.infer(&src, &last(case).params).ok()?;
        build(case, &tensors, &defs, dim)
    })
}

/// Dims of the same size, then those of sizes that the other divides; one more of integers counts as the same.
fn related(defs: &[Option<TensorDef>], (i, d): Dim) -> Vec<Dim> {
    let n = defs[i].as_ref().map_or(0, |t| t.ne[d]);
    let mut related = vec![];
    let same = |m: u64, n: u64, int: bool| m == n || (int && m == n + 1);
    let divides = |m: u64, n: u64, _: bool| m.is_multiple_of(n) || n.is_multiple_of(m);
    for is_near in [same as fn(u64, u64, bool) -> bool, divides] {
        for (j, t) in defs.iter().enumerate().filter_map(|(j, t)| Some((j, t.as_ref()?))) {
            let near = |e: &usize| t.ne[*e] > 1 && is_near(t.ne[*e], n, t.dtype == DType::I32);
            let new = (0..4).filter(near).map(|e| (j, e)).filter(|at| *at != (i, d));
            let new: Vec<_> = new.filter(|at| !related.contains(at)).collect();
            related.extend(new);
        }
    }
    related.truncate(RELATED);
    related
}

/// Sources without gaps where this dim and the chosen ones of the related are 0 (1, where integers are one more).
fn emptied(defs: &[Option<TensorDef>], dim: Dim, related: &[Dim], chosen: u32) -> Vec<Option<TensorDef>> {
    let n = defs[dim.0].as_ref().map_or(0, |t| t.ne[dim.1]);
    let mut defs = defs.to_vec();
    let chosen = related.iter().enumerate().filter(|(k, _)| chosen >> k & 1 == 1).map(|(_, at)| *at);
    for (j, e) in chosen.chain([dim]) {
        if let Some(t) = &mut defs[j] {
            t.ne[e] = (t.dtype == DType::I32 && t.ne[e] == n + 1) as u64;
        }
    }
    for t in defs.iter_mut().flatten() {
        t.nb = contiguous_strides(t.dtype, t.ne).unwrap_or(t.nb);
    }
    defs
}

/// The op of the case on these sources.
fn build(case: &Case, tensors: &[Option<Tensor>], defs: &[Option<TensorDef>], (i, d): Dim) -> Option<Case> {
    let node = last(case);
    let shapes: Vec<Shape> = defs.iter().flatten().map(|t| t.ne).collect();
    let into = case.graph.def(node.dst).view.map(|(owner, _)| owner);
    let mut made: Vec<(Tensor, Tensor)> = vec![];
    let name = format!("dim {d} of source {i} is 0: {shapes:?}, like {}", case.name);
    let variant = Case::new(name, |g, ints| {
        let mut src = vec![];
        for (j, (t, def)) in tensors.iter().zip(defs).enumerate() {
            let (Some(t), Some(def)) = (t, def) else {
                src.push(None);
                continue;
            };
            let twin = made.iter().find(|(of, new)| of == t && g.ne(*new) == def.ne).map(|(_, new)| *new);
            let new = twin.unwrap_or_else(|| leaf(g, j, def, into == Some(case.graph.owner(*t))));
            made.push((*t, new));
            let given = case.ints.iter().find(|(of, values)| of == t && values.len() as u64 == def.n_elems());
            ints.extend(given.map(|(_, values)| (new, values.clone())));
            src.push(Some(new));
        }
        match (into, src.first().copied().flatten()) {
            (Some(_), Some(into)) => g.push_in_place(node.op, into, &src, &node.params),
            _ => g.push(node.op, &src, &node.params),
        };
    });
    variant.graph.error().is_none().then(|| variant.nmse(case.nmse))
}

fn leaf(g: &mut Graph, j: usize, def: &TensorDef, is_state: bool) -> Tensor {
    let name = format!("source {j}");
    match def.kind {
        Kind::Weight => g.weight(&name, def.dtype, &def.ne, def.role),
        Kind::State => g.state(&name, def.dtype, &def.ne, def.role),
        _ if is_state => g.state(&name, def.dtype, &def.ne, def.role),
        _ => g.input(&name, def.dtype, &def.ne),
    }
}

/// The sources of the op under test: handles and rows of the table.
fn sources(case: &Case) -> (Vec<Option<Tensor>>, Vec<Option<TensorDef>>) {
    let tensors = last(case).src.clone();
    let defs = tensors.iter().map(|t| t.map(|t| case.graph.def(t).clone())).collect();
    (tensors, defs)
}

/// The op under test.
fn last(case: &Case) -> &Node {
    &case.graph.nodes[case.graph.nodes.len() - 1]
}
