//! Rotary position embedding: pair i of each head turns by pos · base^(-2i / n_dims), with YaRN's blend.
//!
//! Sine and cosine are computed from the positions on the card, once per graph for all layers. Heads that turn as a
//! whole go to the library's operator where its limits allow, others are turned by products of their halves.

use super::check::{self, Answer, ensure};
use super::steps::has;
use super::{missing, source};
use crate::call::{Call, Key, run};
use crate::chip::Chip;
use crate::library::Cann;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::abi::op::RopeParams;
use llmrt_plugin::{DType, NodeView, Reason, Result};

const NORMAL: u32 = 0;
const NEOX: u32 = 2;

pub fn supports(cann: &Cann, chip: &Chip, node: &NodeView<'_>) -> Answer {
    has!(cann, math.aclnnArange, math.aclnnMuls, math.aclnnPowScalarTensor, math.aclnnMul, math.aclnnDiv)?;
    has!(cann, math.aclnnSin, math.aclnnCos, math.aclnnAdd, math.aclnnSub, math.aclnnInplaceCopy)?;
    let p = check::params(RopeParams::from_bytes(node.params_bytes()))?;
    ensure((p.mode == NORMAL || p.mode == NEOX) && p.back <= 1, Reason::Param)?;
    let x = check::floats(chip, node, 0)?;
    let n_dims = p.n_dims as usize;
    let in_head = n_dims > 0 && n_dims.is_multiple_of(2) && n_dims <= x.ne()[0];
    ensure(in_head && x.ne()[3] == 1, Reason::Shape)?;
    let positions = check::ints(node, 1)?;
    ensure(positions.ne() == [x.ne()[2], 1, 1, 1], Reason::Shape)?;
    if node.src(2).is_some() {
        let factors = check::floats(chip, node, 2)?;
        ensure(factors.ne()[0] >= n_dims / 2, Reason::Shape)?;
    }
    check::result(node, Some(DType::F32), x.ne())
}

pub fn compute(call: &mut Call<'_>, node: &NodeView<'_>) -> Result<()> {
    let p = RopeParams::from_bytes(node.params_bytes()).unwrap_or_default();
    let (x, y) = (source(node, 0)?.flat(3), Operand::of(&node.dst())?.flat(3));
    if let Some(mode) = library_mode(call, &p, &x, &y) {
        let (cos, sin) = (table(call, node, &p, "cos", true)?, table(call, node, &p, "sin", true)?);
        let heads = |t: &Operand| Operand {
            ne: [&t.ne[..], &[1]].concat(),
            stride: [&t.stride[..], &[0]].concat(),
            ..t.clone()
        };
        let (x, cos, sin, y) = (
            call.tensor(&heads(&x))?,
            call.tensor(&heads(&cos))?,
            call.tensor(&heads(&sin))?,
            call.tensor(&heads(&y))?,
        );
        return run!(call, transformer.aclnnRotaryPositionEmbedding(x, cos, sin, mode, y));
    }
    let (cos, sin) = (table(call, node, &p, "cos", false)?, table(call, node, &p, "sin", false)?);
    turn(call, &p, &x, &cos, &sin, &y)
}

/// The library's number of the mode, if its operator takes these heads.
fn library_mode(call: &Call<'_>, p: &RopeParams, x: &Operand, y: &Operand) -> Option<i64> {
    let chip = &call.stream.chip;
    let has = call.stream.runtime.cann.transformer.aclnnRotaryPositionEmbedding.plan.is_some();
    let (d, heads) = (x.ne[0], x.ne[1]);
    let whole = p.n_dims as i64 == d && x.dtype == ACL_FLOAT && y.is_contiguous();
    let small = chip.bf16 || (p.mode == NEOX && d <= 128 && d % 32 == 0);
    (has && whole && small && d < 896 && heads < 1000).then_some(if p.mode == NEOX { 0 } else { 1 })
}

/// The elements that turn, as halves of pairs.
fn halves(p: &RopeParams, t: &Operand) -> (Operand, Operand) {
    let (n, half) = (p.n_dims as i64, p.n_dims as i64 / 2);
    let turned = t.slice(0, 0, n);
    match p.mode {
        NEOX => (turned.slice(0, 0, half), turned.slice(0, half, half)),
        _ => (turned.every(0, 0, 2), turned.every(0, 1, 2)),
    }
}

