//! How kernels see memory: views are read into numbers, outer dims first, and written back, each checked against the
//! allocation that it lies in when the kernel runs.

use crate::fault::{Answer, Fault, ensure, fault};
use crate::memory::Span;
use crate::object::{Tensor, bits};
use crate::plan::{Args, Value};
use crate::sys::*;
use crate::world::World;
use std::sync::Arc;

/// A kernel while it runs.
pub struct Run<'a> {
    /// The machine.
    pub world: &'a Arc<World>,
    /// The parameters.
    pub args: &'a Args,
    /// The card.
    pub device: usize,
}

impl Args {
    fn value(&self, name: &str) -> Answer<&Value> {
        let found = self.values.iter().find(|(n, _)| *n == name).map(|(_, value)| value);
        found.map_or_else(|| fault(ACLNN_ERR_INNER, format!("the simulator knows no parameter `{name}`")), Ok)
    }

    fn wrong<T>(&self, name: &str, what: &str) -> Answer<T> {
        fault(ACLNN_ERR_PARAM_NULLPTR, format!("{}: `{name}` is no {what}", self.op.name))
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Answer<&Tensor> {
        if let Value::Tensor(t) = self.value(name)? { Ok(t) } else { self.wrong(name, "tensor") }
    }

    /// A tensor that may be NULL.
    pub fn opt(&self, name: &str) -> Option<&Tensor> {
        self.tensor(name).ok()
    }

    /// The tensors of a list; none if it is NULL.
    pub fn list(&self, name: &str) -> Answer<&[Tensor]> {
        match self.value(name)? {
            Value::List(all) => Ok(all),
            Value::Absent => Ok(&[]),
            _ => self.wrong(name, "list"),
        }
    }

    /// A scalar.
    pub fn scalar(&self, name: &str) -> Answer<f64> {
        if let Value::Scalar(s) = self.value(name)? { Ok(s.value) } else { self.wrong(name, "scalar") }
    }

    /// An array.
    pub fn ints(&self, name: &str) -> Answer<&[i64]> {
        if let Value::Ints(v) = self.value(name)? { Ok(v) } else { self.wrong(name, "array") }
    }

    /// A whole number.
    pub fn int(&self, name: &str) -> Answer<i64> {
        if let Value::Int(n) = self.value(name)? { Ok(*n) } else { self.wrong(name, "whole number") }
    }

    /// A number.
    pub fn double(&self, name: &str) -> Answer<f64> {
        if let Value::Double(x) = self.value(name)? { Ok(*x) } else { self.wrong(name, "number") }
    }

    /// A text; empty if it is NULL.
    pub fn text(&self, name: &str) -> Answer<&str> {
        match self.value(name)? {
            Value::Text(text) => Ok(text),
            _ => Ok(""),
        }
    }

    /// A dim that may count from the end.
    pub fn dim(&self, name: &str, rank: usize) -> Answer<usize> {
        let (dim, rank) = (self.int(name)?, rank as i64);
        ensure((-rank..rank).contains(&dim), ACLNN_ERR_PARAM_INVALID, || format!("dim {dim} of {rank}"))?;
        Ok(dim.rem_euclid(rank) as usize)
    }

    /// Every tensor, those of lists too.
    pub fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.values.iter().flat_map(|(_, value)| match value {
            Value::Tensor(t) => std::slice::from_ref(t),
            Value::List(all) => all.as_slice(),
            _ => &[],
        })
    }
}

