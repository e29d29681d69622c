//! y[o, c, n] = Σ kernel[t, i, c] · x[o·stride + t·dilation - pad, i, n]: convolution in one dim. Kernel [k, c_in, c_out]
//! and x [l, c_in, n] give [ol, c_out, n]. (Of several batches ggml's builder mislabels the result; here each is right.)
//!
//! Result: F32; kernel F32, F16 or BF16 without gaps, x F32. ol = (l + 2·pad - (k - 1)·dilation - 1) div stride + 1.

use super::convolution::{self, Convolution};
use super::operand::NUMBERS;
use super::{Rules, case::Case, check, im2col, window};
use crate::graph::{Graph, Node};
use crate::tensor::{Role, Shape, Tensor};
use llmrt_abi::{
    DType, Op,
    op::{Conv1dParams, Im2colParams},
};

impl Graph {
    /// `kernel` [k, c_in, c_out] (F32, F16 or BF16) slides over `x` [l, c_in, n]: [ol, c_out, n].
    pub fn conv_1d(&mut self, kernel: Tensor, x: Tensor, params: &Conv1dParams) -> Tensor {
        self.push(Op::Conv1d, &[Some(kernel), Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules {
    infer: |src, params| convolution::infer(src, params, rule),
    reference: |src, params| convolution::reference(src, params, rule),
    decompose: Some(decompose),
    cases,
};

fn rule(kernel: Shape, x: Shape, params: &[u8]) -> Result<(Convolution, Shape), String> {
    let p = check::params(Conv1dParams::from_bytes(params))?;
    if kernel[1] != x[1] || kernel[3] != 1 || x[3] != 1 {
        return Err(format!(
            "kernel {kernel:?} and x {x:?} differ in channels, or have more than three dims"
        ));
    }
    let convolution = Convolution {
        windows: window::windows(kernel, [p.stride], [p.pad], [p.dilation]),
        n_in: [x[0], 1, 1],
        c_in: x[1],
        c_out: kernel[2],
        n_batch: x[2],
        is_depthwise: false,
    };
    let [length, ..] = convolution.n_out()?;
    Ok((convolution, [length, kernel[2], x[2], 1]))
}

/// Columns, then a product with the kernel, then a transposition.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = Conv1dParams::from_bytes(&node.params)?;
    let (kernel, x) = (node.src[0]?, node.src[1]?);
    let (c_out, n_batch) = (g.ne(kernel)[2], g.ne(x)[2]);
    let p = Im2colParams { dtype: DType::F32.id(), ..im2col::one_dim(p.stride, p.pad, p.dilation) };
    let columns = g.im2col(kernel, x, &p); // [k·c_in, ol, n]
    Some(convolution::multiply(g, kernel, columns, c_out, n_batch))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for (k, c_in, c_out, length, n) in
            [(1, 1, 1, 1, 1), (3, 4, 5, 40, 1), (3, 16, 33, 17, 2), (7, 3, 2, 65, 3), (4, 130, 9, 19, 1)]
        {
            for (stride, pad, dilation) in [(1, 0, 1), (1, 1, 1), (2, 3, 1), (1, 4, 2), (3, 6, 3)] {
                let reach = (k - 1) * dilation as u64 + 1;
                if length + 2 * (pad as u64) < reach {
                    continue;
                }
                let name = format!(
                    "{dtype} kernel [{k}, {c_in}, {c_out}] over [{length}, {c_in}, {n}], stride {stride}, pad {pad}, dilation {dilation}"
                );
                cases.push(Case::new(name, |g, _| {
                    let kernel = g.weight("kernel", dtype, &[k, c_in, c_out], Role::Other);
                    let x = g.input("x", DType::F32, &[length, c_in, n]);
                    g.conv_1d(kernel, x, &Conv1dParams { stride, pad, dilation });
                }));
            }
        }
        cases.push(Case::new(format!("{dtype} kernel over a long signal"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[5, 2, 3], Role::Other);
            let x = g.input("x", DType::F32, &[2100, 2]);
            g.conv_1d(kernel, x, &Conv1dParams { stride: 1, pad: 2, dilation: 1 });
        }));
        cases.push(Case::new(format!("{dtype} kernel over x with its channels first"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[3, 6, 4], Role::Other);
            let x = g.input("x", DType::F32, &[6, 30, 2]);
            let x = g.permute(x, [1, 0, 2, 3]);
            g.conv_1d(kernel, x, &Conv1dParams { stride: 2, pad: 1, dilation: 1 });
        }));
        cases.push(Case::new(format!("{dtype} kernel over a part of x"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[3, 2, 4], Role::Other);
            let x = g.input("x", DType::F32, &[50, 6]);
            let x = g.slice(x, 0, 7, 31);
            let x = g.slice(x, 1, 3, 2);
            g.conv_1d(kernel, x, &Conv1dParams { stride: 1, pad: 1, dilation: 1 });
        }));
    }
    cases
}
