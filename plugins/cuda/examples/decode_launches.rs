//! Writes down the launches of decodes of usual sizes, as the plugin makes them for a card: `decode_launches FILE SM SMS`,
//! the compute capability as in 90, and how many multiprocessors the card has. No kernel runs. `cargo ci cuda-cost` reads it.
//!
//! Lines: `case NAME BYTES`, the bytes that the op reads and writes at least; `stream BYTES`, the size of a tensor that is
//! read from memory, not from a cache: weights, keys, values; then those of the simulator (sim/src/record.rs) for each launch.

#[path = "../tests/common/mod.rs"]
mod common;

use common::Machine;
use llmrt_abi::DType;
use llmrt_abi::op::AttentionParams;
use llmrt_abi::types::TENSOR_WEIGHT;
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Activation, Kind, Paged, Role, TensorDef};
use llmrt_host::{Buffer, Device, NodeDesc, RawGraph, RawGraphBuilder, TensorDesc};
use std::io::Write;
use std::sync::Arc;

/// Rows and columns of matrices: gate and attention of a model like Llama 3 8B, gate of one like Llama 3.2 1B, and its
/// attention, which L6 of conform measures.
const MATRICES: [[u64; 2]; 4] = [[14336, 4096], [4096, 4096], [8192, 2048], [2048, 2048]];
/// Weights that get a row in the table.
const TYPES: [DType; 8] =
    [DType::Q4_0, DType::Q8_0, DType::Q4_K, DType::Q5_K, DType::Q6_K, DType::F16, DType::BF16, DType::F32];
const COLUMNS: [u64; 4] = [1, 2, 4, 8];
/// Heads, KV heads, numbers of a head, keys, tokens of a block of the cache.
const HEADS: [u64; 5] = [32, 8, 128, 4096, 16];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [file, sm, n_sms] = &args[..] else {
        eprintln!("usage: decode_launches FILE SM SMS");
        std::process::exit(2);
    };
    let machine = format!("queue=now,memory=8g,sm={sm},sms={n_sms},launches={file}");
    let m = Machine::new(&machine);
    let mut log =
        std::fs::OpenOptions::new().append(true).create(true).open(file).expect("a file to write to");
    for case in cases() {
        writeln!(log, "case {} {}", case.name, least_bytes(&case)).expect("a file to write to");
        let streams = launch(&m.card(0), &case, &mut log);
        assert!(streams > 0, "{}", case.name);
    }
    assert_eq!(m.reports(), [""; 0]);
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (i, [rows, k]) in MATRICES.into_iter().enumerate() {
        // Every type and number of columns of the largest matrix; of the others one column, of the last eight, too.
        for n in COLUMNS.into_iter().filter(|n| i == 0 || *n == 1 || i == 3 && *n == 8) {
            for w in TYPES {
                cases.push(product(w, [k, rows, n]));
                if i == 0 {
                    cases.push(gated(w, [k, rows, n]));
                }
            }
        }
    }
    cases.extend([1, 16].map(attention));
    cases
}

fn product(w: DType, [k, rows, n]: [u64; 3]) -> Case {
    Case::new(format!("{w}:{rows}x{k}:{n}"), |g, _| {
        let w = g.weight("w", w, &[k, rows], Role::Matrix);
        let x = g.input("x", DType::F32, &[k, n]);
        g.mul_mat(w, x);
    })
}

fn gated(w: DType, [k, rows, n]: [u64; 3]) -> Case {
    Case::new(format!("gated-{w}:{rows}x{k}:{n}"), |g, _| {
        let [gate, up] = ["gate", "up"].map(|name| g.weight(name, w, &[k, rows], Role::Matrix));
        let x = g.input("x", DType::F32, &[k, n]);
        let (gate, up) = (g.mul_mat(gate, x), g.mul_mat(up, x));
        g.glu(Activation::Silu, gate, Some(up));
    })
}