impl Run<'_> {
    /// A tensor's numbers.
    pub fn read(&self, name: &str) -> Answer<Vec<f64>> {
        self.numbers(self.args.tensor(name)?)
    }

    /// A tensor's numbers, repeated along the dims it lacks or has once.
    pub fn read_as(&self, name: &str, dims: &[i64]) -> Answer<Vec<f64>> {
        self.numbers(&broadcast(self.args.tensor(name)?, dims)?)
    }

    /// The numbers of a view.
    pub fn numbers(&self, t: &Tensor) -> Answer<Vec<f64>> {
        let mut out = Vec::with_capacity(t.n_elements());
        if t.n_elements() == 0 {
            return Ok(out);
        }
        let (span, first) = self.span(t)?;
        let bytes = span.read();
        let bits = bits(t.dtype).unwrap_or(8);
        for_each(t, |at| {
            let at = at as usize - first;
            out.push(match bits {
                4 => nibble(bytes[at / 2], at % 2),
                _ => decode(t.dtype, &bytes[at * bits / 8..][..bits / 8]),
            });
        });
        Ok(out)
    }

    /// Writes a tensor's numbers, rounded to its type once.
    pub fn write(&self, name: &str, values: &[f64]) -> Answer {
        self.write_numbers(self.args.tensor(name)?, values)
    }

    /// Writes the numbers of a view.
    pub fn write_numbers(&self, t: &Tensor, values: &[f64]) -> Answer {
        let wrong = || format!("the simulator made {} numbers for {:?}", values.len(), t.dims);
        ensure(values.len() == t.n_elements(), ACLNN_ERR_INNER, wrong)?;
        ensure(t.dtype != ACL_INT4, ACLNN_ERR_INNER, || "no kernel writes int4".into())?;
        if values.is_empty() {
            return Ok(());
        }
        let size = bits(t.dtype).unwrap_or(8) / 8;
        let encoded: Vec<[u8; 8]> = values.iter().map(|v| encode(t.dtype, *v)).collect();
        self.write_elements(t, size, &encoded)
    }

    /// A view's elements as they are.
    pub fn elements(&self, t: &Tensor) -> Answer<Vec<[u8; 8]>> {
        let mut out = Vec::with_capacity(t.n_elements());
        if t.n_elements() == 0 {
            return Ok(out);
        }
        let size = bits(t.dtype).unwrap_or(8) / 8;
        let (span, first) = self.span(t)?;
        let bytes = span.read();
        for_each(t, |at| {
            let mut element = [0; 8];
            element[..size].copy_from_slice(&bytes[(at as usize - first) * size..][..size]);
            out.push(element);
        });
        Ok(out)
    }

    /// Writes elements of `size` bytes as they are.
    pub fn write_elements(&self, t: &Tensor, size: usize, elements: &[[u8; 8]]) -> Answer {
        if elements.is_empty() {
            return Ok(());
        }
        let (span, first) = self.span(t)?;
        let mut places = Vec::with_capacity(elements.len());
        for_each(t, |at| places.push((at as usize - first) * size));
        span.store(places.into_iter().zip(elements).map(|(at, element)| (at, &element[..size])));
        Ok(())
    }

    /// Fills a workspace with poison.
    pub fn scribble(&self, workspace: usize, n: usize) -> Answer {
        if n == 0 {
            return Ok(());
        }
        let span = self.world.memory.span(workspace, n);
        span.map_err(|text| self.fault(&format!("the workspace: {text}")))?.fill(self.world.config.poison);
        Ok(())
    }

    /// The bytes from a view's first element to its last, and the first's number. Int4 starts at an even one.
    fn span(&self, t: &Tensor) -> Answer<(Span, usize)> {
        let name =
            self.args.values.iter().find(|(_, v)| matches!(v, Value::Tensor(other) if other.base == t.base));
        let name = name.map_or("a member of a list", |(name, _)| name);
        let bits = bits(t.dtype).unwrap_or(8);
        let first = if bits == 4 { t.offset & !1 } else { t.offset };
        let end = if t.format == ACL_FORMAT_FRACTAL_NZ { t.storage.iter().product() } else { t.end() };
        let (start, n) = (t.base + first as usize * bits / 8, ((end - first) as usize * bits).div_ceil(8));
        let span = self.world.memory.span(start, n);
        let span =
            span.map_err(|text| self.fault(&format!("`{name}`, {:?} by {:?}: {text}", t.dims, t.strides)))?;
        if span.device != self.device {
            return Err(self
                .fault(&format!("`{name}` is on card {}, the kernel on card {}", span.device, self.device)));
        }
        if !self.world.memory.may_overread(start + n) {
            self.world
                .trace
                .report(format!("{}: `{name}` ends where units may not read on", self.args.op.name));
            if self.world.config.strict {
                return Err(
                    self.fault(&format!("`{name}` ends less than 32 bytes before the end of mapped memory"))
                );
            }
        }
        Ok((span, first as usize))
    }

    /// A kernel's fault.
    pub fn fault(&self, text: &str) -> Fault {
        let code = if self.args.op.cube {
            ACL_ERROR_RT_AICORE_EXCEPTION
        } else {
            ACL_ERROR_RT_VECTOR_CORE_EXCEPTION
        };
        Fault { code, text: format!("{}: {text}", self.args.op.name) }
    }
}

