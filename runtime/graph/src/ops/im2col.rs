//! y[t + n_taps·c, o] = x[o·stride + t·dilation - pad, c], 0 in the padding: the elements under each position of a
//! kernel as one row, taps before channels. In one dim kernel [k, c, _], x [l, c, n] give [k·c, ol, n]; in two, kernel
//! [kw, kh, c, _], x [w, h, c, n] give [kw·kh·c, ow, oh, n]. Of the kernel only the shape matters.
//!
//! Result: F32 or F16, as the params name it.

use super::operand::NUMBERS;
use super::window::{self, Window};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::Im2colParams};

impl Graph {
    /// Rows of the elements of `x` (F32, F16 or BF16) under each position of `kernel`, as F16 or F32.
    pub fn im2col(&mut self, kernel: Tensor, x: Tensor, params: &Im2colParams) -> Tensor {
        self.push(Op::Im2col, &[Some(kernel), Some(x)], &params.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

/// Windows of the dims, and the layout of x [n_in, c, n_batch].
pub(super) struct Columns {
    pub windows: [Window; 3],
    pub n_in: [u64; 3],
    pub c: u64,
    pub n_batch: u64,
}

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let p = check::params(Im2colParams::from_bytes(params))?;
    let kernel = check::given(src, 0, "kernel")?;
    let x = check::numbers(src, 1, "x")?;
    let columns = columns(kernel.ne, x.ne, &p)?;
    Ok((result_dtype(p.dtype)?, result_shape(&columns, p.is_2d)?))
}

/// What columns may be: F16 or F32.
pub(super) fn result_dtype(id: u32) -> Result<DType, String> {
    match DType::from_id(id) {
        Some(dtype @ (DType::F16 | DType::F32)) => Ok(dtype),
        Some(other) => Err(format!("columns cannot be {other}, only F16 or F32")),
        None => Err(format!("dtype number {id} is unknown")),
    }
}

fn columns(kernel: Shape, x: Shape, p: &Im2colParams) -> Result<Columns, String> {
    match p.is_2d {
        0 if kernel[1] == x[1] && x[3] == 1 => Ok(Columns {
            windows: window::windows(kernel, [p.stride0], [p.pad0], [p.dilation0]),
            n_in: [x[0], 1, 1],
            c: x[1],
            n_batch: x[2],
        }),
        1 if kernel[2] == x[2] => {
            let (stride, pad) = ([p.stride0, p.stride1], [p.pad0, p.pad1]);
            Ok(Columns {
                windows: window::windows(kernel, stride, pad, [p.dilation0, p.dilation1]),
                n_in: [x[0], x[1], 1],
                c: x[2],
                n_batch: x[3],
            })
        }
        0 | 1 => Err(format!("kernel {kernel:?} and x {x:?} differ in channels (is_2d {})", p.is_2d)),
        other => Err(format!("is_2d is {other}, expected 0 or 1")),
    }
}

fn result_shape(columns: &Columns, is_2d: u32) -> Result<Shape, String> {
    let ([n0, n1, _], n_batch) = (columns.n_out()?, columns.n_batch);
    let row = columns.row_len()?;
    Ok(if is_2d == 1 { [row, n0, n1, n_batch] } else { [row, n0, n_batch, 1] })
}

impl Columns {
    /// Positions of the window in each dim.
    pub fn n_out(&self) -> Result<[u64; 3], String> {
        window::n_out(&self.windows, self.n_in)
    }

    /// Elements of a row: taps times channels.
    pub fn row_len(&self) -> Result<u64, String> {
        let [w0, w1, w2] = self.windows;
        check::product(&[w0.size, w1.size, w2.size, self.c])
    }

    /// All rows.
    pub fn compute(&self, x: &[f32]) -> Vec<f32> {
        let n_elems = self.n_in.iter().product::<u64>();
        let mut y = vec![];
        for batch in 0..self.n_batch {
            for out in window::indices(self.n_out().unwrap_or_default()) {
                for channel in 0..self.c {
                    let x = &x[((batch * self.c + channel) * n_elems) as usize..];
                    for tap in window::indices(self.windows.map(|w| w.size)) {
                        let at = window::at(&self.windows, out, tap, self.n_in);
                        y.push(at.map_or(0.0, |at| x[window::place(at, self.n_in) as usize]));
                    }
                }
            }
        }
        y
    }
}

fn reference(src: &[Option<&Value>], params: &[u8]) -> Value {
    let p = Im2colParams::from_bytes(params).unwrap_or_default();
    let (kernel, x) = (check::arg(src, 0), check::arg(src, 1));
    match columns(kernel.ne, x.ne, &p).and_then(|c| Ok((result_shape(&c, p.is_2d)?, c))) {
        Ok((ne, columns)) => Value::f32(ne, columns.compute(x.floats())),
        Err(_) => Value::f32([0; 4], vec![]), // `infer` refused it
    }
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    let mut add = |x_dtype: DType, dtype: DType, kernel: [u64; 4], x: [u64; 4], p: Im2colParams| {
        let name = format!("{x_dtype} {x:?} to {dtype} under {kernel:?}, {p:?}");
        cases.push(Case::new(name, |g, _| {
            let kernel = g.input("kernel", DType::F16, &kernel);
            let x = g.input("x", x_dtype, &x);
            g.im2col(kernel, x, &Im2colParams { dtype: dtype.id(), ..p });
        }));
    };
    for dtype in [DType::F32, DType::F16] {
        for x_dtype in NUMBERS {
            add(x_dtype, dtype, [3, 4, 5, 1], [40, 4, 1, 1], one_dim(1, 1, 1));
            add(x_dtype, dtype, [3, 3, 3, 2], [10, 9, 3, 2], two_dims([1, 1], [1, 1], [1, 1]));
        }
        for (stride, pad, dilation) in [(1, 0, 1), (1, 3, 1), (3, 0, 1), (3, 3, 2), (2, 1, 3), (7, 0, 1)] {
            for (kernel, x) in [([1, 5, 1, 1], [20, 5, 2, 1]), ([4, 2, 3, 1], [33, 2, 3, 1])] {
                add(DType::F32, dtype, kernel, x, one_dim(stride, pad, dilation));
            }
        }
        for stride in [[1, 1], [3, 1], [1, 3]] {
            for pad in [[0, 0], [3, 1], [0, 3]] {
                for dilation in [[1, 1], [3, 1], [1, 2]] {
                    let p = two_dims(stride, pad, dilation);
                    add(DType::F32, dtype, [3, 2, 2, 2], [11, 9, 2, 2], p);
                }
            }
        }
        add(DType::F32, dtype, [1, 1, 1, 1], [1, 1, 1, 1], two_dims([1, 1], [0, 0], [1, 1]));
        add(DType::F32, dtype, [1, 1, 1, 1], [2, 2, 1, 1], two_dims([1, 1], [2, 2], [1, 1]));
        add(DType::F32, dtype, [3, 3, 130, 1], [4, 4, 130, 1], two_dims([1, 1], [1, 1], [1, 1]));
        add(DType::F32, dtype, [32, 33, 1, 2], [40, 36, 1, 1], two_dims([1, 1], [1, 1], [1, 1]));
        add(DType::F32, dtype, [14, 14, 3, 8], [42, 28, 3, 1], two_dims([14, 14], [0, 0], [1, 1]));
    }
    for (what, axes) in [("channels first", [1, 2, 0, 3]), ("width and height swapped", [1, 0, 2, 3])] {
        for dtype in [DType::F32, DType::F16] {
            cases.push(Case::new(format!("{dtype} x with its {what}"), |g, _| {
                let kernel = g.input("kernel", DType::F32, &[3, 2, 5, 1]);
                let x = g.input("x", dtype, if axes[2] == 0 { &[5, 9, 8, 2] } else { &[8, 9, 5, 2] });
                let x = g.permute(x, axes);
                let p = two_dims([2, 1], [1, 1], [1, 1]);
                g.im2col(kernel, x, &Im2colParams { dtype: DType::F32.id(), ..p });
            }));
        }
    }
    cases.push(Case::new("a part of the rows of x", |g, _| {
        let kernel = g.input("kernel", DType::F32, &[3, 4, 1, 1]);
        let x = g.input("x", DType::F32, &[30, 6]);
        let x = g.slice(x, 0, 5, 20);
        let x = g.slice(x, 1, 1, 4);
        g.im2col(kernel, x, &Im2colParams { dtype: DType::F32.id(), ..one_dim(1, 1, 1) });
    }));
    cases
}

/// Params of one dim; the dtype is still to be set.
pub(super) fn one_dim(stride0: u32, pad0: u32, dilation0: u32) -> Im2colParams {
    Im2colParams { stride0, pad0, dilation0, ..Default::default() }
}

/// Params of two dims; the dtype is still to be set.
pub(super) fn two_dims(stride: [u32; 2], pad: [u32; 2], dilation: [u32; 2]) -> Im2colParams {
    Im2colParams {
        stride0: stride[0],
        stride1: stride[1],
        pad0: pad[0],
        pad1: pad[1],
        dilation0: dilation[0],
        dilation1: dilation[1],
        is_2d: 1,
        dtype: 0,
    }
}
