//! L6: how fast a device is, case by case: mean time, bytes and operations per second.

use crate::l3_ops::{enqueue, seal_weights};
use crate::outcome::{Verdict, lacking};
use crate::problem::Problem;
use crate::raw;
use crate::session::Session;
use crate::stage::Stage;
use llmrt_abi::op::{AttentionParams, RopeParams};
use llmrt_abi::{DType, Op, Reason};
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Graph, Paged, Role, Tensor};
use llmrt_host::sched::bind::Place;
use serde_json::json;
use std::time::{Duration, Instant};

/// A measurement.
pub struct Perf {
    /// The op.
    pub op: Op,
    /// Type of the weights or the cache.
    pub dtype: DType,
    /// What the op's builder takes, innermost dims first.
    dims: [u64; 3],
}

const fn row(op: Op, dtype: DType, dims: [u64; 3]) -> Perf {
    Perf { op, dtype, dims }
}

/// The measurements: sizes of models with 1 to 8 billion parameters, one token and a prompt.
pub const TABLE: &[Perf] = &[
    row(Op::MulMat, DType::F32, [2048, 2048, 1]),
    row(Op::MulMat, DType::F32, [2048, 2048, 64]),
    row(Op::MulMat, DType::F16, [4096, 4096, 1]),
    row(Op::MulMat, DType::F16, [2048, 2048, 64]),
    row(Op::MulMat, DType::BF16, [4096, 4096, 1]),
    row(Op::MulMat, DType::Q4_0, [4096, 4096, 1]),
    row(Op::MulMat, DType::Q4_0, [2048, 2048, 64]),
    row(Op::MulMat, DType::Q4_0, [2048, 2048, 512]),
    row(Op::MulMat, DType::Q8_0, [4096, 4096, 1]),
    row(Op::MulMat, DType::Q8_0, [2048, 2048, 64]),
    row(Op::MulMat, DType::Q4_K, [4096, 4096, 1]),
    row(Op::MulMat, DType::Q4_K, [2048, 2048, 64]),
    row(Op::MulMat, DType::Q6_K, [4096, 4096, 1]),
    row(Op::MulMat, DType::Q6_K, [2048, 2048, 64]),
    row(Op::MulMat, DType::IQ4_NL, [4096, 4096, 1]),
    // Tokens in the cache, tokens of the step, heads.
    row(Op::Attention, DType::F16, [256, 1, 32]),
    row(Op::Attention, DType::F16, [4096, 1, 32]),
    row(Op::Attention, DType::F16, [16384, 1, 32]),
    row(Op::Attention, DType::F16, [512, 512, 8]),
    row(Op::Attention, DType::Q8_0, [4096, 1, 32]),
    row(Op::RmsNorm, DType::F32, [4096, 1, 1]),
    row(Op::RmsNorm, DType::F32, [4096, 512, 1]),
    row(Op::LayerNorm, DType::F32, [4096, 512, 1]),
    row(Op::Rope, DType::F32, [128, 32, 1]),
    row(Op::Rope, DType::F32, [128, 32, 512]),
    row(Op::SoftMax, DType::F32, [4096, 512, 1]),
    row(Op::Silu, DType::F32, [11008, 64, 1]),
    row(Op::Add, DType::F32, [4096, 512, 1]),
    row(Op::Mul, DType::F32, [4096, 512, 1]),
    row(Op::Copy, DType::F16, [4096, 512, 1]),
    row(Op::Copy, DType::F32, [4096, 512, 1]),
];

/// Shortest time that is trusted.
const MEASURED: Duration = Duration::from_millis(300);

impl Perf {
    /// What it is.
    pub fn name(&self) -> String {
        let [a, b, n] = self.dims;
        match self.op {
            Op::MulMat => format!("{} [{a}, {b}] × {n}", self.dtype),
            Op::Attention => format!("{} cache, {a} tokens deep, {b} new, {n} heads of 128", self.dtype),
            _ => format!("{} [{a}, {b}, {n}]", self.dtype),
        }
    }

    fn case(&self) -> Case {
        Case::new(self.name(), |g, ints| {
            self.build(g, ints);
        })
    }

