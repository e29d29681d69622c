//! Turns of small heads, against numbers that ggml computed.

use super::*;
use crate::ops::tests::{check, floats, ints};
use llmrt_abi::DType;

const P: RopeParams = RopeParams {
    n_dims: 12,
    mode: MROPE,
    n_ctx_orig: 4096,
    freq_base: 100.0,
    freq_scale: 1.0,
    ext_factor: 0.0,
    attn_factor: 1.0,
    beta_fast: 32.0,
    beta_slow: 1.0,
    section0: 2,
    section1: 1,
    section2: 1,
    section3: 1,
    back: 0,
    offset: 0,
};

/// Heads of ¼, ½, ¾ … at these positions.
fn check_turns(p: RopeParams, positions: &[i32], expected: &[f32]) {
    let n = expected.len();
    let x: Vec<f32> = (1..=n).map(|i| i as f32 / 4.0).collect();
    let build = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[n as u64]);
        let pos = g.input("pos", DType::I32, &[positions.len() as u64]);
        g.rope(x, pos, None, &p)
    };
    check(build, &[("x", floats(&x)), ("pos", ints(positions))], expected);
}

#[test]
fn sections_turn_by_their_own_positions() {
    let expected = [
        -1.337499, -0.4482424, -0.2583261, 0.2165361, 0.720871, 1.435024, 1.155897, 2.012232, 2.357598,
        2.683861, 2.933487, 3.031618,
    ];
    check_turns(P, &[1, 2, 3, 4], &expected);
}

#[test]
fn interleaved_sections_turn_by_thirds() {
    let expected = [
        -1.337499, -1.301635, -0.7563629, 0.7454207, 0.720871, 1.435024, 1.155897, 1.59867, 2.247869,
        2.587344, 2.933487, 3.031618,
    ];
    check_turns(RopeParams { mode: INTERLEAVED, ..P }, &[1, 2, 3, 4], &expected);
}

#[test]
fn frequencies_restart_at_each_section_of_an_image() {
    let expected = [
        -1.337499,
        0.060_879_53,
        -2.358029,
        -1.342793,
        -1.638667,
        0.8239806,
        1.155897,
        2.060654,
        -0.2543573,
        -2.333861,
        2.53767,
        3.251316,
    ];
    check_turns(RopeParams { mode: VISION, n_dims: 6, section3: 0, ..P }, &[1, 2, 3, 4], &expected);
}

#[test]
fn back_turns_the_other_way_with_the_same_magnitude() {
    let p = RopeParams {
        mode: NEOX,
        n_dims: 4,
        freq_scale: 0.5,
        ext_factor: 1.0,
        attn_factor: 1.1,
        back: 1,
        ..P
    };
    check_turns(p, &[3], &[-0.1666248, 0.9094599, -0.914854, 0.9499086]);
}

#[test]
fn elements_before_the_offset_stay() {
    let p = RopeParams {
        mode: NEOX,
        n_dims: 4,
        freq_scale: 0.5,
        ext_factor: 1.0,
        attn_factor: 1.1,
        back: 1,
        ..P
    };
    let build = |g: &mut Graph| {
        let x = g.input("x", DType::F32, &[6]);
        let pos = g.input("pos", DType::I32, &[1]);
        g.rope(x, pos, None, &RopeParams { offset: 2, ..p })
    };
    let x = floats(&[7.0, 8.0, 0.25, 0.5, 0.75, 1.0]);
    let expected = [7.0, 8.0, -0.1666248, 0.9094599, -0.914854, 0.9499086];
    check(build, &[("x", x), ("pos", ints(&[3]))], &expected);
}
