//! What L6 measures: ops at sizes of models with 1 to 8 billion parameters, for one token, a few, and a prompt.

use llmrt_abi::op::{AttentionParams, PagedScoresParams, RopeParams, SparseAttentionParams};
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::case::Case;
use llmrt_graph::{Activation, Graph, Paged, Role, Tensor, quant};

/// A measurement.
#[derive(Clone, Copy, Debug)]
pub struct Perf {
    /// The op.
    pub op: Op,
    /// Type of the weights, the cache or the result.
    pub dtype: DType,
    /// What the op's builder takes, innermost dims first.
    dims: [u64; 3],
}

/// Tokens of a step: one sequence, eight together, a prompt.
const STEPS: [u64; 3] = [1, 8, 512];

/// Sizes of everything but `mul_mat`.
const OTHERS: &[(Op, DType, [u64; 3])] = &[
    // Row length, rows of each of 8 experts, tokens that use 2 of them.
    (Op::MulMatId, DType::F16, [1024, 1024, 1]),
    (Op::MulMatId, DType::Q4_0, [1024, 1024, 1]),
    (Op::MulMatId, DType::Q4_0, [1024, 1024, 128]),
    (Op::MulMatId, DType::Q4_K, [1024, 1024, 1]),
    (Op::MulMatId, DType::Q4_K, [1024, 1024, 128]),
    // Tokens in the cache, tokens of the step, heads.
    (Op::Attention, DType::F16, [256, 1, 32]),
    (Op::Attention, DType::F16, [4096, 1, 32]),
    (Op::Attention, DType::F16, [16384, 1, 32]),
    (Op::Attention, DType::F16, [512, 512, 8]),
    (Op::Attention, DType::F16, [4096, 512, 8]),
    (Op::Attention, DType::F32, [4096, 1, 32]),
    (Op::Attention, DType::Q8_0, [4096, 1, 32]),
    (Op::Attention, DType::Q8_0, [4096, 512, 8]),
    // Row length, tokens; as keys go into the cache and rows out of the embeddings.
    (Op::SetRows, DType::F16, [1024, 1, 1]),
    (Op::SetRows, DType::F16, [1024, 512, 1]),
    (Op::SetRows, DType::Q8_0, [1024, 512, 1]),
    (Op::GetRows, DType::F16, [4096, 512, 1]),
    (Op::GetRows, DType::Q4_K, [4096, 512, 1]),
    (Op::RmsNorm, DType::F32, [4096, 1, 1]),
    (Op::RmsNorm, DType::F32, [4096, 512, 1]),
    (Op::LayerNorm, DType::F32, [4096, 512, 1]),
    // Elements of a head, heads, tokens.
    (Op::Rope, DType::F32, [128, 32, 1]),
    (Op::Rope, DType::F32, [128, 32, 512]),
    (Op::SoftMax, DType::F32, [4096, 1, 1]),
    (Op::SoftMax, DType::F32, [4096, 512, 1]),
    (Op::Glu, DType::F32, [11008, 1, 1]),
    (Op::Glu, DType::F32, [11008, 64, 1]),
    (Op::Silu, DType::F32, [11008, 64, 1]),
    (Op::Gelu, DType::F32, [11008, 64, 1]),
    (Op::Scale, DType::F32, [4096, 512, 1]),
    (Op::Add, DType::F32, [4096, 1, 1]),
    (Op::Add, DType::F32, [4096, 512, 1]),
    (Op::Mul, DType::F32, [4096, 512, 1]),
    (Op::Copy, DType::F16, [4096, 512, 1]),
    (Op::Copy, DType::F32, [4096, 512, 1]),
    (Op::Argmax, DType::F32, [128_256, 1, 1]),
    // Elements of a state's row, heads (of 64 rows in Mamba 2, of one in Mamba, else as many as elements), tokens.
    (Op::SsmScan, DType::F32, [128, 64, 1]),
    (Op::SsmScan, DType::F32, [128, 64, 512]),
    (Op::SsmScan, DType::F32, [16, 4096, 512]),
    (Op::GatedDeltaNet, DType::F32, [128, 32, 1]),
    (Op::GatedDeltaNet, DType::F32, [128, 32, 512]),
    (Op::GatedLinearAttn, DType::F32, [64, 32, 512]),
    (Op::RwkvWkv6, DType::F32, [64, 32, 512]),
    (Op::RwkvWkv7, DType::F32, [64, 32, 1]),
    (Op::RwkvWkv7, DType::F32, [64, 32, 512]),
    // Channels, taps, tokens.
    (Op::SsmConvRagged, DType::F32, [4352, 4, 1]),
    (Op::SsmConvRagged, DType::F32, [4352, 4, 512]),
    // Keys in the cache, tokens of the step, heads of the queries: an indexer's scores, and attention to 2048 of the keys.
    (Op::PagedScores, DType::F16, [4096, 1, 64]),
    (Op::PagedScores, DType::F16, [4096, 64, 64]),
    (Op::SparseAttention, DType::F16, [8192, 1, 128]),
    (Op::SparseAttention, DType::F16, [8192, 64, 128]),
];

