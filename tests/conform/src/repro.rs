//! Repro files: one node with its operands, as small as it gets, for `llmrt conform FILE.so --repro FILE`.
//!
//! UTF-8 lines, then bytes. The lines, in this order, with single spaces:
//!
//! ```text
//! llmrt-repro 1
//! name TEXT                                    what it was in the model
//! op NAME
//! params HEX                                   the op's params struct; `-` if there is none
//! nmse NUMBER                                  largest normalised mean squared error that is right
//! tensor DTYPE KIND ROLE NE×4 NB×4 N_BYTES     a tensor that owns its bytes; N_BYTES of them follow, or 0: none given
//! view DTYPE ROW OFFSET NE×4 NB×4              a tensor that is a view of the tensor in that row
//! src ROW…                                     rows of the sources from 0 on; `-` for one left out
//! dst ROW
//! data
//! ```
//!
//! `tensor` and `view` lines are the rows, in order. After the line `data` come the bytes of the tensors, in order of
//! rows, as the device gets them: little-endian, in GGUF's layout.

use crate::budget::Budget;
use crate::problem::Problem;
use llmrt_abi::{DType, Op};
use llmrt_graph::reference::Memory;
use llmrt_graph::{Graph, Kind, Node, Role, Shape, Tensor, TensorDef};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Bytes of a file, at most.
const MAX_BYTES: u64 = 4 << 30;

const KINDS: [(&str, Kind); 4] =
    [("weight", Kind::Weight), ("input", Kind::Input), ("state", Kind::State), ("computed", Kind::Computed)];
const ROLES: [Role; 10] = [
    Role::Other,
    Role::Matrix,
    Role::Embedding,
    Role::Norm,
    Role::Bias,
    Role::Experts,
    Role::KCache,
    Role::VCache,
    Role::MatrixOfZeros,
    Role::PickedRows,
];

/// A file of a problem.
pub fn write(problem: &Problem) -> Vec<u8> {
    let (g, node) = (&problem.graph, problem.node());
    let (mut lines, mut data) = (String::new(), Vec::new());
    let mut rows: BTreeMap<Tensor, usize> = BTreeMap::new();
    let name = problem.name.replace('\n', " ");
    let _ = writeln!(lines, "llmrt-repro 1\nname {name}\nop {}", node.op);
    let hex: String = node.params.iter().map(|b| format!("{b:02x}")).collect();
    let _ = writeln!(lines, "params {}\nnmse {:e}", if hex.is_empty() { "-" } else { &hex }, problem.nmse);
    let numbers = |def: &TensorDef| {
        let all: Vec<_> = def.ne.iter().chain(&def.nb).map(u64::to_string).collect();
        all.join(" ")
    };
    for t in problem.owners() {
        let def = g.def(t);
        let bytes = problem.given.bytes(t).unwrap_or_default();
        let kind = KINDS.iter().find(|(_, kind)| *kind == def.kind).map_or("input", |(name, _)| name);
        let _ = writeln!(
            lines,
            "tensor {} {kind} {} {} {}",
            def.dtype,
            def.role as u32,
            numbers(def),
            bytes.len()
        );
        data.extend_from_slice(bytes);
        rows.insert(t, rows.len());
    }
    for &t in node.src.iter().flatten().chain([&node.dst]) {
        if let (false, Some((base, offset))) = (rows.contains_key(&t), g.def(t).view) {
            let def = g.def(t);
            let _ = writeln!(lines, "view {} {} {offset} {}", def.dtype, rows[&base], numbers(def));
            rows.insert(t, rows.len());
        }
    }
    let sources: Vec<_> = node.src.iter().map(|s| s.map_or("-".into(), |t| rows[&t].to_string())).collect();
    let _ = writeln!(lines, "src {}\ndst {}\ndata", sources.join(" "), rows[&node.dst]);
    [lines.into_bytes(), data].concat()
}

/// The problem in a file.
pub fn read(path: &Path) -> Result<Problem, String> {
    let about = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !about.is_file() || about.len() > MAX_BYTES {
        return Err(format!("expected a file of at most {MAX_BYTES} bytes"));
    }
    parse(&std::fs::read(path).map_err(|e| e.to_string())?)
}

