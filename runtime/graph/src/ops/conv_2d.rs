//! y[o, c, n] = Σ kernel[t, i, c] · x[o·stride + t·dilation - pad, i, n]: convolution in two dims. Kernel
//! [kw, kh, c_in, c_out] and x [w, h, c_in, n] give [ow, oh, c_out, n] (ggml's `conv_2d` and `conv_2d_direct`).
//!
//! Result: F32; kernel F32, F16 or BF16 without gaps, x F32. ow and oh as ol in `conv_1d`.

use super::convolution::{self, Convolution};
use super::operand::NUMBERS;
use super::window::{self, Window};
use super::{Rules, case::Case, check, im2col};
use crate::graph::{Graph, Node};
use crate::tensor::{Role, Shape, Tensor};
use llmrt_abi::{
    DType, Op,
    op::{Conv2dParams, Im2colParams},
};

impl Graph {
    /// `kernel` [kw, kh, c_in, c_out] (F32, F16 or BF16) slides over `x` [w, h, c_in, n]: [ow, oh, c_out, n].
    pub fn conv_2d(&mut self, kernel: Tensor, x: Tensor, params: &Conv2dParams) -> Tensor {
        self.push(Op::Conv2d, &[Some(kernel), Some(x)], &params.to_bytes())
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
    if kernel[2] != x[2] {
        return Err(format!("kernel {kernel:?} is for {} channels, x {x:?} has {}", kernel[2], x[2]));
    }
    let convolution = Convolution {
        windows: windows(kernel, &p),
        n_in: [x[0], x[1], 1],
        c_in: x[2],
        c_out: kernel[3],
        n_batch: x[3],
        is_depthwise: false,
    };
    let [width, height, _] = convolution.n_out()?;
    Ok((convolution, [width, height, kernel[3], x[3]]))
}

/// How a kernel moves in two dims.
pub(super) fn windows(kernel: Shape, p: &Conv2dParams) -> [Window; 3] {
    window::windows(kernel, [p.stride0, p.stride1], [p.pad0, p.pad1], [p.dilation0, p.dilation1])
}

/// Columns, then a product with the kernel, then a transposition.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = Conv2dParams::from_bytes(&node.params)?;
    let (kernel, x) = (node.src[0]?, node.src[1]?);
    let (c_out, n_batch) = (g.ne(kernel)[3], g.ne(x)[3]);
    let columns = g.im2col(kernel, x, &columns_params(&p)); // [kw·kh·c_in, ow, oh, n]
    let y = convolution::multiply(g, kernel, columns, c_out, n_batch); // [ow·oh, c_out, n]
    Some(g.reshape(y, &g.ne(node.dst)))
}

/// Params of the im2col that a convolution starts with.
pub(super) fn columns_params(p: &Conv2dParams) -> Im2colParams {
    let (stride, pad) = ([p.stride0, p.stride1], [p.pad0, p.pad1]);
    let dilation = [p.dilation0, p.dilation1];
    Im2colParams { dtype: DType::F32.id(), ..im2col::two_dims(stride, pad, dilation) }
}

/// Params from [dim 0, dim 1] each.
pub(super) fn params(stride: [u32; 2], pad: [u32; 2], dilation: [u32; 2]) -> Conv2dParams {
    Conv2dParams {
        stride0: stride[0],
        stride1: stride[1],
        pad0: pad[0],
        pad1: pad[1],
        dilation0: dilation[0],
        dilation1: dilation[1],
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let mut add = |dtype: DType, kernel: [u64; 4], x: [u64; 4], p: Conv2dParams| {
        cases.push(Case::new(format!("{dtype} kernel {kernel:?} over {x:?}, {p:?}"), |g, _| {
            let kernel = g.weight("kernel", dtype, &kernel, Role::Other);
            let x = g.input("x", DType::F32, &x);
            g.conv_2d(kernel, x, &p);
        }));
    };
    for dtype in NUMBERS {
        for stride in [[1, 1], [3, 2]] {
            for pad in [[0, 0], [2, 3]] {
                for dilation in [[1, 1], [3, 2]] {
                    for (kernel, x) in [
                        ([1, 1, 3, 2], [1, 5, 3, 1]),
                        ([3, 3, 2, 12], [14, 9, 2, 2]),
                        ([2, 3, 25, 1], [12, 11, 25, 1]),
                        ([3, 1, 4, 9], [13, 2, 4, 3]),
                    ] {
                        let p = params(stride, pad, dilation);
                        add(dtype, kernel, x, p);
                    }
                }
            }
        }
        add(dtype, [3, 3, 8, 65], [9, 7, 8, 1], params([1, 1], [1, 1], [1, 1]));
        add(dtype, [3, 3, 16, 33], [9, 7, 16, 2], params([2, 3], [4, 2], [2, 1]));
        add(dtype, [1, 1, 16, 33], [13, 11, 16, 2], params([1, 1], [0, 0], [1, 1]));
        add(dtype, [1, 1, 1, 1], [1, 1, 1, 1], params([1, 1], [0, 0], [1, 1]));
        add(dtype, [14, 14, 3, 20], [56, 28, 3, 1], params([14, 14], [0, 0], [1, 1]));
        add(dtype, [2, 2, 300, 5], [5, 4, 300, 1], params([1, 1], [1, 1], [1, 1]));
        add(dtype, [1, 1, 2, 1100], [9, 8, 2, 1], params([1, 1], [0, 0], [1, 1]));
        add(dtype, [3, 1, 1, 2], [1030, 2, 1, 1], params([1, 1], [1, 0], [1, 1]));
    }
    for dtype in [DType::F32, DType::F16] {
        cases.push(Case::new(format!("{dtype} kernel over x with its channels first"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[3, 3, 5, 6], Role::Other);
            let x = g.input("x", DType::F32, &[5, 9, 8, 2]);
            let x = g.permute(x, [1, 2, 0, 3]);
            g.conv_2d(kernel, x, &params([1, 2], [1, 1], [1, 1]));
        }));
        cases.push(Case::new(format!("{dtype} kernel over a part of x"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[3, 2, 3, 4], Role::Other);
            let x = g.input("x", DType::F32, &[30, 12, 5, 2]);
            let x = g.slice(x, 0, 4, 21);
            let x = g.slice(x, 1, 2, 8);
            let x = g.slice(x, 2, 1, 3);
            g.conv_2d(kernel, x, &params([1, 1], [1, 0], [1, 1]));
        }));
    }
    cases
}
