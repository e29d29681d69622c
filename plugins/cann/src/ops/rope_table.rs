//! Sines and cosines for rope, computed on the card: pair i turns by position · base^(-2i / n_dims), with YaRN's blend.
//!
//! With four positions per token, pairs take turns by sections; which pair turns by which position follows from the
//! params alone, so pairs fall into runs at equal distances, each with one position.

use super::missing;
use super::rope::halves;
use crate::call::{Call, Key};
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::RopeParams;
use llmrt_plugin::{NodeView, Result};

/// Pairs (2i, 2i + 1).
pub const NORMAL: u32 = 0;
/// Pairs (i, i + n_dims / 2).
pub const NEOX: u32 = 2;
const MROPE: u32 = 8;
/// All of a head of 2 · n_dims, pairs (i, i + n_dims), counted again from 0 in each section.
pub const VISION: u32 = 24;
const INTERLEAVED: u32 = 40;

/// Pairs of a head that turn.
pub fn n_pairs(p: &RopeParams) -> i64 {
    i64::from(if p.mode == VISION { p.n_dims } else { p.n_dims / 2 })
}

/// Whether a token has four positions.
pub fn has_sections(p: &RopeParams) -> bool {
    matches!(p.mode, MROPE | VISION | INTERLEAVED)
}

/// Pairs of each section.
pub fn sections(p: &RopeParams) -> [i64; 4] {
    [p.section0, p.section1, p.section2, p.section3].map(i64::from)
}

/// Sine or cosine of every pair [n_pairs, 1, n_tokens], or of every element [2 · n_pairs, 1, n_tokens].
pub fn table(
    call: &mut Call<'_>,
    node: &NodeView<'_>,
    p: &RopeParams,
    which: &'static str,
    wide: bool,
) -> Result<Operand> {
    let positions = node.src(1).ok_or_else(missing)?;
    let factors = node.src(2);
    let rows = [Some(positions.id()), factors.map(|f| f.id())].into_iter().flatten().collect();
    let key = Key("rope", rows, [&p.to_bytes()[..], &[wide.into(), which.as_bytes()[0]]].concat());
    let n_tokens = positions.ne()[0] as i64 / if has_sections(p) { 4 } else { 1 };
    let n = n_pairs(p) * if wide { 2 } else { 1 };
    call.shared(key, ACL_FLOAT, &[n, 1, n_tokens], |call, table| {
        let positions = Operand::of(&positions)?.flat(1);
        let positions = call.cast(&positions, ACL_FLOAT)?.reshape(&[n_tokens, positions.ne[0] / n_tokens]);
        let frequencies = frequencies(call, p, factors.map(|f| Operand::of(&f)).transpose()?)?;
        let frequencies = frequencies.reshape(&[n_pairs(p), 1, 1]);
        let angles = call.temporary(ACL_FLOAT, &[n_pairs(p), 1, n_tokens])?;
        for run in runs(p) {
            let pairs = |t: &Operand| t.slice(0, run.first, (run.n - 1) * run.step + 1).every(0, 0, run.step);
            let position = positions.slice(1, run.position, 1).flat(1).with_dim(0).with_dim(0);
            call.mul(&pairs(&frequencies), &position, &pairs(&angles))?;
        }
        let values = call.temporary(ACL_FLOAT, &angles.ne)?;
        match which {
            "cos" => call.cos(&angles, &values)?,
            _ => call.sin(&angles, &values)?,
        }
        let back = which == "sin" && p.back == 1;
        let magnitude = magnitude(p) * if back { -1.0 } else { 1.0 };
        if !wide {
            return call.scale(&values, magnitude, table);
        }
        call.scale(&values, magnitude, &values)?;
        let (first, second) = halves(p, table);
        call.copy(&values, &first)?;
        call.copy(&values, &second)
    })
}

/// Radians per position of each pair: [n_pairs].
fn frequencies(call: &mut Call<'_>, p: &RopeParams, factors: Option<Operand>) -> Result<Operand> {
    let n = n_pairs(p);
    let (pairs, frequencies) = (call.temporary(ACL_FLOAT, &[n])?, call.temporary(ACL_FLOAT, &[n])?);
    for (first, exponent, n) in exponents(p) {
        call.count(exponent as f32, 1.0, &pairs.slice(0, first, n))?;
    }
    call.scale(&pairs, -2.0 / p.n_dims as f32, &frequencies)?;
    call.power_of(p.freq_base, &frequencies, &frequencies)?;
    if let Some(factors) = factors {
        let factors = call.to(&factors.flat(1).slice(0, 0, n), ACL_FLOAT)?;
        call.div(&frequencies, &factors, &frequencies)?;
    }
    if p.ext_factor == 0.0 {
        call.scale(&frequencies, p.freq_scale, &frequencies)?;
        return Ok(frequencies);
    }
    // angle · (scale · (1 - mix) + mix), where mix is ext_factor before the range and 0 past it
    let (low, high) = yarn_range(p);
    let width = (high - low).max(0.001);
    call.count(0.0, 1.0, &pairs)?;
    call.affine(&pairs, 1.0 / width, -low / width, &pairs)?;
    call.clamp(&pairs, 0.0, 1.0, &pairs)?;
    let mix = p.ext_factor * (1.0 - p.freq_scale);
    call.affine(&pairs, -mix, p.freq_scale + mix, &pairs)?;
    call.mul(&frequencies, &pairs, &frequencies)?;
    Ok(frequencies)
}

