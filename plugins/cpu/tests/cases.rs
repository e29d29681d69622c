//! Every op on every case of its rules, through the plugin's own table, against the plain references.

mod common;

use common::{Plugin, nmse, worth_a_team};
use llmrt_abi::{DType, Op, op::AttentionParams};
use llmrt_cpu::simd::Isa;
use llmrt_graph::ops::{case::Case, rules};
use llmrt_graph::reference;
use llmrt_graph::{Graph, Paged, Role, ops::value::Value};

/// A way to run a graph: with weights as they are in the file, or sealed.
type Run = fn(&Plugin, &Graph, &reference::Memory, u32) -> Result<Vec<Vec<u8>>, String>;

#[test]
fn every_op_computes_what_its_reference_computes_on_every_instruction_set_and_number_of_threads() {
    let (mut n, mut wrong) = (0, vec![]);
    for isa in Isa::available() {
        let plugin = Plugin::open(isa.name()).unwrap();
        let differs =
            |op| !isa.is_for_products() || matches!(op, Op::MulMat | Op::MulMatId | Op::MulMatSparse);
        let cases: Vec<(Op, Case)> = (Op::ALL.iter().filter(|&&op| differs(op)))
            .flat_map(|&op| rules(op).cases().into_iter().map(move |case| (op, case)))
            .collect();
        let half = |i| cases.iter().skip(i).step_by(2).flat_map(|(op, case)| check(&plugin, isa, *op, case));
        let checked: Vec<_> = std::thread::scope(|s| {
            let threads = [0, 1].map(|i| {
                s.spawn({
                    let half = &half;
                    move || half(i).collect::<Vec<_>>()
                })
            });
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        n += checked.len();
        wrong.extend(checked.into_iter().flatten());
    }
    assert!(n > 1000, "{n} runs");
    assert!(wrong.is_empty(), "{} of {n}:\n{}", wrong.len(), wrong.join("\n"));
}

/// Runs a case in every way; what is wrong with each run, if anything.
fn check(plugin: &Plugin, isa: Isa, op: Op, case: &Case) -> [Option<String>; 4] {
    let given = case.values(7).unwrap();
    let mut expected = given.clone();
    round_for_bf16(op, &case.graph, &mut expected);
    reference::run(&case.graph, &mut expected).unwrap();
    let node = case.graph.nodes.last().unwrap();
    let owner = case.graph.owner(node.dst);
    let expected = Value::decode(case.graph.def(node.dst), expected.bytes(owner).unwrap());
    let mut first = None;
    let mut with_a_team = case.graph.clone();
    worth_a_team(&mut with_a_team);
    let file: Run = Plugin::run;
    let runs = [
        (1, &case.graph, file),
        (2, &with_a_team, file),
        (3, &with_a_team, file),
        (2, &with_a_team, Plugin::run_sealed),
    ];
    runs.map(|(n_threads, graph, run)| {
        let name = format!("{} {op} on {n_threads}: {}", isa.name(), case.name);
        let bytes = match run(plugin, graph, &given, n_threads) {
            Ok(all) => all[owner.0 as usize].clone(),
            Err(problem) => return Some(format!("{name}: {problem}")),
        };
        let nmse = nmse(&expected, &Value::decode(case.graph.def(node.dst), &bytes));
        if nmse.is_nan() || nmse > limit(op, &case.graph, case.nmse) {
            return Some(format!("{name}: NMSE {nmse:e}, at most {:e}", case.nmse));
        }
        let differs = first.get_or_insert_with(|| bytes.clone()) != &bytes;
        differs.then(|| format!("{name}: other bits than with one thread"))
    })
}

/// No mask over slots can express this, so it is no case of the rules, which are checked by masks too.
#[test]
fn a_block_that_is_in_the_table_twice_is_read_twice() {
    for cache in [DType::F32, DType::F16, DType::Q8_0] {
        let case = Case::new("", |g, ints| {
            let q = g.input("q", DType::F32, &[32, 2, 3]);
            let k = g.state("k", cache, &[32, 20], Role::KCache);
            let v = g.state("v", cache, &[32, 20], Role::VCache);
            let paged = Paged {
                block_table: g.input("block_table", DType::I32, &[2, 1]),
                seq_lens: g.input("seq_lens", DType::I32, &[1]),
                query_starts: g.input("query_starts", DType::I32, &[2]),
            };
            ints.push((paged.block_table, vec![0, 0]));
            ints.push((paged.seq_lens, vec![10]));
            ints.push((paged.query_starts, vec![0, 3]));
            let p = AttentionParams { n_kv_heads: 1, block_size: 5, scale: 1.0, ..Default::default() };
            g.attention(q, k, v, &paged, &p);
        });
        let mut memory = case.values(7).unwrap();
        let y = case.graph.nodes[0].dst;
        let given = memory.clone();
        reference::run(&case.graph, &mut memory).unwrap();
        let expected = memory.get(&case.graph, y).unwrap();
        for isa in Isa::available() {
            let all = Plugin::open(isa.name()).unwrap().run(&case.graph, &given, 1).unwrap();
            let found = Value::decode(case.graph.def(y), &all[y.0 as usize]);
            let error = nmse(&expected, &found);
            assert!(error < 1e-11, "{}, {cache} cache: NMSE {error:e}", isa.name());
        }
    }
}

/// Activations of products with BF16 weights are rounded to BF16, and nothing else is.
fn round_for_bf16(op: Op, graph: &Graph, memory: &mut reference::Memory) {
    let Some(node) =
        graph.nodes.last().filter(|_| matches!(op, Op::MulMat | Op::MulMatId | Op::MulMatSparse))
    else {
        return;
    };
    let (Some(w), Some(x)) = (node.src[0], node.src[1].map(|x| graph.owner(x))) else { return };
    if graph.def(w).dtype == DType::BF16 {
        let round = |v: f32| f32::from_bits((v.to_bits() + 0x7fff + (v.to_bits() >> 16 & 1)) & 0xffff_0000);
        let value = memory.get(graph, x).unwrap();
        let rounded = value.floats().iter().copied().map(round).collect();
        memory.set(graph, x, &Value::f32(value.ne, rounded)).unwrap();
    }
}

/// Where nothing is rounded to few bits, the limit is far below the case's.
fn limit(op: Op, graph: &Graph, nmse: f64) -> f64 {
    let result = graph.nodes.last().map(|node| graph.def(node.dst).dtype);
    let exact = graph.tensors.iter().all(|t| !t.dtype.is_quantised())
        && !matches!(result, Some(DType::F16 | DType::BF16));
    match op {
        Op::Rope => nmse,
        _ if exact => nmse.min(1e-11),
        _ => nmse,
    }
}