/// Calls `f` with the place of every element, counted from the base.
fn for_each(t: &Tensor, mut f: impl FnMut(i64)) {
    if t.format == ACL_FORMAT_FRACTAL_NZ {
        return crate::ops::nz::for_each(t, f);
    }
    let Some((n, inner)) = t.dims.last().zip(t.strides.last()) else { return f(t.offset) };
    let outer = &t.dims[..t.dims.len() - 1];
    let mut index = vec![0; outer.len()];
    let mut at = t.offset;
    loop {
        (0..*n).for_each(|i| f(at + i * inner));
        let mut d = outer.len();
        loop {
            let Some(next) = d.checked_sub(1) else { return };
            d = next;
            index[d] += 1;
            at += t.strides[d];
            if index[d] < outer[d] {
                break;
            }
            at -= index[d] * t.strides[d];
            index[d] = 0;
        }
    }
}

/// Whether two views share elements and are not the same view.
pub fn overlap(a: &Tensor, b: &Tensor) -> bool {
    let size = |t: &Tensor| bits(t.dtype).unwrap_or(8) as i64;
    let range = |t: &Tensor| (t.base as i64 * 8 + t.offset * size(t), t.base as i64 * 8 + t.end() * size(t));
    if a.n_elements() == 0 || b.n_elements() == 0 || a == b {
        return false;
    }
    let ((a0, a1), (b0, b1)) = (range(a), range(b));
    // Dims of 1 have no stride that matters.
    let steps = |t: &Tensor| -> Vec<(i64, i64)> {
        t.dims.iter().copied().zip(t.strides.iter().copied()).filter(|(n, _)| *n > 1).collect()
    };
    if a1 <= b0 || b1 <= a0 || (a0 == b0 && a.dtype == b.dtype && steps(a) == steps(b)) {
        return false;
    }
    let places = |t: &Tensor| {
        let mut all = Vec::with_capacity(t.n_elements());
        for_each(t, |at| all.push(t.base as i64 * 8 + at * size(t)));
        all
    };
    let taken: std::collections::HashSet<i64> = places(a).into_iter().collect();
    places(b).iter().any(|at| taken.contains(at))
}

/// A view with more dims, in which what is missing or there once is repeated.
pub fn broadcast(t: &Tensor, dims: &[i64]) -> Answer<Tensor> {
    let mut wide = t.clone();
    let more = dims.len().checked_sub(t.dims.len());
    let refused = || Fault {
        code: ACLNN_ERR_PARAM_INVALID,
        text: format!("{:?} does not broadcast to {dims:?}", t.dims),
    };
    let more = more.ok_or_else(refused)?;
    wide.dims = dims.to_vec();
    wide.strides = vec![0; more];
    for ((n, stride), want) in t.dims.iter().zip(&t.strides).zip(&dims[more..]) {
        ensure(n == want || *n == 1, ACLNN_ERR_PARAM_INVALID, || refused().text)?;
        wide.strides.push(if n == want { *stride } else { 0 });
    }
    Ok(wide)
}

fn nibble(byte: u8, high: usize) -> f64 {
    f64::from(((byte >> (4 * high)) << 4) as i8 >> 4)
}