/// The problem in the bytes of a file.
pub fn parse(bytes: &[u8]) -> Result<Problem, String> {
    const END: &[u8] = b"\ndata\n";
    let at = bytes.windows(END.len()).position(|w| w == END).ok_or("there is no line `data`")?;
    let lines = std::str::from_utf8(&bytes[..at]).map_err(|_| "the lines are not UTF-8")?;
    let mut data = &bytes[at + END.len()..];
    let (mut graph, mut given, mut name, mut nmse) = (Graph::new(), Memory::new(), String::new(), 1e-7);
    let (mut op, mut params, mut src, mut dst) = (None, Vec::new(), Vec::new(), None);
    let mut budget = Budget::of_file(bytes.len() as u64);
    for (i, line) in lines.lines().enumerate() {
        let bad = |what: &str| format!("line {}: `{line}`: {what}", i + 1);
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split(' ').collect();
        match (i, key) {
            (0, "llmrt-repro") if rest == "1" => {}
            (0, _) => return Err(bad("expected `llmrt-repro 1`")),
            (_, "name") => name = rest.to_string(),
            (_, "op") => op = Some(Op::from_name(rest).ok_or_else(|| bad("no such op"))?),
            (_, "params") => params = hex(rest).ok_or_else(|| bad("expected hexadecimal digits"))?,
            (_, "nmse") => nmse = rest.parse().map_err(|_| bad("expected a number"))?,
            (_, "tensor") => {
                let (def, n) = tensor(&words).ok_or_else(|| bad("no tensor of 12 words"))?;
                budget.take(&def).map_err(|e| bad(&e))?;
                if n > data.len() || (n > 0 && n as u64 != def.n_bytes()) {
                    return Err(bad(&format!(
                        "{} bytes follow, and the tensor has {}",
                        data.len(),
                        def.n_bytes()
                    )));
                }
                let (own, rest) = data.split_at(n);
                data = rest;
                if n > 0 || def.n_bytes() == 0 {
                    given.set_bytes(Tensor(graph.tensors.len() as u32), own.to_vec());
                }
                graph.tensors.push(def);
            }
            (_, "view") => {
                let def =
                    view(&words, &graph).ok_or_else(|| bad("no view of 11 words into a tensor before it"))?;
                budget.take(&def).map_err(|e| bad(&e))?;
                graph.tensors.push(def);
            }
            (_, "src") if rest.is_empty() => {}
            (_, "src") => {
                src = words
                    .iter()
                    .map(|w| if *w == "-" { Ok(None) } else { row(w, &graph).map(Some) })
                    .collect::<Result<_, _>>()
                    .map_err(|e| bad(&e))?;
            }
            (_, "dst") => dst = Some(row(rest, &graph).map_err(|e| bad(&e))?),
            _ => return Err(bad("expected name, op, params, nmse, tensor, view, src or dst")),
        }
    }
    let (op, dst) = (op.ok_or("there is no line `op`")?, dst.ok_or("there is no line `dst`")?);
    let node = Node { op, src, dst, params };
    check(&graph, &node)?;
    // What has no bytes and is read would have no value.
    for t in node.src.iter().flatten().map(|&t| graph.owner(t)) {
        if given.bytes(t).is_none() && graph.def(t).n_bytes() > 0 {
            return Err(format!("row {} is a source and has no bytes", t.0));
        }
    }
    graph.nodes = vec![node];
    Ok(Problem { name, graph, given, nmse })
}

/// The op's own shape rule accepts the operands, and the result is the one it infers.
fn check(graph: &Graph, node: &Node) -> Result<(), String> {
    let defs: Vec<_> = node.src.iter().map(|s| s.map(|t| graph.def(t))).collect();
    let (dtype, ne) = llmrt_graph::ops::rules(node.op).infer(&defs, &node.params)?;
    let def = graph.def(node.dst);
    let in_place = def.view.is_some();
    if !in_place && (def.dtype != dtype || def.ne != ne) {
        return Err(format!("dst is {} {:?}, and {} gives {dtype} {ne:?}", def.dtype, def.ne, node.op));
    }
    Ok(())
}

fn tensor(words: &[&str]) -> Option<(TensorDef, usize)> {
    let [dtype, kind, role, rest @ ..] = words else { return None };
    let dtype = DType::from_name(dtype)?;
    let (ne, nb, rest) = shape(dtype, rest)?;
    let kind = KINDS.iter().find(|(name, _)| name == kind)?.1;
    let role = ROLES.into_iter().find(|r| (*r as u32).to_string() == *role)?;
    let def =
        TensorDef { name: String::new(), dtype, ne, nb, kind, role, output: false, view: None, listed: None };
    let [n] = rest else { return None };
    Some((def, n.parse().ok()?))
}

