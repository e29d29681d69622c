//! Ops that move elements without looking at them: operands of any dtype, results put together element by element.

use super::check;
use super::value::{Data, Value};
use crate::tensor::{Shape, TensorDef};

/// Source `i` of any dtype. Plain ones at any strides, quantised ones with dense rows.
pub(super) fn any<'a>(src: &[Option<&'a TensorDef>], i: usize, what: &str) -> Result<&'a TensorDef, String> {
    let t = check::given(src, i, what)?;
    match t.dtype.is_quantised() && !t.has_dense_rows() {
        true => Err(format!("{what} has gaps between its blocks; {} rows are dense", t.dtype)),
        false => Ok(t),
    }
}

/// Source `i` of any plain dtype at any strides.
pub(super) fn plain<'a>(
    src: &[Option<&'a TensorDef>],
    i: usize,
    what: &str,
) -> Result<&'a TensorDef, String> {
    let t = any(src, i, what)?;
    match t.dtype.is_quantised() {
        true => Err(format!("{what} is {}, expected a plain type; convert it with `cast`", t.dtype)),
        false => Ok(t),
    }
}

/// Where an element of a result comes from.
pub(super) enum From {
    /// The element of this source at these indices.
    Source(usize, Shape),
    /// A number.
    Number(f32),
}

/// The result of these dims whose element at each index comes from the index that `from` returns. Of quantised sources the indices
/// in dim 0 count blocks.
pub(super) fn gather(ne: Shape, sources: &[&Value], from: impl Fn(Shape) -> From) -> Value {
    let first = sources.first().map_or(check::arg(&[], 0), |first| first);
    let per_block = per_block(first);
    let mut y = Value { ne, data: empty_like(&first.data) };
    for i3 in 0..ne[3] {
        for i2 in 0..ne[2] {
            for i1 in 0..ne[1] {
                for i0 in 0..ne[0] / per_block {
                    match from([i0, i1, i2, i3]) {
                        From::Source(s, at) => append(&mut y.data, sources[s], at, per_block),
                        From::Number(v) => append_number(&mut y.data, v),
                    }
                }
            }
        }
    }
    y
}

fn empty_like(data: &Data) -> Data {
    match data {
        Data::F32(_) => Data::F32(vec![]),
        Data::I32(_) => Data::I32(vec![]),
        Data::Blocks { dtype, .. } => Data::Blocks { dtype: *dtype, bytes: vec![], floats: vec![] },
    }
}

fn append(to: &mut Data, from: &Value, [i0, i1, i2, i3]: Shape, per_block: u64) {
    let row = (i3 * from.ne[2] + i2) * from.ne[1] + i1;
    let at = (row * (from.ne[0] / per_block) + i0) as usize;
    match (to, &from.data) {
        (Data::F32(to), Data::F32(from)) => to.push(from[at]),
        (Data::I32(to), Data::I32(from)) => to.push(from[at]),
        (Data::Blocks { dtype, bytes, floats }, Data::Blocks { bytes: b, floats: f, .. }) => {
            let (size, elems) = (dtype.block_bytes(), dtype.block_elems());
            bytes.extend_from_slice(&b[at * size..][..size]);
            floats.extend_from_slice(&f[at * elems..][..elems]);
        }
        _ => {}
    }
}

/// Integers drop the fraction; the shape rules refuse blocks with numbers.
fn append_number(to: &mut Data, v: f32) {
    match to {
        Data::F32(to) => to.push(v),
        Data::I32(to) => to.push(v as i32),
        Data::Blocks { .. } => {}
    }
}

/// Elements that an index in dim 0 of [`gather`] counts.
pub(super) fn per_block(x: &Value) -> u64 {
    match &x.data {
        Data::Blocks { dtype, .. } => dtype.block_elems() as u64,
        _ => 1,
    }
}

/// A dim's number.
pub(super) fn dim(dim: u32) -> Result<usize, String> {
    match dim {
        0..4 => Ok(dim as usize),
        _ => Err(format!("dim {dim}, expected 0 to 3")),
    }
}