/// Pairs first, first + step, … that turn by one of a token's positions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PairRun {
    position: i64,
    first: i64,
    step: i64,
    n: i64,
}

/// All pairs in runs.
fn runs(p: &RopeParams) -> Vec<PairRun> {
    let mut runs: Vec<PairRun> = Vec::new();
    for pair in 0..n_pairs(p) {
        let position = position(p, pair);
        match runs.iter_mut().rev().find(|run| run.position == position) {
            Some(run) if run.n == 1 => (run.step, run.n) = (pair - run.first, 2),
            Some(run) if run.first + run.step * run.n == pair => run.n += 1,
            _ => runs.push(PairRun { position, first: pair, step: 1, n: 1 }),
        }
    }
    runs
}

/// Which position a pair turns by.
fn position(p: &RopeParams, pair: i64) -> i64 {
    if !has_sections(p) {
        return 0;
    }
    let sections = sections(p);
    let at = pair % sections.iter().sum::<i64>();
    match p.mode {
        INTERLEAVED if at < 3 * sections[(at % 3) as usize] => at % 3,
        INTERLEAVED => 3,
        _ => starts(p).iter().rposition(|&start| at >= start).unwrap_or(0) as i64,
    }
}

/// The first pair of each section.
fn starts(p: &RopeParams) -> [i64; 4] {
    let [s0, s1, s2, _] = sections(p);
    [0, s0, s0 + s1, s0 + s1 + s2]
}

/// Runs (first pair, its exponent, pairs): exponents count pairs, in vision mode from the start of a section. One that
/// shares its start with a section before it counts on.
fn exponents(p: &RopeParams) -> Vec<(i64, i64, i64)> {
    let (starts, mut counts, mut runs) = (starts(p), [0; 4], Vec::<(i64, i64, i64)>::new());
    for pair in 0..n_pairs(p) {
        let at = pair % sections(p).iter().sum::<i64>().max(1);
        if let Some(section) = starts.iter().position(|&start| p.mode == VISION && start == at) {
            counts[section] = 0;
        }
        let exponent = counts[position(p, pair) as usize];
        match runs.last_mut() {
            Some(run) if run.1 + run.2 == exponent => run.2 += 1,
            _ => runs.push((pair, exponent, 1)),
        }
        counts = counts.map(|n| n + 1);
    }
    runs
}

/// Factor on sine and cosine.
fn magnitude(p: &RopeParams) -> f32 {
    match p.ext_factor {
        0.0 => p.attn_factor,
        _ => p.attn_factor * (1.0 + 0.1 * (1.0 / p.freq_scale).ln()),
    }
}

/// YaRN's correction range: pairs before it are extrapolated, pairs past it interpolated (arXiv 2309.00071).
fn yarn_range(p: &RopeParams) -> (f32, f32) {
    let n = p.n_dims as f32;
    let pair_with = |rotations: f32| {
        let turns = p.n_ctx_orig as f32 / (rotations * 2.0 * std::f32::consts::PI);
        n * turns.ln() / (2.0 * p.freq_base.ln())
    };
    (pair_with(p.beta_fast).floor().max(0.0), pair_with(p.beta_slow).ceil().min(n - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(mode: u32, n_dims: u32, [section0, section1, section2, section3]: [u32; 4]) -> RopeParams {
        RopeParams { mode, n_dims, section0, section1, section2, section3, ..Default::default() }
    }

    #[test]
    fn pairs_of_a_section_are_a_run() {
        let of =
            |p: &RopeParams| runs(p).iter().map(|r| (r.position, r.first, r.step, r.n)).collect::<Vec<_>>();
        assert_eq!(of(&params(NEOX, 16, [0; 4])), [(0, 0, 1, 8)]);
        assert_eq!(of(&params(MROPE, 16, [3, 2, 3, 0])), [(0, 0, 1, 3), (1, 3, 1, 2), (2, 5, 1, 3)]);
        let interleaved = params(INTERLEAVED, 16, [2, 2, 2, 2]);
        assert_eq!(of(&interleaved), [(0, 0, 3, 2), (1, 1, 3, 2), (2, 2, 3, 2), (3, 6, 1, 2)]);
    }

    #[test]
    fn vision_counts_pairs_from_0_in_each_section() {
        assert_eq!(exponents(&params(VISION, 8, [5, 3, 0, 0])), [(0, 0, 5), (5, 0, 3)]);
        assert_eq!(exponents(&params(MROPE, 16, [5, 3, 0, 0])), [(0, 0, 8)]);
    }

    #[test]
    fn the_range_of_yarn_is_that_of_the_paper() {
        let p = RopeParams {
            n_dims: 64,
            n_ctx_orig: 4096,
            freq_base: 10000.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            ..Default::default()
        };
        assert_eq!(yarn_range(&p), (10.0, 23.0));
    }
}
