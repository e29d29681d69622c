//! y[c, i, j, k] = x[c, window·(k mod n) + i, window·(k div n) + j], 0 past x's edges, n = ceil(width / window), as
//! ggml's win_part: an image cut into square windows.
//!
//! Result: dtype of x (any plain one), [c, window, window, n_windows] of x [c, width, height].

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::WinParams};

impl Graph {
    /// `x` [c, width, height] as windows [c, window, window, n], row of windows after row of windows.
    pub fn win_part(&mut self, x: Tensor, window: u32) -> Tensor {
        self.push(Op::WinPart, &[Some(x)], &WinParams { window, ..Default::default() }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(WinParams::from_bytes(params))?;
    let x = moves::plain(src, 0, "x")?;
    if x.ne[3] != 1 || p.window == 0 || p.width != 0 || p.height != 0 {
        return Err(format!("x {:?} in windows of {}: expected one image, windows from 1", x.ne, p.window));
    }
    let w = p.window as u64;
    let n = n_windows(x.ne[1], x.ne[2], w).ok_or_else(|| format!("x {:?} is too large", x.ne))?;
    Ok((x.dtype, [x.ne[0], w, w, n]))
}

/// Windows that cover an image.
pub(super) fn n_windows(width: u64, height: u64, window: u64) -> Option<u64> {
    width.div_ceil(window).checked_mul(height.div_ceil(window))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let w = WinParams::from_bytes(params).unwrap_or_default().window as u64;
    let x = check::arg(src, 0);
    let across = x.ne[1].div_ceil(w);
    let ne = [x.ne[0], w, w, n_windows(x.ne[1], x.ne[2], w).unwrap_or_default()];
    moves::gather(ne, &[x], |[c, i, j, k]| {
        let (i, j) = (k % across * w + i, k / across * w + j);
        match i < x.ne[1] && j < x.ne[2] {
            true => From::Source(0, [c, i, j, 0]),
            false => From::Number(0.0),
        }
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (ne, window) in [
        ([6, 8, 8], 4),
        ([6, 7, 9], 4),
        ([3, 14, 5], 7),
        ([1, 1, 1], 1),
        ([5, 2, 3], 8),
        ([5, 4, 3], 1),
        ([1030, 3, 2], 2),
    ] {
        for dtype in copy_cases::PLAIN {
            cases.push(Case::new(format!("{dtype} {ne:?} in windows of {window}"), |g, ints| {
                let x = copy_cases::operand(g, ints, dtype, dtype, &ne);
                g.win_part(x, window);
            }));
        }
    }
    cases.push(Case::new("channels outermost in memory", |g, _| {
        let x = g.input("x", DType::F32, &[9, 7, 4]);
        let x = g.permute(x, [2, 0, 1, 3]); // [4, 9, 7]
        g.win_part(x, 4);
    }));
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};

    #[test]
    fn windows_follow_each_other_along_the_rows() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[1, 3, 2]);
            g.win_part(x, 2)
        };
        let x = floats(&[1., 2., 3., 4., 5., 6.]);
        check(build, &[("x", x)], &[1., 2., 4., 5., 3., 0., 6., 0.]);
    }

    #[test]
    fn what_was_cut_comes_together_again() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[2, 3, 2]);
            let windows = g.win_part(x, 2);
            g.win_unpart(windows, 3, 2)
        };
        let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
        check(build, &[("x", floats(&x))], &x);
    }
}
