//! Rotary position embedding: pair i of each head turns by pos · base^(-2i/n_dims), with YaRN's blend of frequencies.
//! Follows the formulas of RoPE (arXiv 2104.09864) and YaRN (arXiv 2309.00071) as GGUF models were made for.
//!
//! With four positions per token (M-RoPE, arXiv 2409.12191) pairs take turns by sections: of every s0 + s1 + s2 + s3
//! pairs the first s0 turn by position 0, the next s1 by position 1, and so on. Interleaved (mode 40), pair j of them
//! turns by position j mod 3 as long as j is below three times that section, by position 3 from there on. The vision
//! mode turns all pairs (i, i + n_dims) of a head of 2 · n_dims and restarts i at 0 in each section.
//!
//! The turn of pair i, with f_i = freq_factors[i] or 1: e = pos · base^(-2i/n_dims) / f_i, angle = freq_scale · e, factor
//! on sine and cosine attn_factor. With ext_factor ≠ 0 (YaRN): m = ext_factor · (1 - clamp((i - low) / max(0.001, high -
//! low), 0, 1)), angle = freq_scale · e · (1 - m) + e · m, factor attn_factor · (1 + 0.1 · ln(1 / freq_scale)), with
//! c(β) = n_dims · ln(n_ctx_orig / (2π β)) / (2 ln base), low = max(0, floor(c(beta_fast))), high = min(n_dims - 1,
//! ceil(c(beta_slow))).
//!
//! Result: dtype (F32, F16 or BF16) and shape of x.