fn view(words: &[&str], graph: &Graph) -> Option<TensorDef> {
    let [dtype, base, offset, rest @ ..] = words else { return None };
    let dtype = DType::from_name(dtype)?;
    let (ne, nb, []) = shape(dtype, rest)? else { return None };
    let base = row(base, graph).ok()?;
    let of = graph.def(base);
    let offset: u64 = offset.parse().ok()?;
    let def = TensorDef { dtype, ne, nb, kind: Kind::Computed, view: Some((base, offset)), ..of.clone() };
    let fits = of.view.is_none() && offset.checked_add(def.n_bytes())? <= of.n_bytes();
    fits.then_some(def)
}

/// Dims (rows of whole blocks) and strides that a computer can hold, and what follows them.
fn shape<'w>(dtype: DType, words: &'w [&'w str]) -> Option<(Shape, Shape, &'w [&'w str])> {
    let number = |i: usize| words.get(i)?.parse::<u64>().ok().filter(|&n| n < 1 << 40);
    let mut all = [0; 8];
    for (i, to) in all.iter_mut().enumerate() {
        *to = number(i)?;
    }
    let [a, b, c, d, e, f, g, h] = all;
    let n_elems = [a, b, c, d].iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    n_elems.filter(|&n| n < 1 << 40 && a.is_multiple_of(dtype.block_elems() as u64))?;
    Some(([a, b, c, d], [e, f, g, h], &words[8..]))
}

fn row(word: &str, graph: &Graph) -> Result<Tensor, String> {
    let row: usize = word.parse().map_err(|_| format!("`{word}` is no row"))?;
    match u32::try_from(row) {
        Ok(t) if row < graph.tensors.len() => Ok(Tensor(t)),
        _ => Err(format!("there is no row {row}")),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_graph::ops::rules;

    #[test]
    fn every_kind_of_case_comes_back_from_its_file() {
        for op in [Op::Add, Op::MulMat, Op::SetRows, Op::Rope, Op::Attention, Op::GetRows, Op::Copy] {
            for case in rules(op).cases() {
                let problem = Problem::of_case(&case, 3).unwrap();
                let back = parse(&write(&problem)).unwrap_or_else(|e| panic!("{op}: {}: {e}", case.name));
                let bytes = |p: &Problem| p.expected().unwrap().bytes(p.target()).unwrap().to_vec();
                assert!(bytes(&problem) == bytes(&back), "{op}: {}", case.name);
                assert_eq!((&back.name, back.nmse, back.shapes()), (&case.name, case.nmse, problem.shapes()));
            }
        }
    }

    #[test]
    fn a_small_file_that_requests_terabytes_is_refused() {
        let file = |x: &str, y: &str| {
            format!("llmrt-repro 1\nname x\nop sqr\nparams -\nnmse 1\n{x}\n{y}\nsrc 0\ndst 1\ndata\nabcd")
        };
        let check = |x: &str, y: &str, words: &str| {
            let error = parse(file(x, y).as_bytes()).err().unwrap_or_default();
            assert!(error.contains(words), "{x} / {y}: {error}");
        };
        let one = "tensor F32 input 0 1 1 1 1 4 4 4 4 4";
        check(one, "tensor F32 computed 0 1000000000000 1 1 1 4 4 4 4 0", "requests 4000000000004 bytes");
        check(one, "tensor F32 computed 0 1 1 1 2 4 4 4 1000000000000 0", "requests 1000000000008 bytes");
        check(
            "tensor F32 input 0 1 1000000000 1 1 4 0 0 0 4",
            "tensor F32 computed 0 1 1000000000 1 1 4 4 4 4 0",
            "requests 4000000000 bytes",
        );
        check(one, "view F32 0 0 1 1 1 1000000000000 4 0 0 0", "requests 4000000000004 bytes");
    }

    #[test]
    fn broken_files_are_refused_with_the_line() {
        let problem = Problem::of_case(&rules(Op::Add).cases()[0], 3).unwrap();
        let good = write(&problem);
        let text = String::from_utf8_lossy(&good).into_owned();
        for (from, to, words) in [
            ("llmrt-repro 1", "llmrt-repro 2", "line 1"),
            ("op add", "op subtract", "no such op"),
            ("src 0", "src 9", "there is no row 9"),
            ("tensor F32", "tensor F33", "no tensor"),
            ("\ndata\n", "\nend\n", "no line `data`"),
        ] {
            let broken = text.replacen(from, to, 1);
            let error = parse(broken.as_bytes()).err().unwrap_or_default();
            assert!(error.contains(words), "{from} → {to}: {error}");
        }
        for n in 0..good.len() {
            assert!(parse(&good[..n]).is_err(), "cut after {n} bytes");
        }
    }
}
