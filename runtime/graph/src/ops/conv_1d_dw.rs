//! y[o, c, n] = Σ kernel[t, 0, c] · x[o·stride + t·dilation - pad, c, n]: convolution in one dim, each channel with its
//! own kernel. Kernel [k, 1, c] and x [l, c, n] give [ol, c, n] (ggml's `conv_1d_dw`, which takes one batch).
//!
//! Result: F32; kernel F32, F16 or BF16 without gaps, x F32. ol as in `conv_1d`.

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
    /// Each channel of `x` [l, c, n] under its own kernel of `kernel` [k, 1, c] (F32, F16 or BF16): [ol, c, n].
    pub fn conv_1d_dw(&mut self, kernel: Tensor, x: Tensor, params: &Conv1dParams) -> Tensor {
        self.push(Op::Conv1dDw, &[Some(kernel), Some(x)], &params.to_bytes())
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
    if kernel[1..] != [1, x[1], 1] || x[3] != 1 {
        return Err(format!("kernel {kernel:?} for x {x:?}, expected [k, 1, {}]", x[1]));
    }
    let convolution = Convolution {
        windows: window::windows(kernel, [p.stride], [p.pad], [p.dilation]),
        n_in: [x[0], 1, 1],
        c_in: 1,
        c_out: x[1],
        n_batch: x[2],
        is_depthwise: true,
    };
    let [length, ..] = convolution.n_out()?;
    Ok((convolution, [length, x[1], x[2], 1]))
}

/// Columns of each channel by itself, then a product with its kernel.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = Conv1dParams::from_bytes(&node.params)?;
    let (kernel, x) = (node.src[0]?, node.src[1]?);
    let [length, c, n_batch, _] = g.ne(x);
    let x = convolution::contiguous(g, x);
    let x = g.reshape(x, &[length, 1, c * n_batch]);
    let p = Im2colParams { dtype: DType::F32.id(), ..im2col::one_dim(p.stride, p.pad, p.dilation) };
    let columns = g.im2col(kernel, x, &p); // [k, ol, c·n]
    let y = convolution::multiply_depthwise(g, kernel, columns, c, n_batch);
    Some(g.reshape(y, &g.ne(node.dst)))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for (k, c, length, n, stride, pad, dilation) in [
            (3, 16, 64, 1, 1, 0, 1),
            (7, 16, 64, 1, 1, 3, 1),
            (5, 33, 97, 1, 2, 2, 2),
            (3, 4, 10, 3, 1, 1, 1),
            (1, 1, 1, 1, 1, 0, 1),
            (4, 2, 3, 1, 1, 3, 1),
            (31, 5, 40, 2, 1, 15, 1),
            (9, 2, 1200, 1, 3, 4, 1),
        ] {
            let name = format!(
                "{dtype} kernel [{k}, 1, {c}] over [{length}, {c}, {n}], stride {stride}, pad {pad}, dilation {dilation}"
            );
            cases.push(Case::new(name, |g, _| {
                let kernel = g.weight("kernel", dtype, &[k, 1, c], Role::Other);
                let x = g.input("x", DType::F32, &[length, c, n]);
                g.conv_1d_dw(kernel, x, &Conv1dParams { stride, pad, dilation });
            }));
        }
        cases.push(Case::new(format!("{dtype} kernel over x with its channels first"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[5, 1, 6], Role::Other);
            let x = g.input("x", DType::F32, &[6, 30, 2]);
            let x = g.permute(x, [1, 0, 2, 3]);
            g.conv_1d_dw(kernel, x, &Conv1dParams { stride: 1, pad: 2, dilation: 1 });
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn each_channel_has_its_own_kernel() {
        let build = |g: &mut Graph| {
            let kernel = g.input("kernel", DType::F32, &[2, 1, 2]);
            let x = g.input("x", DType::F32, &[3, 2]);
            g.conv_1d_dw(kernel, x, &Conv1dParams { stride: 1, pad: 0, dilation: 1 })
        };
        let inputs = [("kernel", floats(&[1., 10., 2., 20.])), ("x", floats(&[1., 2., 3., 4., 5., 6.]))];
        check(build, &inputs, &[21., 32., 108., 130.]);
    }
}