/// Elements of an indexer's keys, as in DeepSeek-V3.2.
const INDEXER_DIM: u64 = 128;
/// Elements of a latent key and of its value, and keys of a query, as there.
const LATENT: [u64; 2] = [576, 512];
const N_CHOSEN: u64 = 2048;

/// Rows of a cache or a table of embeddings.
const N_ROWS: u64 = 4096;
const N_EXPERTS: u64 = 8;
const N_USED: u64 = 2;

/// All measurements, in the order of a report.
pub fn table() -> Vec<Perf> {
    let products = quant::COMMON
        .into_iter()
        .flat_map(|dtype| STEPS.map(|n| Perf { op: Op::MulMat, dtype, dims: [2048, 2048, n] }));
    products.chain(OTHERS.iter().map(|&(op, dtype, dims)| Perf { op, dtype, dims })).collect()
}

impl Perf {
    /// What it is.
    pub fn name(&self) -> String {
        let [a, b, n] = self.dims;
        match self.op {
            Op::MulMat => format!("{} [{a}, {b}] × {n}", self.dtype),
            Op::MulMatId => format!("{} [{a}, {b}], {N_USED} of {N_EXPERTS} × {n}", self.dtype),
            Op::Attention => format!("{} cache, {a} tokens deep, {b} new, {n} heads of 128", self.dtype),
            _ => format!("{} [{a}, {b}, {n}]", self.dtype),
        }
    }

    /// The op with its operands.
    pub fn case(&self) -> Case {
        Case::new(self.name(), |g, ints| {
            self.build(g, ints);
        })
    }

    fn build(&self, g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>) -> Tensor {
        let [a, b, n] = self.dims;
        match self.op {
            Op::MulMat => {
                let w = g.weight("w", self.dtype, &[a, b], Role::Matrix);
                let x = g.input("x", DType::F32, &[a, n]);
                g.mul_mat(w, x)
            }
            Op::MulMatId => {
                let w = g.weight("w", self.dtype, &[a, b, N_EXPERTS], Role::Experts);
                let x = g.input("x", DType::F32, &[a, 1, n]);
                let ids = g.input("ids", DType::I32, &[N_USED, n]);
                let used = (0..N_USED * n).map(|i| (i * 3 % N_EXPERTS) as i32);
                ints.push((ids, used.collect()));
                g.mul_mat_id(w, x, ids)
            }
            Op::Attention => attention(g, ints, self.dtype, self.dims),
            Op::PagedScores | Op::SparseAttention => chosen(g, ints, self.op, self.dtype, self.dims),
            Op::SetRows => {
                let cache = g.state("k", self.dtype, &[a, N_ROWS], Role::KCache);
                let (x, ids) = (g.input("x", DType::F32, &[a, b]), g.input("ids", DType::I32, &[b]));
                ints.push((ids, (0..b as i32).map(|i| i + 7).collect()));
                g.set_rows(cache, x, ids)
            }
            Op::GetRows => {
                let table = g.weight("w", self.dtype, &[a, N_ROWS], Role::Matrix);
                let ids = g.input("ids", DType::I32, &[b]);
                ints.push((ids, (0..b as i32).map(|i| i * 37 % N_ROWS as i32).collect()));
                g.get_rows(table, ids)
            }
            Op::SsmScan
            | Op::GatedDeltaNet
            | Op::GatedLinearAttn
            | Op::RwkvWkv6
            | Op::RwkvWkv7
            | Op::SsmConvRagged => recurrent(g, ints, self.op, self.dims),
            _ => self.build_of_rows(g, ints),
        }
    }