/// A token of each sequence, whose blocks of keys alternate with those of the others.
fn attention(n_seqs: u64) -> Case {
    let [n_heads, n_kv_heads, dim, n_keys, block] = HEADS;
    Case::new(format!("attention:{n_keys}:{n_seqs}"), |g, ints| {
        let q = g.input("q", DType::F32, &[dim, n_heads, n_seqs]);
        let [k, v] = [("k", Role::KCache), ("v", Role::VCache)]
            .map(|(name, role)| g.state(name, DType::F16, &[dim * n_kv_heads, n_keys * n_seqs], role));
        let n_blocks = n_keys / block;
        let paged = Paged {
            block_table: g.input("table", DType::I32, &[n_blocks, n_seqs]),
            seq_lens: g.input("lens", DType::I32, &[n_seqs]),
            query_starts: g.input("starts", DType::I32, &[n_seqs + 1]),
        };
        let table = (0..n_seqs).flat_map(|s| (0..n_blocks).map(move |b| (b * n_seqs + s) as i32));
        ints.push((paged.block_table, table.collect()));
        ints.push((paged.seq_lens, vec![n_keys as i32; n_seqs as usize]));
        ints.push((paged.query_starts, (0..=n_seqs as i32).collect()));
        let params = AttentionParams {
            n_kv_heads: n_kv_heads as u32,
            block_size: block as u32,
            scale: 1.0 / (dim as f32).sqrt(),
            ..Default::default()
        };
        g.attention(q, k, v, &paged, &params);
    })
}

/// Everything that is given once, and everything that results once.
fn least_bytes(case: &Case) -> u64 {
    case.graph.tensors.iter().filter(|t| t.view.is_none()).map(|t| t.n_bytes()).sum()
}

/// Runs a graph; weights are sealed as a loader seals them, but never written: no kernel reads them.
/// How many of its tensors are streamed.
fn launch(card: &Arc<Device>, case: &Case, log: &mut impl Write) -> usize {
    let tensors: Vec<(TensorDesc<'_>, Buffer, u32)> =
        case.graph.tensors.iter().enumerate().map(|(i, def)| placed(card, case, i, def)).collect();
    let mut n_streams = 0;
    for (def, (_, buffer, _)) in case.graph.tensors.iter().zip(&tensors) {
        if matches!(def.kind, Kind::Weight | Kind::State) {
            writeln!(log, "stream {}", buffer.size()).expect("a file to write to");
            n_streams += 1;
        }
    }
    let mut builder = RawGraphBuilder::new();
    for (desc, buffer, layout_id) in &tensors {
        builder.tensor(&TensorDesc { buffer: Some(buffer), layout_id: *layout_id, ..*desc }).unwrap();
    }
    for node in &case.graph.nodes {
        let info = node.op.info();
        let srcs: Vec<_> = node.src.iter().map(|src| src.map(|t| t.0)).collect();
        let (op, op_version, dst) = (info.id, info.version, node.dst.0);
        builder.node(&NodeDesc { op, op_version, dst, srcs: &srcs, params: &node.params }).unwrap();
    }
    let graph: RawGraph = builder.build();
    let stream = card.stream(1).unwrap();
    stream.compute(&graph).unwrap();
    stream.synchronize().unwrap();
    n_streams
}

/// Tensor `i` of a case on the card: integers as given, other inputs zero, weights in the layout that the plugin chooses.
fn placed<'a>(
    card: &Arc<Device>,
    case: &Case,
    i: usize,
    def: &'a TensorDef,
) -> (TensorDesc<'a>, Buffer, u32) {
    let flags = if def.kind == Kind::Weight { TENSOR_WEIGHT } else { 0 };
    let plain = TensorDesc::contiguous(def.dtype, def.ne);
    let desc = TensorDesc { nb: def.nb, role: def.role as u32, flags, name: &def.name, ..plain };
    let buffer = card.alloc(0, card.alloc_size(0, &desc).unwrap(), 0).unwrap();
    match case.ints.iter().find(|(of, _)| of.0 as usize == i) {
        Some((_, ints)) => {
            let bytes: Vec<u8> = ints.iter().flat_map(|i| i.to_le_bytes()).collect();
            buffer.write(0, &bytes).unwrap();
        }
        None if def.kind == Kind::Input => buffer.fill(0, buffer.size(), 0).unwrap(),
        None => (),
    }
    let layout = match def.kind {
        Kind::Weight => buffer.seal(&TensorDesc { buffer: Some(&buffer), ..desc }).unwrap().id,
        _ => 0,
    };
    (desc, buffer, layout)
}
