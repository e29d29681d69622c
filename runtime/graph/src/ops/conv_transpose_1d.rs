//! y[i·stride + t, c, n] += kernel[t, c, j] · x[i, j, n]: transposed convolution in one dim, without padding and
//! dilation. Kernel [k, c_out, c_in] and x [l, c_in, n] give [(l - 1)·stride + k, c_out, n] (ggml's, which takes one batch).
//!
//! Result: F32; kernel F32, F16 or BF16 without gaps, x F32.

use super::conv_transpose_2d::{scatter, stretched};
use super::operand::NUMBERS;
use super::{Inferred, Rules, case::Case, check, convolution, value::Value};
use crate::graph::{Graph, Node};
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{
    DType, Op,
    op::{Col2im1dParams, Conv1dParams},
};

impl Graph {
    /// Each element of `x` [l, c_in, n] adds `kernel` [k, c_out, c_in] (F32, F16 or BF16), `stride` apart.
    pub fn conv_transpose_1d(&mut self, kernel: Tensor, x: Tensor, stride: u32) -> Tensor {
        let params = Conv1dParams { stride, pad: 0, dilation: 1 };
        self.push(Op::ConvTranspose1d, &[Some(kernel), Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: Some(decompose), cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(Conv1dParams::from_bytes(params))?;
    let kernel = convolution::kernel(src)?.ne;
    let x = check::floats(src, 1, "x")?.ne;
    if p.pad != 0 || p.dilation != 1 {
        return Err(format!("pad is {}, dilation {}, expected 0 and 1", p.pad, p.dilation));
    }
    if kernel[2] != x[1] || kernel[3] != 1 || x[3] != 1 {
        return Err(format!(
            "kernel {kernel:?} and x {x:?} differ in channels, or have more than three dims"
        ));
    }
    Ok((DType::F32, [stretched(x[0], p.stride, kernel[0])?, kernel[1], x[2], 1]))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = Conv1dParams::from_bytes(params).unwrap_or_default();
    let (kernel, x) = (check::arg(src, 0), check::arg(src, 1));
    let ([k, c_out, c_in, _], [length, _, n_batch, _]) = (kernel.ne, x.ne);
    let (ne, y) = scatter(
        (kernel.floats(), [k, 1, c_out, c_in]),
        (x.floats(), [length, 1, c_in, n_batch]),
        [p.stride, 1],
    );
    Value::f32([ne[0], ne[2], ne[3], 1], y)
}

/// A product over the input channels gives columns, which are added up. Of one batch.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let stride = Conv1dParams::from_bytes(&node.params)?.stride;
    let (kernel, x) = (node.src[0]?, node.src[1]?);
    let ([k, c_out, c_in, _], n_batch) = (g.ne(kernel), g.ne(x)[2]);
    if n_batch != 1 {
        return None;
    }
    let kernel = g.permute(kernel, [2, 0, 1, 3]);
    let kernel = g.cont(kernel); // [c_in, k, c_out]
    let kernel = g.reshape(kernel, &[c_in, k * c_out]);
    let x = g.permute(x, [1, 0, 2, 3]);
    let x = g.cont(x); // [c_in, l]
    let columns = g.mul_mat(kernel, x); // [k·c_out, l]
    let n_channels = u32::try_from(c_out).ok()?;
    Some(g.col2im_1d(columns, &Col2im1dParams { stride, n_channels, pad: 0 }))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for (length, c_in, c_out, k) in
            [(1, 1, 1, 1), (3, 2, 3, 2), (13, 3, 2, 5), (37, 8, 5, 16), (64, 33, 2, 3)]
        {
            for stride in [1, 2, 3, 8] {
                let name =
                    format!("{dtype} kernel [{k}, {c_out}, {c_in}] over [{length}, {c_in}], stride {stride}");
                cases.push(Case::new(name, |g, _| {
                    let kernel = g.weight("kernel", dtype, &[k, c_out, c_in], Role::Other);
                    let x = g.input("x", DType::F32, &[length, c_in]);
                    g.conv_transpose_1d(kernel, x, stride);
                }));
            }
        }
        cases.push(Case::new(format!("{dtype} kernel, a signal longer than a piece of work"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[16, 2, 3], Role::Other);
            let x = g.input("x", DType::F32, &[400, 3]);
            g.conv_transpose_1d(kernel, x, 8);
        }));
        cases.push(Case::new(format!("{dtype} kernel, batches, a part of the rows of x"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[4, 3, 2], Role::Other);
            let x = g.input("x", DType::F32, &[30, 2, 3]);
            let x = g.slice(x, 0, 5, 19);
            g.conv_transpose_1d(kernel, x, 2);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn each_element_leaves_its_multiple_of_the_kernel() {
        for (stride, expected) in [(1, &[1., 12., 23., 30.][..]), (2, &[1., 10., 2., 20., 3., 30.])] {
            let build = |g: &mut Graph| {
                let kernel = g.input("kernel", DType::F32, &[2, 1, 1]);
                let x = g.input("x", DType::F32, &[3, 1]);
                g.conv_transpose_1d(kernel, x, stride)
            };
            let inputs = [("kernel", floats(&[1., 10.])), ("x", floats(&[1., 2., 3.]))];
            check(build, &inputs, expected);
        }
    }
}
