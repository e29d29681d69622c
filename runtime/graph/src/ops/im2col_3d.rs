//! im2col in three dims: kernel [kw, kh, kd, c·_] and x [w, h, d, c·n] give [kw·kh·kd·c, ow, oh, od·n].
//!
//! Result: F32 or F16, as the params name it.

use super::im2col::{Columns, result_dtype};
use super::operand::NUMBERS;
use super::window;
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::Im2col3dParams};

impl Graph {
    /// Rows of the elements of `x` (F32, F16 or BF16) under each position of `kernel`, as F16 or F32.
    pub fn im2col_3d(&mut self, kernel: Tensor, x: Tensor, params: &Im2col3dParams) -> Tensor {
        self.push(Op::Im2col3d, &[Some(kernel), Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(Im2col3dParams::from_bytes(params))?;
    let kernel = check::given(src, 0, "kernel")?;
    let x = check::numbers(src, 1, "x")?;
    let columns = columns(kernel.ne, x.ne, &p)?;
    Ok((result_dtype(p.dtype)?, result_shape(&columns)?))
}

fn columns(kernel: Shape, x: Shape, p: &Im2col3dParams) -> Result<Columns, String> {
    let c = p.n_channels.into();
    if c == 0 || !x[3].is_multiple_of(c) || !kernel[3].is_multiple_of(c) {
        return Err(format!("kernel {kernel:?} and x {x:?} are not of {c} channels in dim 3"));
    }
    let windows = window::windows(
        kernel,
        [p.stride0, p.stride1, p.stride2],
        [p.pad0, p.pad1, p.pad2],
        [p.dilation0, p.dilation1, p.dilation2],
    );
    Ok(Columns { windows, n_in: [x[0], x[1], x[2]], c, n_batch: x[3] / c })
}

fn result_shape(columns: &Columns) -> Result<Shape, String> {
    let [n0, n1, n2] = columns.n_out()?;
    Ok([columns.row_len()?, n0, n1, check::product(&[n2, columns.n_batch])?])
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = Im2col3dParams::from_bytes(params).unwrap_or_default();
    let (kernel, x) = (check::arg(src, 0), check::arg(src, 1));
    match columns(kernel.ne, x.ne, &p).and_then(|c| Ok((result_shape(&c)?, c))) {
        Ok((ne, columns)) => Value::f32(ne, columns.compute(x.floats())),
        Err(_) => Value::f32([0; 4], vec![]), // `infer` refused it
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let mut add = |x_dtype: DType, dtype: DType, kernel: [u64; 4], x: [u64; 4], p: Im2col3dParams| {
        let name = format!("{x_dtype} {x:?} to {dtype} under {kernel:?}, {p:?}");
        cases.push(Case::new(name, |g, _| {
            let kernel = g.input("kernel", DType::F16, &kernel);
            let x = g.input("x", x_dtype, &x);
            g.im2col_3d(kernel, x, &Im2col3dParams { dtype: dtype.id(), ..p });
        }));
    };
    for dtype in [DType::F32, DType::F16] {
        for x_dtype in NUMBERS {
            add(x_dtype, dtype, [3, 3, 3, 3], [7, 6, 5, 6], params(3, [1; 3], [1; 3], [1; 3]));
        }
        for stride in [[1, 1, 1], [3, 1, 2]] {
            for pad in [[0, 0, 0], [3, 2, 1]] {
                for dilation in [[1, 1, 1], [1, 2, 3]] {
                    let p = params(2, stride, pad, dilation);
                    add(DType::F32, dtype, [3, 2, 2, 4], [9, 7, 8, 4], p);
                }
            }
        }
        add(DType::F32, dtype, [1, 1, 1, 1], [1, 1, 1, 1], params(1, [1; 3], [0; 3], [1; 3]));
        add(DType::F32, dtype, [1, 1, 1, 3], [1, 2, 1, 6], params(3, [1; 3], [2, 1, 3], [1; 3]));
        add(DType::F32, dtype, [16, 16, 1, 5], [33, 35, 2, 5], params(5, [16, 16, 1], [0; 3], [1; 3]));
    }
    cases.push(Case::new("x with its channels first", |g, _| {
        let kernel = g.input("kernel", DType::F32, &[2, 2, 2, 3]);
        let x = g.input("x", DType::F32, &[3, 5, 4, 6]);
        let x = g.permute(x, [1, 2, 3, 0]);
        g.im2col_3d(kernel, x, &Im2col3dParams { dtype: 0, ..params(3, [1; 3], [1; 3], [1; 3]) });
    }));
    cases
}

/// Params, the dtype still to be set.
fn params(n_channels: u32, stride: [u32; 3], pad: [u32; 3], dilation: [u32; 3]) -> Im2col3dParams {
    Im2col3dParams {
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
        dtype: 0,
    }
}