    /// Ops on rows of F32.
    fn build_of_rows(&self, g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>) -> Tensor {
        let [a, b, n] = self.dims;
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
            Op::Gelu => g.gelu(x),
            Op::Scale => g.scale(x, 0.5),
            Op::Argmax => g.argmax(x),
            Op::Copy => g.cast(x, self.dtype),
            op => {
                let y = g.input("y", DType::F32, &[a, b, n]);
                match op {
                    Op::Glu => g.glu(Activation::Silu, x, Some(y)),
                    Op::Mul => g.mul(x, y),
                    _ => g.add(x, y),
                }
            }
        }
    }

    /// Bytes that must be read and written; `n_all` are those of all tensors. Only chosen rows and experts count.
    pub fn n_bytes(&self, n_all: u64) -> u64 {
        let [a, b, n] = self.dims;
        let row = self.dtype.row_bytes(a).unwrap_or(0);
        match self.op {
            Op::MulMatId => {
                let used = N_EXPERTS.min(N_USED * n);
                n_all - row * b * (N_EXPERTS - used)
            }
            Op::SetRows | Op::GetRows => b * (row + 4 * a),
            _ => n_all,
        }
    }

    /// Multiplications and additions; `None` where bytes are the measure.
    pub fn n_flops(&self) -> Option<u64> {
        let [a, b, n] = self.dims;
        match self.op {
            Op::MulMat => Some(2 * a * b * n),
            Op::MulMatId => Some(2 * a * b * n * N_USED),
            // Of new tokens each sees those before it and itself.
            Op::Attention => Some(4 * 128 * n * seen(a, b)),
            Op::PagedScores => Some(2 * INDEXER_DIM * n * seen(a, b)),
            Op::SparseAttention => Some(2 * (LATENT[0] + LATENT[1]) * n * b * N_CHOSEN.min(a)),
            // Multiplications of each element of the state, each with an addition.
            Op::SsmScan => Some(2 * 3 * a * b * rows_of_head(a) * n),
            Op::GatedDeltaNet => Some(2 * 4 * a * a * b * n),
            Op::GatedLinearAttn | Op::RwkvWkv6 => Some(2 * 3 * a * a * b * n),
            Op::RwkvWkv7 => Some(2 * 5 * a * a * b * n),
            Op::SsmConvRagged => Some(2 * a * b * n),
            _ => None,
        }
    }

    /// Whether weights are read once and then not for long, as in decoding: they come from memory, not from caches.
    pub fn is_cold(&self) -> bool {
        matches!(self.op, Op::MulMat | Op::MulMatId) && self.dims[2] < 64
    }
}

/// Keys that `n` new tokens see together, of `depth` with them: each sees those before it and itself.
fn seen(depth: u64, n: u64) -> u64 {
    n * (depth - n) + n * (n + 1) / 2
}

/// Slots of a block of a cache.
const BLOCK: u64 = 32;

/// One sequence whose cache is full after the step.
fn paged(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, depth: u64, n_tokens: u64) -> Paged {
    let n_blocks = depth / BLOCK;
    let paged = Paged {
        block_table: g.input("block_table", DType::I32, &[n_blocks, 1]),
        seq_lens: g.input("seq_lens", DType::I32, &[1]),
        query_starts: g.input("query_starts", DType::I32, &[2]),
    };
    ints.push((paged.block_table, (0..n_blocks as i32).collect()));
    ints.push((paged.seq_lens, vec![depth as i32]));
    ints.push((paged.query_starts, vec![0, n_tokens as i32]));
    paged
}

fn attention(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, cache: DType, dims: [u64; 3]) -> Tensor {
    let [depth, n_tokens, n_heads] = dims;
    let (head, n_kv) = (128, 8);
    let q = g.input("q", DType::F32, &[head, n_heads, n_tokens]);
    let k = g.state("k", cache, &[head * n_kv, depth], Role::KCache);
    let v = g.state("v", cache, &[head * n_kv, depth], Role::VCache);
    let paged = paged(g, ints, depth, n_tokens);
    let p = AttentionParams {
        n_kv_heads: n_kv as u32,
        block_size: BLOCK as u32,
        scale: 1.0 / 128f32.sqrt(),
        ..Default::default()
    };
    g.attention(q, k, v, &paged, &p)
}

/// Scores of an indexer's keys, or attention to the keys that it chose.
fn chosen(
    g: &mut Graph,
    ints: &mut Vec<(Tensor, Vec<i32>)>,
    op: Op,
    cache: DType,
    [depth, n_tokens, n_heads]: [u64; 3],
) -> Tensor {
    let paged = paged(g, ints, depth, n_tokens);
    if op == Op::PagedScores {
        let q = g.input("q", DType::F32, &[INDEXER_DIM, n_heads, n_tokens]);
        let k = g.state("k", cache, &[INDEXER_DIM, depth], Role::KCache);
        let weights = g.input("weights", DType::F32, &[n_heads, n_tokens]);
        let p = PagedScoresParams { block_size: BLOCK as u32, ..Default::default() };
        return g.paged_scores(q, k, Some(weights), &paged, &p);
    }
    let q = g.input("q", DType::F32, &[LATENT[0], n_heads, n_tokens]);
    let k = g.state("k", cache, &[LATENT[0], depth], Role::KCache);
    let v = g.state("v", cache, &[LATENT[1], depth], Role::VCache);
    let positions = g.input("positions", DType::I32, &[N_CHOSEN, 1, n_tokens]);
    // Every other key, which all tokens see.
    let of_token = (0..N_CHOSEN as i32).map(|i| i * 2);
    ints.push((positions, (0..n_tokens).flat_map(|_| of_token.clone()).collect()));
    let p = SparseAttentionParams { n_kv_heads: 1, block_size: BLOCK as u32, scale: 0.05 };
    g.sparse_attention(q, k, v, positions, None, &paged, &p)
}

