//! Every op on every case of its rules, through the plugin's own table, against the plain references.

mod common;

use common::Plugin;
use llmrt_abi::{DType, Op};
use llmrt_cpu::simd::Isa;
use llmrt_graph::ops::{rules, value::Data};
use llmrt_graph::reference;
use llmrt_graph::{Graph, ops::value::Value};

#[test]
fn every_op_computes_what_its_reference_computes_on_every_instruction_set_and_number_of_threads() {
    let mut wrong = vec![];
    let mut n = 0;
    for isa in Isa::available() {
        let plugin = Plugin::open(isa.name()).unwrap();
        for &op in Op::ALL {
            for case in rules(op).cases().into_iter().filter(|case| !has_grid(&case.graph)) {
                let given = case.values(7).unwrap();
                let mut expected = given.clone();
                reference::run(&case.graph, &mut expected).unwrap();
                let node = case.graph.nodes.last().unwrap();
                let owner = case.graph.owner(node.dst);
                let expected = Value::decode(case.graph.def(node.dst), expected.bytes(owner).unwrap());
                let mut first = None;
                for n_threads in [1, 2, 3] {
                    n += 1;
                    let name = format!("{} {op} on {n_threads}: {}", isa.name(), case.name);
                    let bytes = match plugin.run(&case.graph, &given, n_threads) {
                        Ok(all) => all[owner.0 as usize].clone(),
                        Err(problem) => {
                            wrong.push(format!("{name}: {problem}"));
                            continue;
                        }
                    };
                    let found = Value::decode(case.graph.def(node.dst), &bytes);
                    let nmse = nmse(&expected, &found);
                    if nmse.is_nan() || nmse > limit(op, &case.graph, case.nmse) {
                        wrong.push(format!("{name}: NMSE {nmse:e}, at most {:e}", case.nmse));
                    }
                    if first.get_or_insert(bytes.clone()) != &bytes {
                        wrong.push(format!("{name}: other bits than with one thread"));
                    }
                }
            }
        }
    }
    assert!(n > 1000, "{n} runs");
    assert!(wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The formats whose elements are looked up in large grids are the ones the CPU refuses.
fn has_grid(graph: &Graph) -> bool {
    const GRIDS: [DType; 7] = [
        DType::IQ1_S,
        DType::IQ1_M,
        DType::IQ2_XXS,
        DType::IQ2_XS,
        DType::IQ2_S,
        DType::IQ3_XXS,
        DType::IQ3_S,
    ];
    graph.tensors.iter().any(|t| GRIDS.contains(&t.dtype))
}

/// Where nothing is rounded to few bits, the limit is far below the case's.
fn limit(op: Op, graph: &Graph, nmse: f64) -> f64 {
    let exact = graph.tensors.iter().all(|t| !t.dtype.is_quantised());
    match op {
        Op::Rope => nmse,
        _ if exact => nmse.min(1e-11),
        _ => nmse,
    }
}

/// Σ (a - b)² / Σ a², equal infinities apart; integers must be equal.
fn nmse(expected: &Value, found: &Value) -> f64 {
    match (&expected.data, &found.data) {
        (Data::F32(a), Data::F32(b)) => {
            let pairs = || a.iter().zip(b).filter(|(a, b)| a != b || a.is_finite());
            let error: f64 = pairs().map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
            let size: f64 = pairs().map(|(a, _)| (*a as f64).powi(2)).sum();
            if error == 0.0 { 0.0 } else { error / size }
        }
        (a, b) => {
            if a == b {
                0.0
            } else {
                f64::INFINITY
            }
        }
    }
}