use super::{Inferred, Rules, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{Op, op::RopeParams};

#[path = "rope_cases.rs"]
mod rope_cases;
#[cfg(test)]
#[path = "rope_tests.rs"]
mod rope_tests;

impl Graph {
    /// Turns `x` [head_dim, n_heads, n_tokens, n_seqs] by `positions` [n_tokens], those of all sequences, or
    /// [4 · n_tokens] in the modes of four positions: position j of token t is element j · n_tokens + t.
    /// `freq_factors`, at least one per pair, divide the angles. Elements that are not rotated are copied.
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

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: rope_cases::cases };

const NORMAL: u32 = 0;
const NEOX: u32 = 2;
const MROPE: u32 = 8;
const VISION: u32 = 24;
const INTERLEAVED: u32 = 40;

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(RopeParams::from_bytes(params))?;
    let x = check::numbers(src, 0, "x")?;
    let (n_dims, offset) = (p.n_dims as u64, p.offset as u64);
    if n_dims == 0 || n_dims % 2 != 0 || offset % 2 != 0 || offset + n_dims > x.ne[0] {
        return Err(format!("{n_dims} rotated from {offset} on, of {} elements in a head", x.ne[0]));
    }
    if ![NORMAL, NEOX, MROPE, VISION, INTERLEAVED].contains(&p.mode) {
        return Err(format!("mode {} is unknown, expected 0, 2, 8, 24 or 40", p.mode));
    }
    if p.back > 1 {
        return Err(format!("back is {}, expected 0 or 1", p.back));
    }
    if p.mode == VISION && (x.ne[0] != 2 * n_dims || offset != 0) {
        return Err(format!("vision mode of {n_dims} in heads of {}, expected half of them", x.ne[0]));
    }
    let mut n_positions = x.ne[2];
    if has_sections(&p) {
        let [s0, s1, s2, s3] = sections(&p);
        if s0 + s1 + s2 == 0 || s0 + s1 + s2 + s3 > x.ne[0] {
            return Err(format!("sections {:?} in heads of {}", sections(&p), x.ne[0]));
        }
        n_positions = n_positions.checked_mul(4).ok_or("too many tokens")?;
    }
    check::vector(check::ints(src, 1, "positions")?, n_positions, "positions")?;
    if let Some(f) = check::optional_floats(src, 2, "freq_factors")?
        && (f.ne[0] < n_pairs(&p) as u64 || f.ne[1..] != [1; 3])
    {
        return Err(format!("freq_factors {:?} for {} pairs", f.ne, n_pairs(&p)));
    }
    Ok((x.dtype, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = RopeParams::from_bytes(params).unwrap_or_default();
    let (x, positions) = (check::arg(src, 0), check::arg(src, 1).ints());
    let factors = check::optional_arg(src, 2).map(|f| f.floats());
    let (head_dim, n_heads, n_tokens) = (x.ne[0] as usize, x.ne[1] as usize, x.ne[2] as usize);
    let mut y = x.floats().to_vec();
    for (i, token) in y.chunks_exact_mut(head_dim * n_heads).enumerate() {
        let thetas = match has_sections(&p) {
            true => thetas_of_sections(&p, [0, 1, 2, 3].map(|j| positions[j * n_tokens + i % n_tokens])),
            false => thetas(&p, positions[i % n_tokens]),
        };
        let turns = turns(&p, &thetas, factors);
        for head in token.chunks_exact_mut(head_dim) {
            for (i, (sin, cos)) in turns.iter().enumerate() {
                let [a, b] = pair(&p, i);
                (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
            }
        }
    }
    Value::f32(x.ne, y)
}

/// The two elements of pair `i` of a head.
fn pair(p: &RopeParams, i: usize) -> [usize; 2] {
    let offset = p.offset as usize;
    match p.mode {
        NORMAL => [offset + 2 * i, offset + 2 * i + 1],
        _ => [offset + i, offset + i + n_pairs(p)],
    }
}

/// Pairs of a head that turn.
fn n_pairs(p: &RopeParams) -> usize {
    if p.mode == VISION { p.n_dims as usize } else { p.n_dims as usize / 2 }
}

fn has_sections(p: &RopeParams) -> bool {
    matches!(p.mode, MROPE | VISION | INTERLEAVED)
}

fn sections(p: &RopeParams) -> [u64; 4] {
    [p.section0, p.section1, p.section2, p.section3].map(u64::from)
}

/// pos · base^(-2i/n_dims) of each pair.
fn thetas(p: &RopeParams, pos: i32) -> Vec<f32> {
    let step = p.freq_base.powf(-2.0 / p.n_dims as f32);
    let mut theta = pos as f32;
    let mut thetas = vec![];
    for _ in 0..n_pairs(p) {
        thetas.push(theta);
        theta *= step;
    }
    thetas
}

/// As [`thetas`], by the position of each pair's section.
fn thetas_of_sections(p: &RopeParams, positions: [i32; 4]) -> Vec<f32> {
    let step = p.freq_base.powf(-2.0 / p.n_dims as f32);
    let sections = sections(p);
    let starts = [0, sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]];
    let mut series = positions.map(|pos| pos as f32);
    let mut thetas = vec![];
    for i in 0..n_pairs(p) as u64 {
        let at = i % sections.iter().sum::<u64>();
        let of_start = starts.iter().position(|&start| start == at);
        if let Some(section) = of_start.filter(|_| p.mode == VISION) {
            series[section] = positions[section] as f32;
        }
        let of_three = (at % 3) as usize;
        let section = match p.mode {
            INTERLEAVED if at < 3 * sections[of_three] => of_three,
            INTERLEAVED => 3,
            _ => starts.iter().rposition(|&start| at >= start).unwrap_or(0),
        };
        thetas.push(series[section]);
        series = series.map(|theta| theta * step);
    }
    thetas
}

/// Sine and cosine of each pair.
fn turns(p: &RopeParams, thetas: &[f32], factors: Option<&[f32]>) -> Vec<(f32, f32)> {
    let (low, high) = yarn_range(p);
    let turn = |(i, theta): (usize, &f32)| {
        let extrapolated = theta / factors.map_or(1.0, |f| f[i]);
        let interpolated = p.freq_scale * extrapolated;
        let (mut angle, mut magnitude) = (interpolated, p.attn_factor);
        if p.ext_factor != 0.0 {
            let ramp = 1.0 - ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let mix = ramp * p.ext_factor;
            angle = interpolated * (1.0 - mix) + extrapolated * mix;
            magnitude *= 1.0 + 0.1 * (1.0 / p.freq_scale).ln();
        }
        let sign = if p.back == 1 { -1.0 } else { 1.0 };
        (sign * angle.sin() * magnitude, angle.cos() * magnitude)
    };
    thetas.iter().enumerate().map(turn).collect()
}

/// YaRN's correction range: pairs before it are extrapolated, pairs past it interpolated.
fn yarn_range(p: &RopeParams) -> (f32, f32) {
    let n = p.n_dims as f32;
    let pair_with_rotations = |rotations: f32| {
        n * (p.n_ctx_orig as f32 / (rotations * 2.0 * std::f32::consts::PI)).ln() / (2.0 * p.freq_base.ln())
    };
    (pair_with_rotations(p.beta_fast).floor().max(0.0), pair_with_rotations(p.beta_slow).ceil().min(n - 1.0))
}