    fn build(&self, g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>) -> Tensor {
        let [a, b, n] = self.dims;
        if self.op == Op::MulMat {
            let w = g.weight("w", self.dtype, &[a, b], Role::Matrix);
            let x = g.input("x", DType::F32, &[a, n]);
            return g.mul_mat(w, x);
        }
        if self.op == Op::Attention {
            return attention(g, ints, self.dtype, self.dims);
        }
        let x = g.input("x", DType::F32, &[a, b, n]);
        match self.op {
            Op::RmsNorm => {
                let w = g.weight("w", DType::F32, &[a], Role::Norm);
                g.rms_norm(x, Some(w), 1e-5)
            }
            Op::LayerNorm => {
                let w = g.weight("w", DType::F32, &[a], Role::Norm);
                g.layer_norm(x, Some(w), None, 1e-5)
            }
            Op::Rope => {
                let pos = g.input("pos", DType::I32, &[n]);
                ints.push((pos, (0..n as i32).collect()));
                let p = RopeParams {
                    n_dims: a as u32,
                    freq_base: 10_000.0,
                    freq_scale: 1.0,
                    attn_factor: 1.0,
                    ..Default::default()
                };
                g.rope(x, pos, None, &p)
            }
            Op::SoftMax => g.soft_max(x, None, 1.0),
            Op::Silu => g.silu(x),
            Op::Copy => g.cast(x, self.dtype),
            op => {
                let y = g.input("y", DType::F32, &[a, b, n]);
                if op == Op::Mul { g.mul(x, y) } else { g.add(x, y) }
            }
        }
    }

    /// Multiplications and additions.
    fn flops(&self) -> f64 {
        let [a, b, n] = self.dims.map(|d| d as f64);
        match self.op {
            Op::MulMat => 2.0 * a * b * n,
            Op::Attention => 4.0 * a * b * n * 128.0,
            _ => 0.0,
        }
    }
}

/// One sequence whose cache is full after the step.
fn attention(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, cache: DType, dims: [u64; 3]) -> Tensor {
    let [depth, n_tokens, n_heads] = dims;
    let (head, n_kv, block) = (128, 8, 32);
    let q = g.input("q", DType::F32, &[head, n_heads, n_tokens]);
    let k = g.state("k", cache, &[head * n_kv, depth], Role::KCache);
    let v = g.state("v", cache, &[head * n_kv, depth], Role::VCache);
    let n_blocks = depth / block;
    let paged = Paged {
        block_table: g.input("block_table", DType::I32, &[n_blocks, 1]),
        seq_lens: g.input("seq_lens", DType::I32, &[1]),
        query_starts: g.input("query_starts", DType::I32, &[2]),
    };
    ints.push((paged.block_table, (0..n_blocks as i32).collect()));
    ints.push((paged.seq_lens, vec![depth as i32]));
    ints.push((paged.query_starts, vec![0, n_tokens as i32]));
    let p = AttentionParams {
        n_kv_heads: n_kv as u32,
        block_size: block as u32,
        scale: 1.0 / 128f32.sqrt(),
        ..Default::default()
    };
    g.attention(q, k, v, &paged, &p)
}

/// Measures a row of the table; the result as JSON.
pub fn run(session: &mut Session, row: usize) -> Verdict<String> {
    let Some(perf) = TABLE.get(row) else { return lacking("no such row") };
    let (device, stream) = (session.device()?, session.stream()?);
    let case = perf.case();
    if let Some(e) = case.graph.error() {
        return Err(e.clone().into());
    }
    let problem = Problem::of_case(&case, session.options.seed)?;
    let stage = Stage::new(&device, &problem)?;
    let weights = seal_weights(&device, &problem)?;
    let place = |t| match weights.iter().find(|(weight, _)| *weight == t) {
        Some((_, place)) => Some(place.clone()),
        None => {
            let offset = stage.places.get(&t)?.start as u64;
            Some(Place { buffer: stage.buffer.clone(), offset, layout_id: 0 })
        }
    };
    let (graph, _) = raw::build(&problem.graph, &raw::nodes(&problem.graph), &place)?;
    let answer = device.supports(&graph, 0..1)?[0];
    if answer.support == 0 {
        return lacking(format!("supports: {}", Reason::from_code(answer.reason)));
    }
    stage.upload()?;
    let plan = stream.plan(graph.clone())?;
    enqueue(&stream, &graph)?;
    let (mut n, mut n_runs, started) = (1, 0, Instant::now());
    while started.elapsed() < MEASURED {
        for _ in 0..n {
            stream.run(&plan, 1)?;
        }
        stream.synchronize()?;
        n_runs += n;
        n = (n * 2).min(256);
    }
    let seconds = started.elapsed().as_secs_f64() / f64::from(n_runs);
    let n_bytes: u64 = problem.owners().iter().map(|&t| problem.graph.def(t).n_bytes()).sum();
    Ok(json!({
        "op": perf.op.name(), "case": perf.name(), "runs": n_runs, "mean_us": seconds * 1e6,
        "gb_s": n_bytes as f64 / seconds / 1e9, "gflop_s": perf.flops() / seconds / 1e9,
    })
    .to_string())
}