/// Halves a, b become a · cos - b · sin, a · sin + b · cos; elements past the turned ones are copied.
fn turn(
    call: &mut Call<'_>,
    p: &RopeParams,
    x: &Operand,
    cos: &Operand,
    sin: &Operand,
    y: &Operand,
) -> Result<()> {
    let x = call.to(x, ACL_FLOAT)?;
    let ((a, b), (to_a, to_b)) = (halves(p, &x), halves(p, y));
    let (one, other) = (call.temporary(ACL_FLOAT, &a.ne)?, call.temporary(ACL_FLOAT, &a.ne)?);
    call.mul(&a, cos, &one)?;
    call.mul(&b, sin, &other)?;
    call.sub(&one, &other, &to_a)?;
    call.mul(&a, sin, &one)?;
    call.mul(&b, cos, &other)?;
    call.add(&one, &other, &to_b)?;
    let (n, rest) = (p.n_dims as i64, x.ne[0] - p.n_dims as i64);
    if rest > 0 {
        call.copy(&x.slice(0, n, rest), &y.slice(0, n, rest))?;
    }
    Ok(())
}

/// Sine or cosine of every pair [n_dims / 2, 1, n_tokens], or of every element [n_dims, 1, n_tokens].
fn table(
    call: &mut Call<'_>,
    node: &NodeView<'_>,
    p: &RopeParams,
    which: &'static str,
    wide: bool,
) -> Result<Operand> {
    let positions = node.src(1).ok_or_else(missing)?;
    let factors = node.src(2);
    let rows = [Some(positions.id()), factors.map(|f| f.id())].into_iter().flatten().collect();
    let key = |what, more: u8| Key(what, rows, [&p.to_bytes()[..], &[more, which.as_bytes()[0]]].concat());
    let (half, n_tokens) = (p.n_dims as i64 / 2, positions.ne()[0] as i64);
    let n = if wide { 2 * half } else { half };
    call.shared(key("rope", wide.into()), ACL_FLOAT, &[n, 1, n_tokens], |call, table| {
        let angles = angles(
            call,
            p,
            &Operand::of(&positions)?.flat(1),
            factors.map(|f| Operand::of(&f)).transpose()?,
        )?;
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

/// Angles [n_dims / 2, 1, n_tokens] in radians.
fn angles(
    call: &mut Call<'_>,
    p: &RopeParams,
    positions: &Operand,
    factors: Option<Operand>,
) -> Result<Operand> {
    let half = p.n_dims as i64 / 2;
    let (pairs, frequencies) = (call.temporary(ACL_FLOAT, &[half])?, call.temporary(ACL_FLOAT, &[half])?);
    call.count(0.0, 1.0, &pairs)?;
    call.scale(&pairs, -2.0 / p.n_dims as f32, &frequencies)?;
    call.power_of(p.freq_base, &frequencies, &frequencies)?;
    if let Some(factors) = factors {
        let factors = call.to(&factors.flat(1).slice(0, 0, half), ACL_FLOAT)?;
        call.div(&frequencies, &factors, &frequencies)?;
    }
    if p.ext_factor != 0.0 {
        // angle · (scale · (1 - mix) + mix), where mix is ext_factor before the range and 0 past it
        let (low, high) = yarn_range(p);
        let width = (high - low).max(0.001);
        call.affine(&pairs, 1.0 / width, -low / width, &pairs)?;
        call.clamp(&pairs, 0.0, 1.0, &pairs)?;
        let mix = p.ext_factor * (1.0 - p.freq_scale);
        call.affine(&pairs, -mix, p.freq_scale + mix, &pairs)?;
        call.mul(&frequencies, &pairs, &frequencies)?;
    } else {
        call.scale(&frequencies, p.freq_scale, &frequencies)?;
    }
    let (positions, angles) =
        (call.cast(positions, ACL_FLOAT)?, call.temporary(ACL_FLOAT, &[half, 1, positions.ne[0]])?);
    call.mul(&frequencies, &positions.reshape(&[1, 1, positions.ne[0]]), &angles)?;
    Ok(angles)
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

    #[test]
    fn pairs_are_neighbours_or_halves_apart() {
        let t = Operand::contiguous(ACL_FLOAT, &[8, 2, 3], std::ptr::null_mut());
        let p = |mode| RopeParams { n_dims: 6, mode, ..Default::default() };
        let (a, b) = halves(&p(NORMAL), &t);
        assert_eq!((a.ne[0], a.stride[0], a.offset, b.ne[0], b.offset), (3, 2, 0, 3, 1));
        let (a, b) = halves(&p(NEOX), &t);
        assert_eq!((a.ne[0], a.stride[0], a.offset, b.ne[0], b.offset), (3, 1, 0, 3, 3));
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
