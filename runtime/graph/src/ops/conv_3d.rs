//! y[o, c, n] = Σ kernel[t, i, c] · x[o·stride + t·dilation - pad, i, n]: convolution in three dims. Kernel
//! [kw, kh, kd, c_in·c_out] and x [w, h, d, c_in·n] give [ow, oh, od, c_out·n] (ggml's `conv_3d` and `conv_3d_direct`).
//!
//! Result: F32; kernel F32, F16 or BF16 without gaps, x F32. ow, oh and od as ol in `conv_1d`.

use super::convolution::{self, Convolution};
use super::operand::NUMBERS;
use super::window;
use super::{Rules, case::Case, check};
use crate::graph::{Graph, Node};
use crate::tensor::{Role, Shape, Tensor};
use llmrt_abi::{
    DType, Op,
    op::{Conv3dParams, Im2col3dParams},
};

impl Graph {
    /// `kernel` [kw, kh, kd, c_in·c_out] (F32, F16 or BF16) slides over `x` [w, h, d, c_in·n]: [ow, oh, od, c_out·n].
    pub fn conv_3d(&mut self, kernel: Tensor, x: Tensor, params: &Conv3dParams) -> Tensor {
        self.push(Op::Conv3d, &[Some(kernel), Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules {
    infer: |src, params| convolution::infer(src, params, rule),
    reference: |src, params| convolution::reference(src, params, rule),
    decompose: Some(decompose),
    cases,
};

fn rule(kernel: Shape, x: Shape, params: &[u8]) -> Result<(Convolution, Shape), String> {
    let p = check::params(Conv3dParams::from_bytes(params))?;
    let [c_in, c_out, n_batch] = [p.n_channels, p.n_out, p.n_batch].map(u64::from);
    if check::product(&[c_in, c_out])? != kernel[3] || check::product(&[c_in, n_batch])? != x[3] {
        return Err(format!(
            "kernel {kernel:?} and x {x:?} are not of {c_in} channels in, {c_out} out, {n_batch} volumes"
        ));
    }
    let windows = window::windows(
        kernel,
        [p.stride0, p.stride1, p.stride2],
        [p.pad0, p.pad1, p.pad2],
        [p.dilation0, p.dilation1, p.dilation2],
    );
    let n_in = [x[0], x[1], x[2]];
    let convolution = Convolution { windows, n_in, c_in, c_out, n_batch, is_depthwise: false };
    let [n0, n1, n2] = convolution.n_out()?;
    Ok((convolution, [n0, n1, n2, check::product(&[c_out, n_batch])?]))
}

/// Columns, then a product with the kernel, then a transposition.
fn decompose(g: &mut Graph, node: &Node) -> Option<Tensor> {
    let p = Conv3dParams::from_bytes(&node.params)?;
    if p.n_channels == 0 {
        return None;
    }
    let (kernel, x) = (node.src[0]?, node.src[1]?);
    let columns_params = Im2col3dParams {
        stride0: p.stride0,
        stride1: p.stride1,
        stride2: p.stride2,
        pad0: p.pad0,
        pad1: p.pad1,
        pad2: p.pad2,
        dilation0: p.dilation0,
        dilation1: p.dilation1,
        dilation2: p.dilation2,
        n_channels: p.n_channels,
        dtype: DType::F32.id(),
    };
    let columns = g.im2col_3d(kernel, x, &columns_params); // [kw·kh·kd·c_in, ow, oh, od·n]
    let y = convolution::multiply(g, kernel, columns, p.n_out.into(), p.n_batch.into());
    Some(g.reshape(y, &g.ne(node.dst)))
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let mut add = |dtype: DType, taps: [u64; 3], x: [u64; 3], channels: [u32; 3], geometry: [[u32; 3]; 3]| {
        let [c_in, c_out, n] = channels;
        let [stride, pad, dilation] = geometry;
        let name = format!(
            "{dtype} kernel {taps:?} over {x:?}, {c_in} channels in, {c_out} out, {n} volumes, \
             stride {stride:?}, pad {pad:?}, dilation {dilation:?}"
        );
        cases.push(Case::new(name, |g, _| {
            let c = (c_in * c_out) as u64;
            let kernel = g.weight("kernel", dtype, &[taps[0], taps[1], taps[2], c], Role::Other);
            let x = g.input("x", DType::F32, &[x[0], x[1], x[2], (c_in * n) as u64]);
            g.conv_3d(kernel, x, &params(channels, geometry));
        }));
    };
    const ONE: [u32; 3] = [1; 3];
    for dtype in NUMBERS {
        for stride in [ONE, [2, 1, 3]] {
            for pad in [[0; 3], [1, 2, 3]] {
                for dilation in [ONE, [2, 1, 2]] {
                    let geometry = [stride, pad, dilation];
                    add(dtype, [3, 2, 3], [9, 7, 8], [3, 2, 2], geometry);
                    add(dtype, [1, 3, 1], [4, 6, 2], [2, 9, 1], geometry);
                }
            }
        }
        add(dtype, [1, 1, 1], [4, 4, 4], [4, 8, 1], [ONE, [0; 3], ONE]);
        add(dtype, [1, 1, 1], [2, 1, 1], [3, 7, 2], [ONE, [3, 4, 2], ONE]);
        add(dtype, [1, 1, 1], [1, 1, 1], [1, 1, 1], [ONE, [0; 3], ONE]);
        add(dtype, [2, 2, 1], [5, 4, 3], [0, 3, 2], [ONE, [0; 3], ONE]);
        add(dtype, [2, 2, 1], [0, 4, 3], [2, 3, 1], [ONE, ONE, ONE]);
        add(dtype, [3, 3, 3], [9, 6, 5], [8, 17, 1], [ONE, ONE, ONE]);
        add(dtype, [14, 14, 2], [28, 28, 2], [3, 20, 1], [[14, 14, 2], [0; 3], ONE]);
    }
    cases.push(Case::new("x with its channels first", |g, _| {
        let kernel = g.weight("kernel", DType::F16, &[2, 2, 2, 12], Role::Other);
        let x = g.input("x", DType::F32, &[6, 5, 4, 6]);
        let x = g.permute(x, [1, 2, 3, 0]);
        g.conv_3d(kernel, x, &params([3, 4, 2], [ONE, ONE, ONE]));
    }));
    cases
}

fn params([n_channels, n_out, n_batch]: [u32; 3], [stride, pad, dilation]: [[u32; 3]; 3]) -> Conv3dParams {
    Conv3dParams {
        stride0: stride[0],
        stride1: stride[1],
        stride2: stride[2],
        pad0: pad[0],
        pad1: pad[1],
        pad2: pad[2],
        dilation0: dilation[0],
        dilation1: dilation[1],
        dilation2: dilation[2],
        n_channels,
        n_batch,
        n_out,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compute, floats};
    use super::*;

    #[test]
    fn volumes_under_kernels_of_two_channels() {
        let ramp = |n: i32| floats(&(0..n).map(|i| ((i * 7 + 3) % 11 - 5) as f32).collect::<Vec<_>>());
        let build = |g: &mut Graph| {
            let kernel = g.input("kernel", DType::F32, &[2, 1, 2, 4]);
            let x = g.input("x", DType::F32, &[2, 2, 2, 4]);
            g.conv_3d(kernel, x, &params([2, 2, 2], [[1; 3], [1, 0, 1], [1; 3]]))
        };
        let y = compute(build, &[("kernel", ramp(16)), ("x", ramp(32))]);
        // The start of what ggml's CPU kernel gave.
        let expected = [
            3., -28., 25., 3., -4., 5., -7., 12., -34., 8., 2., -15., 20., 12., 4., -20., 11., 10., 0., -31.,
            25., 6., -6., 0., 21., -36., -33., -7., 33., -13., -15., 22., 5., 17., -22., 17., 3., -1., 8.,
            3.,
        ];
        assert_eq!((y.len(), &y[..40]), (72, &expected[..]));
    }
}