/// Rows of a head of Mamba 2; of Mamba, which has few elements to a row.
fn rows_of_head(n_state: u64) -> u64 {
    if n_state < 64 { 1 } else { 64 }
}

/// One sequence, from its state on.
fn recurrent(g: &mut Graph, ints: &mut Vec<(Tensor, Vec<i32>)>, op: Op, [a, b, n]: [u64; 3]) -> Tensor {
    let (ids, starts) = (g.input("ids", DType::I32, &[1]), g.input("query_starts", DType::I32, &[2]));
    ints.push((ids, vec![0]));
    ints.push((starts, vec![0, n as i32]));
    let x = |g: &mut Graph, name: &str, dims: &[u64]| g.input(name, DType::F32, dims);
    match op {
        Op::SsmConvRagged => {
            let (x, kernel) = (x(g, "x", &[a, n]), x(g, "kernel", &[b, a]));
            let states = g.state("states", DType::F32, &[a, b - 1, 1], Role::Other);
            return g.ssm_conv_ragged(x, kernel, states, ids, starts);
        }
        Op::SsmScan => {
            let rows = rows_of_head(a);
            let states = g.state("states", DType::F32, &[a, rows, b, 1], Role::Other);
            let (dt, values) = (x(g, "dt", &[b, n]), x(g, "x", &[rows, b, n]));
            let decay = x(g, "a", &[if rows == 1 { a } else { 1 }, b]);
            let (in_b, in_c) = (x(g, "b", &[a, 1, n]), x(g, "c", &[a, 1, n]));
            return g.ssm_scan_ragged(states, values, dt, decay, in_b, in_c, ids, starts);
        }
        _ => {}
    }
    let [t0, t1, t2, t3] = ["t0", "t1", "t2", "t3"].map(|name| x(g, name, &[a, b, n]));
    if op == Op::GatedDeltaNet {
        let (gate, beta) = (x(g, "g", &[1, b, n]), x(g, "beta", &[1, b, n]));
        let states = g.state("states", DType::F32, &[a, a, b, 1], Role::Other);
        return g.gated_delta_net_ragged(t0, t1, t2, gate, beta, states, ids, starts);
    }
    let states = g.state("states", DType::F32, &[a * a * b, 1], Role::Other);
    match op {
        Op::GatedLinearAttn => g.gated_linear_attn_ragged(t0, t1, t2, t3, states, ids, starts, 1.0),
        Op::RwkvWkv6 => {
            let first = x(g, "first", &[a, b]);
            g.rwkv_wkv6_ragged(t0, t1, t2, first, t3, states, ids, starts)
        }
        _ => {
            let (t4, t5) = (x(g, "t4", &[a, b, n]), x(g, "t5", &[a, b, n]));
            g.rwkv_wkv7_ragged(t0, t1, t2, t3, t4, t5, states, ids, starts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_makes_a_graph_and_has_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for perf in table() {
            let case = perf.case();
            assert!(case.graph.error().is_none(), "{}: {:?}", perf.name(), case.graph.error());
            assert_eq!(case.graph.nodes.last().map(|node| node.op), Some(perf.op), "{}", perf.name());
            assert!(names.insert((perf.op, perf.name())), "{}", perf.name());
        }
    }

    #[test]
    fn only_what_is_used_counts() {
        let perf = |op, dims| Perf { op, dtype: DType::F16, dims };
        assert_eq!(perf(Op::GetRows, [4096, 512, 1]).n_bytes(1 << 40), 512 * 4096 * (2 + 4));
        let experts = perf(Op::MulMatId, [1024, 1024, 1]);
        assert_eq!(experts.n_bytes(8 << 21), 2 << 21);
        assert_eq!(experts.n_flops(), Some(4 << 20));
        assert_eq!(perf(Op::Attention, [512, 512, 1]).n_flops(), Some(4 * 128 * 512 * 513 / 2));
        assert_eq!(perf(Op::Add, [1, 1, 1]).n_flops(), None);
    }
}
