//! Rotary position embedding: pair i of each head turns by pos · base^(-2i/n_dims), with YaRN's blend of frequencies;
//! with four positions per token each pair turns by the position of its section.

use super::check::{self, Answer, ensure};
use super::{Args, Output, Worker, rows};
use llmrt_plugin::abi::op::RopeParams;
use llmrt_plugin::{DType, NodeView, Reason};

const NORMAL: u32 = 0;
const NEOX: u32 = 2;
const MROPE: u32 = 8;
const VISION: u32 = 24;
const INTERLEAVED: u32 = 40;

pub fn supports(node: &NodeView<'_>) -> Answer {
    let p = check::params(RopeParams::from_bytes(node.params_bytes()))?;
    let x = check::numbers(node, 0)?;
    let (ne, n_dims, offset) = (x.ne(), p.n_dims as usize, p.offset as usize);
    ensure(n_dims > 0 && n_dims.is_multiple_of(2) && offset.is_multiple_of(2), Reason::Param)?;
    ensure(offset.saturating_add(n_dims) <= ne[0] && p.back <= 1, Reason::Param)?;
    ensure([NORMAL, NEOX, MROPE, VISION, INTERLEAVED].contains(&p.mode), Reason::Param)?;
    ensure(p.mode != VISION || (n_dims.checked_mul(2) == Some(ne[0]) && offset == 0), Reason::Param)?;
    let mut n_positions = Some(ne[2]);
    if has_sections(&p) {
        let [s0, s1, s2, s3] = sections(&p);
        ensure(s0 + s1 + s2 > 0 && s0 + s1 + s2 + s3 <= ne[0] as u64, Reason::Param)?;
        n_positions = ne[2].checked_mul(4);
    }
    check::vector(&check::ints(node, 1)?, n_positions.ok_or(Reason::Shape)?)?;
    if let Some(factors) = check::optional_floats(node, 2)? {
        ensure(factors.ne()[0] >= n_pairs(&p) && factors.ne()[1..] == [1; 3], Reason::Shape)?;
    }
    check::result(node, x.dtype().ok_or(Reason::Type)?, ne)
}

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    let p = a.params(RopeParams::from_bytes);
    let (x, positions) = (a.arg(0), a.arg(1).ints([0; 3]));
    let factors = a.src[2].as_ref().map(|f| f.row([0; 3]));
    let (head_dim, n_tokens, n_pairs) = (x.ne[0], x.ne[2], n_pairs(&p));
    let mut turned = None;
    for (at, y) in out.rows() {
        let token = at[1];
        let (sin, cos) = w.scratch.rows.take::<f32>(2 * n_pairs).split_at_mut(n_pairs);
        if turned.replace(token) != Some(token) {
            // Angles are stored first where the cosines will be.
            match has_sections(&p) {
                true => thetas_of_sections(&p, [0, 1, 2, 3].map(|j| positions[j * n_tokens + token]), cos),
                false => thetas(&p, positions[token], cos),
            }
            turns(&p, factors, sin, cos);
        }
        let from = rows::read(w.isa, x, at, 0..head_dim, w.scratch.sums.take(head_dim));
        if a.dst.dtype == DType::F32 {
            turn(&p, from, sin, cos, y.floats());
            continue;
        }
        let to = w.scratch.floats[0].take(head_dim);
        turn(&p, from, sin, cos, to);
        y.write(w.isa, to);
    }
}

/// Turns the pairs of a head and copies the rest.
fn turn(p: &RopeParams, from: &[f32], sin: &[f32], cos: &[f32], to: &mut [f32]) {
    let rotated = p.offset as usize..p.offset as usize + 2 * sin.len();
    to[..rotated.start].copy_from_slice(&from[..rotated.start]);
    to[rotated.end..].copy_from_slice(&from[rotated.end..]);
    let (from, to) = (&from[rotated.clone()], &mut to[rotated]);
    if p.mode == NORMAL {
        let pairs = from.as_chunks::<2>().0.iter().zip(to.as_chunks_mut::<2>().0);
        for (i, (from, to)) in pairs.enumerate() {
            to[0] = from[0] * cos[i] - from[1] * sin[i];
            to[1] = from[0] * sin[i] + from[1] * cos[i];
        }
    } else {
        let half = sin.len();
        let (first, second) = from.split_at(half);
        let (to_first, to_second) = to.split_at_mut(half);
        for i in 0..half {
            to_first[i] = first[i] * cos[i] - second[i] * sin[i];
            to_second[i] = first[i] * sin[i] + second[i] * cos[i];
        }
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
fn thetas(p: &RopeParams, pos: i32, out: &mut [f32]) {
    let step = p.freq_base.powf(-2.0 / p.n_dims as f32);
    let mut theta = pos as f32;
    for out in out {
        *out = theta;
        theta *= step;
    }
}

/// As [`thetas`], by the position of each pair's section.
fn thetas_of_sections(p: &RopeParams, positions: [i32; 4], out: &mut [f32]) {
    let step = p.freq_base.powf(-2.0 / p.n_dims as f32);
    let sections = sections(p);
    let starts = [0, sections[0], sections[0] + sections[1], sections[0] + sections[1] + sections[2]];
    let n = starts[3] + sections[3];
    let mut series = positions.map(|pos| pos as f32);
    for (i, out) in out.iter_mut().enumerate() {
        let at = i as u64 % n;
        if p.mode == VISION
            && let Some(section) = starts.iter().position(|&start| start == at)
        {
            series[section] = positions[section] as f32;
        }
        let of_three = (at % 3) as usize;
        let section = match p.mode {
            INTERLEAVED if at < 3 * sections[of_three] => of_three,
            INTERLEAVED => 3,
            _ => starts.iter().rposition(|&start| at >= start).unwrap_or(0),
        };
        *out = series[section];
        series = series.map(|theta| theta * step);
    }
}

/// Sine and cosine of each pair, whose angles `cos` holds at first.
fn turns(p: &RopeParams, factors: Option<&[f32]>, sin: &mut [f32], cos: &mut [f32]) {
    let (low, high) = yarn_range(p);
    let sign = if p.back == 1 { -1.0 } else { 1.0 };
    for i in 0..sin.len() {
        let extrapolated = cos[i] / factors.map_or(1.0, |f| f[i]);
        let interpolated = p.freq_scale * extrapolated;
        let (mut angle, mut magnitude) = (interpolated, p.attn_factor);
        if p.ext_factor != 0.0 {
            let ramp = 1.0 - ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            let mix = ramp * p.ext_factor;
            angle = interpolated * (1.0 - mix) + extrapolated * mix;
            magnitude *= 1.0 + 0.1 * (1.0 / p.freq_scale).ln();
        }
        (sin[i], cos[i]) = (sign * angle.sin() * magnitude, angle.cos() * magnitude);
    }
}

/// YaRN's correction range: pairs before it are extrapolated, pairs past it interpolated.
fn yarn_range(p: &RopeParams) -> (f32, f32) {
    let n = p.n_dims as f32;
    let pair_with_rotations = |rotations: f32| {
        n * (p.n_ctx_orig as f32 / (rotations * 2.0 * std::f32::consts::PI)).ln() / (2.0 * p.freq_base.ln())
    };
    (pair_with_rotations(p.beta_fast).floor().max(0.0), pair_with_rotations(p.beta_slow).ceil().min(n - 1.0))
}
