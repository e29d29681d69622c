//! y[i·stride + t, c, n] += kernel[t, c, j] · x[i, j, n]: transposed convolution in two dims, without padding and
//! dilation. Kernel [kw, kh, c_out, c_in] and x [w, h, c_in, n] give [(w - 1)·stride0 + kw, (h - 1)·stride1 + kh, c_out, n]
//! (ggml's `conv_transpose_2d_p0`, which rounds x to F16 where the kernel is F16; here it is not rounded).
//!
//! Result: F32; kernel F32, F16 or BF16 without gaps, x F32.

use super::operand::NUMBERS;
use super::{Inferred, Rules, case::Case, check, convolution, value::Value};
use crate::graph::Graph;
use crate::tensor::{Role, Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::Conv2dParams};

impl Graph {
    /// Each element of `x` [w, h, c_in, n] adds `kernel` [kw, kh, c_out, c_in] (F32, F16 or BF16), `stride` apart.
    pub fn conv_transpose_2d(&mut self, kernel: Tensor, x: Tensor, stride: [u32; 2]) -> Tensor {
        let params = super::conv_2d::params(stride, [0, 0], [1, 1]);
        self.push(Op::ConvTranspose2d, &[Some(kernel), Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(Conv2dParams::from_bytes(params))?;
    let kernel = convolution::kernel(src)?.ne;
    let x = check::floats(src, 1, "x")?.ne;
    if [p.pad0, p.pad1, p.dilation0, p.dilation1] != [0, 0, 1, 1] {
        return Err("pad or dilation is given, expected pad 0 and dilation 1".into());
    }
    if kernel[3] != x[2] {
        return Err(format!("kernel {kernel:?} is for {} channels, x {x:?} has {}", kernel[3], x[2]));
    }
    let width = stretched(x[0], p.stride0, kernel[0])?;
    Ok((DType::F32, [width, stretched(x[1], p.stride1, kernel[1])?, kernel[2], x[3]]))
}

/// Elements that `n` kernels of `size` cover, `stride` apart.
pub(super) fn stretched(n: u64, stride: u32, size: u64) -> Result<u64, String> {
    if stride == 0 {
        return Err("stride is 0, expected at least 1".into());
    }
    let covered =
        n.checked_sub(1).and_then(|n| n.checked_mul(stride.into())).and_then(|n| n.checked_add(size));
    covered.ok_or_else(|| format!("{n} elements {stride} apart are too many"))
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = Conv2dParams::from_bytes(params).unwrap_or_default();
    let (kernel, x) = (check::arg(src, 0), check::arg(src, 1));
    let (ne, y) = scatter((kernel.floats(), kernel.ne), (x.floats(), x.ne), [p.stride0, p.stride1]);
    Value::f32(ne, y)
}

/// Shape and elements of what a kernel [kw, kh, c_out, c_in] makes of x [w, h, c_in, n].
pub(super) fn scatter(
    (kernel, kernel_ne): (&[f32], Shape),
    (x, x_ne): (&[f32], Shape),
    stride: [u32; 2],
) -> (Shape, Vec<f32>) {
    let [kw, kh, c_out, c_in] = kernel_ne.map(|n| n as usize);
    let [width, height, _, n_batch] = x_ne.map(|n| n as usize);
    let [s0, s1] = stride.map(|s| s as usize);
    let (y_width, y_height) = ((width - 1) * s0 + kw, (height - 1) * s1 + kh);
    let mut y = vec![0f64; y_width * y_height * c_out * n_batch];
    for (i, &v) in x.iter().enumerate() {
        let [x0, x1, c, batch] =
            [i % width, i / width % height, i / width / height % c_in, i / width / height / c_in];
        for (t, &k) in kernel[c * kw * kh * c_out..][..kw * kh * c_out].iter().enumerate() {
            let [t0, t1, channel] = [t % kw, t / kw % kh, t / kw / kh];
            let row = (batch * c_out + channel) * y_height + x1 * s1 + t1;
            y[row * y_width + x0 * s0 + t0] += k as f64 * v as f64;
        }
    }
    let ne = [y_width, y_height, c_out, n_batch].map(|n| n as u64);
    (ne, y.into_iter().map(|v| v as f32).collect())
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in NUMBERS {
        for (kernel, x, stride) in [
            ([2, 2, 1, 3], [3, 2, 3, 1], [1, 1]),
            ([3, 3, 1, 9], [10, 10, 9, 1], [2, 2]),
            ([3, 3, 1, 9], [10, 10, 9, 2], [2, 2]),
            ([3, 3, 6, 5], [33, 7, 5, 1], [1, 1]),
            ([1, 1, 1, 1], [1, 1, 1, 1], [1, 1]),
            ([1, 1, 2, 3], [5, 4, 3, 2], [3, 3]),
            ([2, 2, 12, 20], [6, 5, 20, 1], [2, 2]),
            ([5, 4, 2, 3], [17, 3, 3, 1], [4, 3]),
            ([7, 2, 3, 2], [16, 4, 2, 2], [2, 5]),
            ([4, 4, 2, 2], [530, 2, 2, 1], [2, 2]),
        ] {
            cases.push(Case::new(
                format!("{dtype} kernel {kernel:?} over {x:?}, stride {stride:?}"),
                |g, _| {
                    let kernel = g.weight("kernel", dtype, &kernel, Role::Other);
                    let x = g.input("x", DType::F32, &x);
                    g.conv_transpose_2d(kernel, x, stride);
                },
            ));
        }
        cases.push(Case::new(format!("{dtype} kernel over a part of x"), |g, _| {
            let kernel = g.weight("kernel", dtype, &[3, 2, 4, 3], Role::Other);
            let x = g.input("x", DType::F32, &[20, 6, 5, 2]);
            let x = g.slice(x, 0, 3, 11);
            let x = g.slice(x, 2, 1, 3);
            g.conv_transpose_2d(kernel, x, [2, 1]);
        }));
    }
    cases
}
