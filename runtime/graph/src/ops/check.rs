//! Checks that shape rules share, and access to the sources they checked. Messages have what was found and expected.
//! Tensors may be empty: a rule refuses one only where its formula has no value for it.

use super::value::{Data, Value};
use crate::tensor::TensorDef;
use llmrt_abi::{DType, dtype::DTypeKind};

/// Source `i`, which must be given.
pub(super) fn given<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    optional(src, i).ok_or_else(|| format!("{what} is missing"))
}

/// Source `i` if it is given.
pub(super) fn optional<'a>(src: &[Option<&'a TensorDef>], i: usize) -> Option<&'a TensorDef> {
    src.get(i).copied().flatten()
}

/// Source `i`, F32 with dense rows.
pub(super) fn floats<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    of_dtype(given(src, i, what)?, DType::F32, what)
}

/// Source `i` if it is given, F32 with dense rows.
pub(super) fn optional_floats<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<Option<&'a TensorDef>, String> {
    optional(src, i).map(|t| of_dtype(t, DType::F32, what)).transpose()
}

/// Source `i`: F32, F16 or BF16, at any strides.
pub(super) fn numbers<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    let t = given(src, i, what)?;
    match t.dtype {
        DType::F32 | DType::F16 | DType::BF16 => Ok(t),
        other => Err(format!("{what} is {other}, expected F32, F16 or BF16")),
    }
}

/// Source `i`: F32 at any strides.
pub(super) fn any_floats<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    any_of(src, i, DType::F32, what)
}

/// Source `i`: I32 at any strides.
pub(super) fn any_ints<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    any_of(src, i, DType::I32, what)
}

fn any_of<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    dtype: DType,
    what: &str,
) -> Result<&'a TensorDef, String> {
    let t = given(src, i, what)?;
    match t.dtype == dtype {
        true => Ok(t),
        false => Err(format!("{what} is {}, expected {dtype}", t.dtype)),
    }
}

/// Source `i`, I32 with dense rows.
pub(super) fn ints<'a>(src: &[Option<&'a TensorDef>], i: usize, what: &str) -> Result<&'a TensorDef, String> {
    of_dtype(given(src, i, what)?, DType::I32, what)
}

/// Source `i` of any float or quantised dtype that can be decoded, with dense rows.
pub(super) fn decodable<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    let t = given(src, i, what)?;
    if t.dtype.info().kind == DTypeKind::Int {
        return Err(format!("{what} is {}, expected a float or quantised type", t.dtype));
    }
    if !crate::quant::is_supported(t.dtype) {
        return Err(format!("{what} is {}, which this build cannot decode; convert it", t.dtype));
    }
    dense(t, what)
}

/// Source `i`: F32, F16 or BF16 at any strides, or as [`decodable`].
pub(super) fn matrix<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    numbers(src, i, what).or_else(|_| decodable(src, i, what))
}

/// A vector of `n` elements.
pub(super) fn vector(t: &TensorDef, n: u64, what: &str) -> Result<(), String> {
    match t.ne == [n, 1, 1, 1] {
        true => Ok(()),
        false => Err(format!("{what} is {:?}, expected {n} elements", t.ne)),
    }
}

/// The product of dims, if it is a size that a tensor can have.
pub(super) fn product(dims: &[u64]) -> Result<u64, String> {
    let n = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    n.ok_or_else(|| format!("a tensor of {dims:?} elements is too big"))
}

/// The params struct read by its `from_bytes`.
pub(super) fn params<P>(read: Option<P>) -> Result<P, String> {
    read.ok_or_else(|| "params have attributes newer than this build".to_string())
}

fn of_dtype<'a>(t: &'a TensorDef, dtype: DType, what: &str) -> Result<&'a TensorDef, String> {
    if t.dtype != dtype {
        return Err(format!("{what} is {}, expected {dtype}", t.dtype));
    }
    dense(t, what)
}

fn dense<'a>(t: &'a TensorDef, what: &str) -> Result<&'a TensorDef, String> {
    match t.has_dense_rows() {
        true => Ok(t),
        false => Err(format!("{what} has gaps within its rows; make it contiguous with `cont`")),
    }
}

/// Source `i` of a reference; an empty value if it is left out.
pub(super) fn arg<'a>(src: &[Option<&'a Value>], i: usize) -> &'a Value {
    static EMPTY: Value = Value { ne: [0; 4], data: Data::F32(Vec::new()) };
    optional_arg(src, i).unwrap_or(&EMPTY)
}

/// Source `i` of a reference, if it is given.
pub(super) fn optional_arg<'a>(src: &[Option<&'a Value>], i: usize) -> Option<&'a Value> {
    src.get(i).copied().flatten()
}
