//! y[o, c, n] = Σ kernel[t, 0, c] · x[o·stride + t·dilation - pad, c, n]: convolution in two dims, each channel with its
//! own kernel. Kernel [kw, kh, 1, c] and x [w, h, c, n] give [ow, oh, c, n] (ggml's `conv_2d_dw_direct`).
//!
//! Result: F32; kernel F32, F16 or BF16 without gaps, x F32. ow and oh as ol in `conv_1d`.

use super::conv_2d::{columns_params, params, windows};
use super::convolution::{self, Convolution};
use super::operand::NUMBERS;
use super::{Rules, case::Case, check};
use crate::graph::{Graph, Node};
use crate::tensor::{Role, Shape, Tensor};
use llmrt_abi::{DType, Op, op::Conv2dParams};

impl Graph {
    /// Each channel of `x` [w, h, c, n] under its own kernel of `kernel` [kw, kh, 1, c] (F32, F16 or BF16):
    /// [ow, oh, c, n].
    pub fn conv_2d_dw(&mut self, kernel: Tensor, x: Tensor, params: &Conv2dParams) -> Tensor {
        self.push(Op::Conv2dDw, &[Some(kernel), Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules {
    infer: |src, params| convolution::infer(src, params, rule),
    reference: |src, params| convolution::reference(src, params, rule),
    decompose: Some(decompose),
    cases,
};

fn rule(kernel: Shape, x: Shape, params: &[u8]) -> Result<(Convolution, Shape), String> {
    let p = check::params(Conv2dParams::from_bytes(params))?;
    if kernel[2..] != [1, x[2]] {
        return Err(format!("kernel {kernel:?} for x {x:?}, expected [kw, kh, 1, {}]", x[2]));
    }
    let convolution = Convolution {
        windows: windows(kernel, &p),
        n_in: [x[0], x[1], 1],
        c_in: 1,
        c_out: x[2],
        n_batch: x[3],
        is_depthwise: true,
    };
    let [width, height, _] = convolution.n_out()?;
    Ok((convolution, [width, height, x[2], x[3]]))
}

/// Columns of each channel by itself, then a product with its kernel.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = Conv2dParams::from_bytes(&node.params)?;
    let (kernel, x) = (node.src[0]?, node.src[1]?);
    let [width, height, c, n_batch] = g.ne(x);
    let x = convolution::contiguous(g, x);
    let x = g.reshape(x, &[width, height, 1, c * n_batch]);
    let columns = g.im2col(kernel, x, &columns_params(&p)); // [kw·kh, ow, oh, c·n]
    let y = convolution::multiply_depthwise(g, kernel, columns, c, n_batch);
    Some(g.reshape(y, &g.ne(node.dst)))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for (kernel, x, p) in [
            ([3, 3], [17, 34, 9, 1], params([1, 1], [0, 0], [1, 1])),
            ([3, 3], [32, 8, 64, 1], params([2, 2], [1, 1], [1, 1])),
            ([5, 3], [12, 9, 4, 3], params([1, 2], [2, 1], [1, 1])),
            ([3, 2], [11, 10, 3, 2], params([3, 1], [0, 2], [2, 3])),
            ([1, 1], [1, 1, 1, 1], params([1, 1], [0, 0], [1, 1])),
            ([2, 2], [1, 1, 2, 1], params([1, 1], [3, 3], [1, 1])),
            ([7, 7], [20, 20, 5, 1], params([1, 1], [3, 3], [1, 1])),
            ([3, 1], [1100, 1, 2, 1], params([1, 1], [1, 0], [1, 1])),
            ([2, 3], [0, 4, 2, 1], params([1, 1], [3, 1], [1, 1])),
            ([2, 3], [4, 0, 2, 1], params([1, 1], [1, 2], [1, 1])),
        ] {
            cases.push(Case::new(format!("{dtype} kernel {kernel:?} over {x:?}, {p:?}"), |g, _| {
                let kernel = g.weight("kernel", dtype, &[kernel[0], kernel[1], 1, x[2]], Role::Other);
                let x = g.input("x", DType::F32, &x);
                g.conv_2d_dw(kernel, x, &p);
            }));
        }
        for p in [params([1, 1], [1, 1], [1, 1]), params([2, 2], [1, 0], [1, 2])] {
            cases.push(Case::new(format!("{dtype} kernel over x with its channels first, {p:?}"), |g, _| {
                let kernel = g.weight("kernel", dtype, &[3, 3, 1, 20], Role::Other);
                let x = g.input("x", DType::F32, &[20, 9, 8, 2]);
                let x = g.permute(x, [1, 2, 0, 3]);
                g.conv_2d_dw(kernel, x, &p);
            }));
        }
    }
    cases
}
