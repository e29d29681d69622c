//! y = x without gaps, converted to another dtype. The one op that reads rows with gaps (permuted dim 0).

use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::quant;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op, op::CopyParams};

impl Graph {
    /// A contiguous copy.
    pub fn cont(&mut self, x: Tensor) -> Tensor {
        self.cast(x, self.def(x).dtype)
    }

    /// A contiguous copy in another dtype.
    pub fn cast(&mut self, x: Tensor, dtype: DType) -> Tensor {
        self.push(Op::Copy, &[Some(x)], &CopyParams { dtype: dtype.id() }.to_bytes())
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], params: &[u8]) -> Inferred {
    let id = check::params(CopyParams::from_bytes(params))?.dtype;
    let to = DType::from_id(id).ok_or_else(|| format!("dtype number {id} is unknown"))?;
    let x = check::given(src, 0, "x")?;
    let numbers = quant::is_supported(x.dtype) && quant::can_encode(to);
    if !numbers && (x.dtype, to) != (DType::I32, DType::I32) {
        return Err(format!("{} cannot become {to}", x.dtype));
    }
    if x.ne[0] % to.block_elems() as u64 != 0 {
        return Err(format!("rows of {} are not whole blocks of {to}", x.ne[0]));
    }
    Ok((to, x.ne))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    check::arg(src, 0).clone()
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for &dtype in DType::ALL.iter().filter(|&&t| quant::can_encode(t)) {
        let nmse = if dtype.is_quantised() { 5e-4 } else { 1e-7 };
        cases.push(
            Case::new(format!("F32 to {dtype}"), |g, _| {
                let x = g.input("x", DType::F32, &[256, 3, 2]);
                g.cast(x, dtype);
            })
            .nmse(nmse),
        );
    }
    for dtype in super::case::weight_dtypes().filter(|&t| t != DType::F32) {
        cases.push(Case::new(format!("{dtype} to F32"), |g, _| {
            let x = g.state("x", dtype, &[256, 3, 2], Role::KCache);
            g.cast(x, DType::F32);
        }));
    }
    for axes in [[1, 0, 2, 3], [2, 0, 1, 3], [0, 2, 1, 3], [3, 2, 1, 0]] {
        for dtype in [DType::F32, DType::F16, DType::I32] {
            cases.push(Case::new(format!("{dtype} permuted by {axes:?}"), |g, ints| {
                let x = g.input("x", dtype, &[5, 4, 3, 2]);
                if dtype == DType::I32 {
                    ints.push((x, (0..120).collect()));
                }
                let x = g.permute(x, axes);
                g.cont(x);
            }));
        }
    }
    cases.push(Case::new("permuted F16 to F32", |g, _| {
        let x = g.input("x", DType::F16, &[6, 5, 4]);
        let x = g.permute(x, [2, 0, 1, 3]);
        g.cast(x, DType::F32);
    }));
    cases.push(Case::new("strided rows", |g, _| {
        let x = g.input("x", DType::F32, &[30, 4]);
        let x = g.slice(x, 0, 7, 11);
        g.cont(x);
    }));
    cases
}