/// A number from its bytes.
pub fn decode(dtype: aclDataType, b: &[u8]) -> f64 {
    match dtype {
        ACL_FLOAT => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        ACL_FLOAT16 => from_f16(u16::from_le_bytes([b[0], b[1]])),
        ACL_BF16 => f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16).into(),
        ACL_DOUBLE => f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]),
        ACL_INT8 => (b[0] as i8).into(),
        ACL_UINT8 => b[0].into(),
        ACL_BOOL => f64::from(u8::from(b[0] != 0)),
        ACL_INT16 => i16::from_le_bytes([b[0], b[1]]).into(),
        ACL_UINT16 => u16::from_le_bytes([b[0], b[1]]).into(),
        ACL_INT32 => i32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        ACL_UINT32 => u32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
        ACL_UINT64 => u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f64,
        _ => i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f64,
    }
}

/// A number's bytes, rounded to the nearest; whole numbers are cut off.
pub fn encode(dtype: aclDataType, v: f64) -> [u8; 8] {
    let mut out = [0; 8];
    let mut set = |bytes: &[u8]| out[..bytes.len()].copy_from_slice(bytes);
    match dtype {
        ACL_FLOAT => set(&(v as f32).to_le_bytes()),
        ACL_FLOAT16 => set(&to_f16(v).to_le_bytes()),
        ACL_BF16 => set(&to_bf16(v).to_le_bytes()),
        ACL_DOUBLE => set(&v.to_le_bytes()),
        ACL_INT8 => set(&[v as i8 as u8]),
        ACL_UINT8 => set(&[v as u8]),
        ACL_BOOL => set(&[u8::from(v != 0.0)]),
        ACL_INT16 => set(&(v as i16).to_le_bytes()),
        ACL_UINT16 => set(&(v as u16).to_le_bytes()),
        ACL_INT32 => set(&(v as i32).to_le_bytes()),
        ACL_UINT32 => set(&(v as u32).to_le_bytes()),
        ACL_UINT64 => set(&(v as u64).to_le_bytes()),
        _ => set(&(v as i64).to_le_bytes()),
    }
    out
}

/// A number as its type keeps it.
pub fn round_to(dtype: aclDataType, v: f64) -> f64 {
    decode(dtype, &encode(dtype, v))
}

fn from_f16(h: u16) -> f64 {
    let (sign, exponent, fraction) =
        (if h >> 15 == 0 { 1.0 } else { -1.0 }, (h >> 10) & 31, f64::from(h & 1023));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        e => (1024.0 + fraction) * 2f64.powi(i32::from(e) - 25),
    }
}

/// To the nearest, ties to even; too large becomes infinite.
fn to_f16(v: f64) -> u16 {
    let sign = if v.is_sign_negative() { 0x8000 } else { 0 };
    let a = v.abs();
    if a.is_nan() {
        return sign | 0x7e00;
    }
    // The step between neighbours at this size.
    let exponent = (a.to_bits() >> 52) as i32 - 1023;
    let step = exponent.max(-14) - 10;
    let n = (a * 2f64.powi(-step)).round_ties_even();
    if n * 2f64.powi(step) >= 65_520.0 {
        return sign | 0x7c00;
    }
    // A carry into the next exponent comes out right by itself.
    sign | (((step + 24) as u16) << 10).wrapping_add(n as u16)
}

fn to_bf16(v: f64) -> u16 {
    let bits = (v as f32).to_bits();
    if v.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_numbers_come_back_and_ties_go_to_even() {
        for h in (0..=u16::MAX).filter(|h| !from_f16(*h).is_nan()) {
            assert_eq!(to_f16(from_f16(h)), h, "{h:#x}");
        }
        assert_eq!((to_f16(1.0), to_f16(65_504.0), to_f16(65_520.0)), (0x3c00, 0x7bff, 0x7c00));
        assert_eq!((to_f16(1.0 + 1.0 / 2048.0), to_f16(1.0 + 3.0 / 2048.0)), (0x3c00, 0x3c02));
        assert_eq!((to_bf16(1.0), to_bf16(-2.5)), (0x3f80, 0xc020));
    }
}
