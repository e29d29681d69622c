//! y = softmax(x · scale + mask) over rows. A row of which everything is -inf gives zeros.

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::SoftMaxParams};

impl Graph {
    /// Softmax of the rows of `x` · `scale`, plus `mask` [n, rows, 1 or a divisor, …] if given.
    pub fn soft_max(&mut self, x: Tensor, mask: Option<Tensor>, scale: f32) -> Tensor {
        let params = SoftMaxParams { scale, max_bias: 0.0 }.to_bytes();
        match mask {
            Some(mask) => self.push(Op::SoftMax, &[Some(x), Some(mask)], &params),
            None => self.push(Op::SoftMax, &[Some(x)], &params),
        }
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    check::params(SoftMaxParams::from_bytes(params))?;
    let x = check::floats(src, 0, "x")?;
    if let Some(mask) = check::optional_floats(src, 1, "mask")? {
        let same_rows = mask.ne[..2] == x.ne[..2];
        if !same_rows || x.ne[2] % mask.ne[2] != 0 || x.ne[3] % mask.ne[3] != 0 {
            return Err(format!("mask {:?} does not broadcast to x {:?}", mask.ne, x.ne));
        }
    }
    Ok((DType::F32, x.ne))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let scale = SoftMaxParams::from_bytes(params).unwrap_or_default().scale;
    let (x, mask) = (check::arg(src, 0), check::optional_arg(src, 1));
    let mut y = Vec::with_capacity(x.floats().len());
    for i in 0..x.n_rows() {
        let mut row: Vec<f32> = x.row(i).iter().map(|v| v * scale).collect();
        if let Some(mask) = mask {
            let mask_row = mask.row(mask_row(i as u64, x.ne, mask.ne));
            row.iter_mut().zip(mask_row).for_each(|(v, m)| *v += m);
        }
        soft_max_row(&mut row, None);
        y.extend(row);
    }
    Value::f32(x.ne, y)
}

/// The row of a mask that belongs to row `i` of x: dims 2 and 3 repeat.
fn mask_row(i: u64, x: Shape, mask: Shape) -> usize {
    let (i1, i2, i3) = (i % x[1], i / x[1] % x[2], i / x[1] / x[2]);
    (((i3 % mask[3]) * mask[2] + i2 % mask[2]) * mask[1] + i1) as usize
}

/// exp(v - max) / Σ exp(v - max) in place; `sink` is one more score that takes its share and is dropped.
pub(super) fn soft_max_row(row: &mut [f32], sink: Option<f32>) {
    let max = row.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    if max == f32::NEG_INFINITY {
        return row.fill(0.0);
    }
    row.iter_mut().for_each(|v| *v = (*v - max).exp());
    let sum: f64 = row.iter().map(|&v| v as f64).sum::<f64>() + sink.map_or(0.0, |s| (s - max).exp() as f64);
    row.iter_mut().for_each(|v| *v = (*v as f64 / sum) as f32);
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for ne in [[64, 5, 4, 3], [1, 1, 1, 1], [33, 7, 1, 1], [2000, 2, 1, 1]] {
        for scale in [1.0, 0.125, 30.0] {
            cases.push(Case::new(format!("rows of {ne:?}, scale {scale}"), |g, _| {
                let x = g.input("x", DType::F32, &ne);
                g.soft_max(x, None, scale);
            }));
        }
    }
    for mask in [[10, 5, 1, 1], [10, 5, 4, 1], [10, 5, 2, 3]] {
        cases.push(Case::new(format!("[10, 5, 4, 3] with a mask {mask:?}"), |g, _| {
            let x = g.input("x", DType::F32, &[10, 5, 4, 3]);
            let mask = g.input("mask", DType::F32, &mask);
            g.soft_max(x, Some(mask), 0.5);
        }));
    }
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[30, 4]);
        let x = g.slice(x, 0, 7, 11);
        g.soft_max(x, None, 1.0);
    }));
    cases
}
