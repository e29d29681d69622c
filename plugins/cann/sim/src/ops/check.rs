//! What the first phase requires of parameters.

use crate::args::Args;
use crate::fault::{Answer, ensure};
use crate::plan::Kernel;
use crate::sys::*;
use crate::tensor::Tensor;
use crate::view::{Run, broadcast};

/// Element types that an operator takes.
pub type Types = &'static [aclDataType];

/// F32, F16, BF16.
pub const FLOATS: Types = &[ACL_FLOAT, ACL_FLOAT16, ACL_BF16];
/// Numbers.
pub const NUMBERS: Types = &[
    ACL_FLOAT,
    ACL_FLOAT16,
    ACL_BF16,
    ACL_DOUBLE,
    ACL_INT8,
    ACL_INT16,
    ACL_INT32,
    ACL_INT64,
    ACL_UINT8,
    ACL_BOOL,
];
/// Everything but int4.
pub const ALL: Types = &[
    ACL_FLOAT,
    ACL_FLOAT16,
    ACL_BF16,
    ACL_DOUBLE,
    ACL_INT8,
    ACL_INT16,
    ACL_INT32,
    ACL_INT64,
    ACL_UINT8,
    ACL_BOOL,
    ACL_UINT16,
    ACL_UINT32,
    ACL_UINT64,
];
/// Numbers of elements or rows.
pub const INDEX: Types = &[ACL_INT32, ACL_INT64];

/// 161002 unless the condition holds.
pub fn valid(condition: bool, text: impl FnOnce() -> String) -> Answer {
    ensure(condition, ACLNN_ERR_PARAM_INVALID, text)
}

/// 561002 unless the condition holds: nothing is wrong, but the kernel cannot be cut to these shapes.
pub fn tiles(condition: bool, text: impl FnOnce() -> String) -> Answer {
    ensure(condition, ACLNN_ERR_INNER_TILING_ERROR, text)
}

impl Args {
    /// A tensor of one of these types.
    pub fn of(&self, name: &str, types: &[aclDataType]) -> Answer<&Tensor> {
        let t = self.tensor(name)?;
        valid(types.contains(&t.dtype), || format!("`{name}` has dtype {}", t.dtype))?;
        Ok(t)
    }

    /// A tensor of these dims.
    pub fn shaped(&self, name: &str, types: &[aclDataType], dims: &[i64]) -> Answer<&Tensor> {
        let t = self.of(name, types)?;
        valid(t.dims == dims, || format!("`{name}` is {:?}, expected {dims:?}", t.dims))?;
        Ok(t)
    }

    /// A tensor without gaps.
    pub fn whole(&self, name: &str) -> Answer<&Tensor> {
        let t = self.tensor(name)?;
        valid(t.is_contiguous(), || format!("`{name}` has strides {:?} over {:?}", t.strides, t.dims))?;
        Ok(t)
    }
}

/// An operator that computes each element of `out` from those of `ins`, which broadcast.
pub fn map<const N: usize>(
    a: &Args,
    types: Types,
    ins: [&'static str; N],
    out: &'static str,
    f: impl Fn([f64; N]) -> f64 + Send + Sync + 'static,
) -> Answer<Kernel> {
    let dims = a.of(out, ALL)?.dims.clone();
    for name in ins {
        let t = a.of(name, types)?;
        broadcast(t, &dims)?;
        promotes(t.dtype, a.tensor(out)?.dtype)?;
    }
    let rank = ins.iter().map(|name| a.tensor(name).map_or(0, |t| t.dims.len())).max().unwrap_or(0);
    let largest = |d: usize| {
        let n =
            |name: &&str| a.tensor(name).ok().and_then(|t| t.dims.iter().rev().nth(d).copied()).unwrap_or(1);
        ins.iter().map(n).fold(1, |all, n| if n == 1 { all } else { n })
    };
    let joint: Vec<i64> = (0..rank).rev().map(largest).collect();
    valid(N == 0 || joint == dims, || format!("`{out}` is {dims:?}, the operands make {joint:?}"))?;
    Ok(kernel(move |r| {
        let read = |name: &str| r.read_as(name, &dims);
        let ins: Vec<Vec<f64>> = ins.iter().map(|name| read(name)).collect::<Answer<_>>()?;
        let n = dims.iter().product::<i64>() as usize;
        let values: Vec<f64> = (0..n).map(|i| f(std::array::from_fn(|k| ins[k][i]))).collect();
        r.write(out, &values)
    }))
}

/// A kernel.
pub fn kernel(f: impl Fn(&Run<'_>) -> Answer + Send + Sync + 'static) -> Kernel {
    Box::new(f)
}

/// Whether a result of one type may be kept in another: a fraction not in a whole number.
pub fn promotes(from: aclDataType, to: aclDataType) -> Answer {
    let is_float = |t: aclDataType| matches!(t, ACL_FLOAT | ACL_FLOAT16 | ACL_BF16 | ACL_DOUBLE);
    valid(is_float(to) || !is_float(from), || format!("dtype {from} does not go into {to}"))
}

/// Product.
pub fn count(dims: &[i64]) -> usize {
    dims.iter().product::<i64>() as usize
}
