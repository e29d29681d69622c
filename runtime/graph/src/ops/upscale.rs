//! y = x sampled at another resolution, by ggml's formulas for interpolate. With s_d = ne_d(y) / ne_d(x), element i of
//! dim d is at (i + 1/2) / s_d - 1/2 of x; with aligned corners at i / s_d, s_d = (ne_d(y) - 1) / (ne_d(x) - 1).
//! Nearest takes the element floor(i / s_d). Bilinear and bicubic (a = -0.75) work in dims 0 and 1, past the edge with
//! the elements at the edge; dims 2 and 3 stay nearest.
//!
//! Antialiased bilinear weighs elements of x by 1 - distance / r, r = max(1, 1 / s_d), and divides by the sum of weights.
//! From a place p on it takes those from floor(p + 1/2 - r + 1/2) up to floor(p + 1/2 + r + 1/2), which is not among them;
//! with aligned corners, without the halves, that leaves out the last one in reach, as in ggml.
//!
//! Result: dtype of x (F32, F16 or BF16); the dims of the params.

use super::operand::NUMBERS;
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef, shape};
use llmrt_abi::{DType, Op, op::UpscaleParams};

/// How elements between elements are found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum Interpolation {
    /// The element before.
    Nearest = 0,
    /// From the four around.
    Bilinear = 1,
    /// From the sixteen around.
    Bicubic = 2,
    /// As bilinear, from all that an element of the result covers where x shrinks.
    BilinearAntialiased = 3,
}

impl Interpolation {
    /// All, in the order of their numbers.
    pub const ALL: [Interpolation; 4] = [
        Interpolation::Nearest,
        Interpolation::Bilinear,
        Interpolation::Bicubic,
        Interpolation::BilinearAntialiased,
    ];
}

