//! Rotary position embedding: pair i of each head turns by pos · base^(-2i/n_dims), with YaRN's blend of frequencies.
//! Follows the formulas of RoPE (arXiv 2104.09864) and YaRN (arXiv 2309.00071) as GGUF models were made for.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::RopeParams};

impl Graph {
    /// Turns `x` [head_dim, n_heads, n_tokens] by `positions` [n_tokens]. `freq_factors` [n_dims / 2] divide the
    /// angles. Elements past `n_dims` are copied.
    pub fn rope(
        &mut self,
        x: Tensor,
        positions: Tensor,
        freq_factors: Option<Tensor>,
        p: &RopeParams,
    ) -> Tensor {
        match freq_factors {
            Some(f) => self.push(Op::Rope, &[Some(x), Some(positions), Some(f)], &p.to_bytes()),
            None => self.push(Op::Rope, &[Some(x), Some(positions)], &p.to_bytes()),
        }
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

const NORMAL: u32 = 0;
const NEOX: u32 = 2;

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(RopeParams::from_bytes(params))?;
    let x = check::floats(src, 0, "x")?;
    let n_dims = p.n_dims as u64;
    if n_dims == 0 || !n_dims.is_multiple_of(2) || n_dims > x.ne[0] {
        return Err(format!("{n_dims} rotated of {} elements in a head", x.ne[0]));
    }
    if p.mode != NORMAL && p.mode != NEOX {
        return Err(format!("mode {} is unknown, expected 0 or 2", p.mode));
    }
    if x.ne[3] != 1 {
        return Err(format!("x is {:?}, expected [head_dim, n_heads, n_tokens]", x.ne));
    }
    check::vector(check::ints(src, 1, "positions")?, x.ne[2], "positions")?;
    if let Some(f) = check::optional_floats(src, 2, "freq_factors")? {
        check::vector(f, n_dims / 2, "freq_factors")?;
    }
    Ok((DType::F32, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = RopeParams::from_bytes(params).unwrap_or_default();
    let (x, positions) = (check::arg(src, 0), check::arg(src, 1));
    let factors = check::optional_arg(src, 2).map(|f| f.floats());
    let (head_dim, n_heads) = (x.ne[0] as usize, x.ne[1] as usize);
    let half = p.n_dims as usize / 2;
    let mut y = x.floats().to_vec();
    for (token, &pos) in y.chunks_exact_mut(head_dim * n_heads).zip(positions.ints()) {
        let turns = turns(&p, pos, factors);
        for head in token.chunks_exact_mut(head_dim) {
            for (i, (sin, cos)) in turns.iter().enumerate() {
                let (a, b) = if p.mode == NEOX { (i, i + half) } else { (2 * i, 2 * i + 1) };
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
            }
        }
    }
    Value::f32(x.ne, y)
}

/// Sine and cosine of each pair at a position.
fn turns(p: &RopeParams, pos: i32, factors: Option<&[f32]>) -> Vec<(f32, f32)> {
    let step = p.freq_base.powf(-2.0 / p.n_dims as f32);
    let (low, high) = yarn_range(p);
    let mut theta = pos as f32;
    let mut turns = Vec::with_capacity(p.n_dims as usize / 2);
    for i in 0..p.n_dims as usize / 2 {
        let extrapolated = theta / factors.map_or(1.0, |f| f[i]);
        let interpolated = p.freq_scale * extrapolated;
        let (mut angle, mut magnitude) = (interpolated, p.attn_factor);
        if p.ext_factor != 0.0 {
            let ramp = 1.0 - ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let mix = ramp * p.ext_factor;
            angle = interpolated * (1.0 - mix) + extrapolated * mix;
            magnitude *= 1.0 + 0.1 * (1.0 / p.freq_scale).ln();
        }
        turns.push((angle.sin() * magnitude, angle.cos() * magnitude));
        theta *= step;
    }
    turns
}

/// YaRN's correction range: pairs before it are extrapolated, pairs past it interpolated.
fn yarn_range(p: &RopeParams) -> (f32, f32) {
    let n = p.n_dims as f32;
    let pair_with_rotations = |rotations: f32| {
        n * (p.n_ctx_orig as f32 / (rotations * 2.0 * std::f32::consts::PI)).ln() / (2.0 * p.freq_base.ln())
    };
    (pair_with_rotations(p.beta_fast).floor().max(0.0), pair_with_rotations(p.beta_slow).ceil().min(n - 1.0))
}

fn cases() -> Vec<Case> {
    let plain = RopeParams {
        n_dims: 64,
        mode: NORMAL,
        n_ctx_orig: 4096,
        freq_base: 10000.0,
        freq_scale: 1.0,
        ext_factor: 0.0,
        attn_factor: 1.0,
        beta_fast: 32.0,
        beta_slow: 1.0,
        ..RopeParams::default()
    };
    let yarn = RopeParams { freq_scale: 0.25, ext_factor: 1.0, attn_factor: 1.2, ..plain };
    let mut cases = vec![];
    for mode in [NORMAL, NEOX] {
        for (name, p) in [
            ("plain", plain),
            ("partial", RopeParams { n_dims: 20, ..plain }),
            ("linear scaling", RopeParams { freq_scale: 0.5, ..plain }),
            ("yarn", yarn),
            ("partial yarn, half extrapolated", RopeParams { n_dims: 32, ext_factor: 0.5, ..yarn }),
            ("base of a million", RopeParams { freq_base: 1e6, ..plain }),
        ] {
            for factors in [false, true] {
                let p = RopeParams { mode, ..p };
                let name = format!("mode {mode}, {name}, factors {factors}");
                cases.push(Case::new(name, |g, ints| {
                    let x = g.input("x", DType::F32, &[64, 3, 5]);
                    let pos = g.input("positions", DType::I32, &[5]);
                    ints.push((pos, vec![0, 1, 2, 100, 1023]));
                    let f = factors.then(|| {
                        let f = g.input("uniform", DType::F32, &[p.n_dims as u64 / 2]);
                        let f = g.sigmoid(f);
                        g.scale_bias(f, 3.0, 1.0)
                    });
                    g.rope(x, pos, f, &p);
                }));
            }
        }
        cases.push(Case::new(format!("mode {mode}, heads of a fused projection"), |g, ints| {
            let qkv = g.input("qkv", DType::F32, &[3 * 128, 4]);
            let q = g.slice(qkv, 0, 128, 128);
            let q = g.split_heads(q, 2);
            let pos = g.input("positions", DType::I32, &[4]);
            ints.push((pos, vec![7, 3, 3, 12]));
            g.rope(q, pos, None, &RopeParams { mode, ..plain });
        }));
        cases.push(Case::new(format!("mode {mode}, one head of two"), |g, ints| {
            let x = g.input("x", DType::F32, &[2, 1, 1]);
            let pos = g.input("positions", DType::I32, &[1]);
            ints.push((pos, vec![5]));
            g.rope(x, pos, None, &RopeParams { mode, n_dims: 2, ..plain });
        }));
    }
    cases
}
