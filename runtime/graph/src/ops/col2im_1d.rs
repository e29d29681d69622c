//! y[o, c] = Σ x[k + K·c, i] over all i·stride + k = o + pad: columns [K·c, n_in] of overlapping windows added up to
//! a signal [(n_in - 1)·stride + K - 2·pad, c], in f32, rounded once (ggml's `col2im_1d`).
//!
//! Result: dtype of x (F32, F16 or BF16), [n_out, c].

use super::operand::NUMBERS;
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{Op, op::Col2im1dParams};

impl Graph {
    /// The signal [n_out, n_channels] that the columns `x` [k·n_channels, n_in] add up to, in the dtype of `x`.
    pub fn col2im_1d(&mut self, x: Tensor, params: &Col2im1dParams) -> Tensor {
        self.push(Op::Col2im1d, &[Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(Col2im1dParams::from_bytes(params))?;
    let x = check::numbers(src, 0, "x")?;
    if x.ne[2..] != [1, 1] || !x.is_contiguous() {
        return Err(format!("x {:?} is not one matrix without gaps", x.ne));
    }
    let c = p.n_channels as u64;
    if p.stride == 0 || c == 0 || x.ne[0] % c != 0 {
        return Err(format!("stride {}, {c} channels of columns of {}", p.stride, x.ne[0]));
    }
    let whole = x.ne[1]
        .checked_sub(1)
        .and_then(|n| n.checked_mul(p.stride.into()))
        .and_then(|n| n.checked_add(x.ne[0] / c));
    match whole.and_then(|n| n.checked_sub(2 * p.pad as u64)) {
        Some(n_out) if n_out > 0 => Ok((x.dtype, [n_out, c, 1, 1])),
        _ => Err(format!("{} columns with {} cut off at both ends leave no signal", x.ne[1], p.pad)),
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = Col2im1dParams::from_bytes(params).unwrap_or_default();
    let x = check::arg(src, 0);
    let (c, stride, pad) = (p.n_channels as usize, p.stride as usize, p.pad as usize);
    let (k, n_in) = (x.ne[0] as usize / c, x.ne[1] as usize);
    let n_out = (n_in - 1) * stride + k - 2 * pad;
    let mut y = vec![0f32; n_out * c];
    for i in 0..n_in {
        for (j, v) in x.row(i).iter().enumerate() {
            let at = i * stride + j % k;
            if (pad..pad + n_out).contains(&at) {
                y[j / k * n_out + at - pad] += v;
            }
        }
    }
    Value::f32([n_out as u64, c as u64, 1, 1], y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for (k, n_channels, n_in, stride, pad) in [
            (16, 32, 197, 8, 0),
            (4, 3, 7, 2, 0),
            (1, 5, 13, 1, 0),
            (6, 4, 11, 3, 1),
            (2, 3, 9, 3, 0),
            (5, 4, 11, 2, 0),
            (8, 4, 13, 4, 2),
            (4, 3, 1, 2, 0),
            (16, 1, 197, 8, 0),
            (1, 5, 13, 3, 0),
            (8, 2, 3, 2, 5),
            (1, 1, 1, 1, 0),
            (3, 1, 1500, 1, 1),
        ] {
            let name =
                format!("{n_in} columns of {k} {dtype}, {n_channels} channels, stride {stride}, pad {pad}");
            cases.push(Case::new(name, |g, _| {
                let x = g.input("x", dtype, &[k * n_channels as u64, n_in]);
                g.col2im_1d(x, &Col2im1dParams { stride, n_channels, pad });
            }));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;
    use llmrt_abi::DType;

    #[test]
    fn windows_that_overlap_add_up_and_gaps_stay_zero() {
        for (stride, pad, expected) in [
            (1, 0, &[1., 5., 4., 10., 50., 40.][..]),
            (2, 0, &[1., 2., 3., 4., 10., 20., 30., 40.]),
            (3, 1, &[2., 0., 3., 20., 0., 30.]),
        ] {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[4, 2]);
                g.col2im_1d(x, &Col2im1dParams { stride, n_channels: 2, pad })
            };
            check(build, &[("x", floats(&[1., 2., 10., 20., 3., 4., 30., 40.]))], expected);
        }
    }
}