impl Graph {
    /// `x` at the resolution `dims`. With `align_corners` the corners of both coincide.
    pub fn upscale(&mut self, x: Tensor, dims: &[u64], by: Interpolation, align_corners: bool) -> Tensor {
        // A dim too large for the params becomes one that the shape rule refuses.
        let [ne0, ne1, ne2, ne3] = shape(dims).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
        let p = UpscaleParams { mode: by as u32, align_corners: align_corners as u32, ne0, ne1, ne2, ne3 };
        self.push(Op::Upscale, &[Some(x)], &p.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(UpscaleParams::from_bytes(params))?;
    if p.align_corners > 1 || Interpolation::ALL.get(p.mode as usize).is_none() {
        return Err(format!("mode {} with align_corners {} is unknown", p.mode, p.align_corners));
    }
    let (x, ne) = (check::numbers(src, 0, "x")?, dims(&p));
    let is_too_large = ne.contains(&u32::MAX.into());
    if is_too_large || (x.ne.contains(&0) && !ne.contains(&0)) {
        return Err(format!("{:?} to {ne:?}: too large, or made of nothing", x.ne));
    }
    Ok((x.dtype, ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = UpscaleParams::from_bytes(params).unwrap_or_default();
    let (x, ne) = (check::arg(src, 0), dims(&p));
    let mut scale: [f32; 4] = std::array::from_fn(|d| ne[d] as f32 / x.ne[d] as f32);
    if p.align_corners == 1 {
        for d in (0..2).filter(|&d| ne[d] > 1 && x.ne[d] > 1) {
            scale[d] = (ne[d] - 1) as f32 / (x.ne[d] - 1) as f32;
        }
    }
    let offset = if p.align_corners == 1 { 0.0 } else { 0.5 };
    let nearest = |i: u64, d: usize| ((i as f32 / scale[d]) as u64).min(x.ne[d] - 1) as i64;
    let place = |i: u64, d: usize| (i as f32 + offset) / scale[d] - offset;
    let mut y = Vec::new();
    for i3 in 0..ne[3] {
        for i2 in 0..ne[2] {
            let plane = nearest(i3, 3) * x.ne[2] as i64 + nearest(i2, 2);
            for i1 in 0..ne[1] {
                for i0 in 0..ne[0] {
                    y.push(match p.mode {
                        0 => at(x, plane, nearest(i0, 0), nearest(i1, 1)),
                        1 => bilinear(x, plane, place(i0, 0), place(i1, 1)),
                        2 => bicubic(x, plane, place(i0, 0), place(i1, 1)),
                        _ => {
                            let axis = |i: u64, d: usize| weights(i, scale[d], offset, x.ne[d]);
                            antialiased(x, plane, &axis(i0, 0), &axis(i1, 1))
                        }
                    });
                }
            }
        }
    }
    Value::f32(ne, y)
}

fn dims(p: &UpscaleParams) -> Shape {
    [p.ne0, p.ne1, p.ne2, p.ne3].map(u64::from)
}

/// The element of a plane; past an edge that at the edge.
fn at(x: &Value, plane: i64, i0: i64, i1: i64) -> f32 {
    let (n0, n1) = (x.ne[0] as i64, x.ne[1] as i64);
    x.floats()[((plane * n1 + i1.clamp(0, n1 - 1)) * n0 + i0.clamp(0, n0 - 1)) as usize]
}

fn bilinear(x: &Value, plane: i64, p0: f32, p1: f32) -> f32 {
    let (i0, i1) = (p0.floor() as i64, p1.floor() as i64);
    // Before the first element the share of the second is 0, after the last both are the last.
    let share = |p: f32, i: i64, n: u64| (p - i.clamp(0, n as i64 - 1) as f32).clamp(0.0, 1.0);
    let (d0, d1) = (share(p0, i0, x.ne[0]), share(p1, i1, x.ne[1]));
    let (a, b) = (at(x, plane, i0, i1), at(x, plane, i0 + 1, i1));
    let (c, d) = (at(x, plane, i0, i1 + 1), at(x, plane, i0 + 1, i1 + 1));
    a * (1.0 - d0) * (1.0 - d1) + b * d0 * (1.0 - d1) + c * (1.0 - d0) * d1 + d * d0 * d1
}

/// First element and weights of those that element `i` of the result covers in a dim of `n`, scaled by `scale`.
fn weights(i: u64, scale: f32, offset: f32, n: u64) -> (u64, Vec<f32>) {
    let (p, reach) = ((i as f32 + offset) / scale, (1.0 / scale).max(1.0));
    let (first, end) = ((p - reach + offset) as u64, ((p + reach + offset) as u64).min(n));
    let weight = |j: u64| (1.0 - ((j as f32 - p + offset) / reach).abs()).max(0.0);
    (first, (first..end).map(weight).collect())
}

fn antialiased(x: &Value, plane: i64, (i0, w0): &(u64, Vec<f32>), (i1, w1): &(u64, Vec<f32>)) -> f32 {
    let (mut sum, mut total) = (0.0, 0.0);
    for (i1, w1) in (*i1..).zip(w1) {
        for (i0, w0) in (*i0..).zip(w0) {
            sum += at(x, plane, i0 as i64, i1 as i64) as f64 * (w0 * w1) as f64;
            total += (w0 * w1) as f64;
        }
    }
    if total > 0.0 { (sum / total) as f32 } else { 0.0 }
}

fn bicubic(x: &Value, plane: i64, p0: f32, p1: f32) -> f32 {
    let (i0, i1) = (p0.floor() as i64, p1.floor() as i64);
    let (w0, w1) = (cubic_weights(p0 - i0 as f32), cubic_weights(p1 - i1 as f32));
    let row = |j: i64| (0..4).map(|i| at(x, plane, i0 + i - 1, i1 + j - 1) * w0[i as usize]).sum::<f32>();
    (0..4).map(|j| row(j) * w1[j as usize]).sum()
}

/// Weights of the elements at -1, 0, 1 and 2 for a place between 0 and 1.
fn cubic_weights(t: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |t: f32| ((A + 2.0) * t - (A + 3.0)) * t * t + 1.0;
    let far = |t: f32| ((A * t - 5.0 * A) * t + 8.0 * A) * t - 4.0 * A;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for by in Interpolation::ALL {
        for align in [false, true] {
            for dtype in NUMBERS {
                for (from, to) in [
                    ([5, 4, 3, 2], [10, 8, 6, 4]),
                    ([5, 4, 3, 2], [7, 9, 3, 2]),
                    ([10, 9, 2, 1], [5, 3, 2, 1]),
                    ([3, 3, 2, 2], [1, 1, 2, 2]),
                    ([1, 1, 1, 1], [4, 3, 2, 1]),
                    ([6, 1, 1, 1], [6, 5, 1, 1]),
                    ([32, 2, 1, 1], [1056, 3, 1, 1]),
                    ([4, 5, 2, 1], [4, 5, 2, 1]),
                ] {
                    let name = format!("{dtype} {from:?} to {to:?}, {by:?}, align {align}");
                    cases.push(Case::new(name, |g, _| {
                        let x = g.input("x", dtype, &from);
                        g.upscale(x, &to, by, align);
                    }));
                }
            }
            for d in 0..4 {
                cases.push(Case::new(format!("nothing along dim {d}, {by:?}, align {align}"), |g, _| {
                    let (mut x, mut y) = ([3, 2, 1, 2], [6, 4, 1, 2]);
                    (x[d], y[d]) = (0, 0);
                    let x = g.input("x", DType::F32, &x);
                    g.upscale(x, &y, by, align);
                }));
            }
            cases.push(Case::new(format!("permuted, {by:?}, align {align}"), |g, _| {
                let x = g.input("x", DType::F32, &[3, 6, 5, 2]);
                let x = g.permute(x, [1, 2, 0, 3]); // channels last in memory
                g.upscale(x, &[12, 11, 3, 2], by, align);
            }));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{compute, floats};

    #[test]
    fn samples_are_those_of_ggml() {
        for (by, align, expected) in GGML {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[3, 2]);
                g.upscale(x, &[5, 3], by, align)
            };
            let y = compute(build, &[("x", floats(&[1., 2., 4., -3., 0.5, 8.]))]);
            // That ggml was built with fused multiply-adds.
            let near = y.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5);
            assert!(near && y.len() == 15, "{by:?}, align {align}: {y:?}, expected {expected:?}");
        }
    }

    #[test]
    fn antialiased_samples_are_those_of_ggml() {
        let x = [1., 2., 4., -3., 0.5, 8., 0.25, -1., 6., 2., -5., 3.5, 7., 1.5, -2.];
        for (dims, align, expected) in ANTIALIASED {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[5, 3]);
                g.upscale(x, dims, Interpolation::BilinearAntialiased, *align)
            };
            let y = compute(build, &[("x", floats(&x))]);
            let near = y.iter().zip(*expected).all(|(a, b)| (a - b).abs() < 2e-6);
            assert!(
                near && y.len() == expected.len(),
                "{dims:?}, align {align}: {y:?}, expected {expected:?}"
            );
        }
    }

    /// What `ggml_interpolate` gives with its flag, to these dims.
    const ANTIALIASED: &[(&[u64], bool, &[f32])] = &[
        (&[2, 2], false, &[2.2031252, 1.0355115, 1.9474431, 2.1576705]),
        (&[2, 2], true, &[2.225, 1.0083333, 1.625, 1.7416667]),
        (
            &[7, 2],
            false,
            &[
                3.6249998,
                2.3214285,
                1.5669643,
                2.125,
                0.87499976,
                0.6696429,
                1.0625001,
                -0.12500004,
                1.25,
                2.7723215,
                4.0,
                3.419643,
                1.6071429,
                -0.49999994,
            ],
        ),
        (
            &[7, 2],
            true,
            &[
                3.3333333, 3.3333333, 1.4166667, 2.3333333, 2.3333333, 0.0, 1.0, -0.6666667, -0.6666667,
                2.4166667, 4.3333335, 4.333333, 3.0, -0.6666667,
            ],
        ),
        (
            &[3, 5],
            false,
            &[
                1.4285715,
                2.0,
                -1.0000004,
                2.7285717,
                1.5333334,
                0.8857145,
                4.6785717,
                0.8333333,
                3.714286,
                1.0571419,
                3.333334,
                1.185714,
                -1.357143,
                5.0,
                -0.49999973,
            ],
        ),
    ];

    /// What ggml's `ggml_interpolate` gives for [[1, 2, 4], [-3, 0.5, 8]].
    const GGML: [(Interpolation, bool, [f32; 15]); 6] = [
        (
            Interpolation::Nearest,
            false,
            [1.0, 1.0, 2.0, 2.0, 4.0, 1.0, 1.0, 2.0, 2.0, 4.0, -3.0, -3.0, 0.5, 0.5, 8.0],
        ),
        (
            Interpolation::Nearest,
            true,
            [1.0, 1.0, 2.0, 2.0, 4.0, 1.0, 1.0, 2.0, 2.0, 4.0, -3.0, -3.0, 0.5, 0.5, 8.0],
        ),
        (
            Interpolation::Bilinear,
            false,
            [1.0, 1.4, 2.0, 3.2, 4.0, -1.0, -0.1, 1.25, 4.1, 6.0, -3.0, -1.6, 0.5, 5.0, 8.0],
        ),
        (
            Interpolation::Bilinear,
            true,
            [1.0, 1.5, 2.0, 3.0, 4.0, -1.0, 0.125, 1.25, 3.625, 6.0, -3.0, -1.25, 0.5, 4.25, 8.0],
        ),
        (
            Interpolation::Bicubic,
            false,
            [
                1.2720561,
                1.5413967,
                2.1302085,
                3.118396,
                3.7989447,
                -1.2160002,
                -0.46899816,
                1.25,
                4.319,
                6.456,
                -3.7040567,
                -2.4793932,
                0.36979157,
                5.5196047,
                9.113059,
            ],
        ),
        (
            Interpolation::Bicubic,
            true,
            [
                1.0, 1.3125, 2.0, 3.09375, 4.0, -1.0, -0.3203125, 1.25, 3.8359375, 6.0, -3.0, -1.953125, 0.5,
                4.578125, 8.0,
            ],
        ),
    ];
}
