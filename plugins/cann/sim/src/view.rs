//! How kernels see memory: views are read into numbers, outer dims first, and written back, each checked against the
//! allocation that it is in when the kernel runs.

use crate::args::{Args, Value};
use crate::fault::{Answer, Fault, ensure};
use crate::number::{decode, encode, nibble};
use crate::span::Span;
use crate::sys::*;
use crate::tensor::{Tensor, bits, element_bytes};
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
        match t.dtype {
            ACL_INT4 => for_each(t, |at| {
                let at = at as usize - first;
                out.push(nibble(bytes[at / 2], at % 2));
            }),
            ACL_FLOAT => read_all(t, first, &bytes, 4, |b| out.push(decode(ACL_FLOAT, b))),
            ACL_FLOAT16 => read_all(t, first, &bytes, 2, |b| out.push(decode(ACL_FLOAT16, b))),
            dtype => read_all(t, first, &bytes, element_bytes(dtype), |b| out.push(decode(dtype, b))),
        }
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
        match t.dtype {
            ACL_FLOAT => self.write_all(t, 4, values, |v| encode(ACL_FLOAT, *v)),
            ACL_FLOAT16 => self.write_all(t, 2, values, |v| encode(ACL_FLOAT16, *v)),
            dtype => self.write_all(t, element_bytes(dtype), values, |v| encode(dtype, *v)),
        }
    }

    /// A view's elements as they are.
    pub fn elements(&self, t: &Tensor) -> Answer<Vec<[u8; 8]>> {
        let mut out = Vec::with_capacity(t.n_elements());
        if t.n_elements() == 0 {
            return Ok(out);
        }
        let (span, first) = self.span(t)?;
        let size = element_bytes(t.dtype);
        read_all(t, first, &span.read(), size, |bytes| {
            let mut element = [0; 8];
            element[..size].copy_from_slice(bytes);
            out.push(element);
        });
        Ok(out)
    }

    /// Writes elements of `size` bytes as they are.
    pub fn write_elements(&self, t: &Tensor, size: usize, elements: &[[u8; 8]]) -> Answer {
        self.write_all(t, size, elements, |element| *element)
    }

    /// Writes the first `size` bytes of what `encode` makes of each element.
    #[inline(always)] // for one type
    fn write_all<T>(
        &self,
        t: &Tensor,
        size: usize,
        elements: &[T],
        encode: impl Fn(&T) -> [u8; 8],
    ) -> Answer {
        if elements.is_empty() {
            return Ok(());
        }
        let (span, first) = self.span(t)?;
        let mut places = Vec::with_capacity(elements.len());
        for_each(t, |at| places.push((at as usize - first) * size));
        span.store(places.into_iter().zip(elements.iter().map(|element| First(encode(element), size))));
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
#[inline(always)] // for one type
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

/// The first so many of eight bytes.
struct First([u8; 8], usize);

impl AsRef<[u8]> for First {
    #[inline(always)]
    fn as_ref(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// The bytes of each element of a view whose first one is number `first`.
#[inline(always)] // for one type
fn read_all(t: &Tensor, first: usize, bytes: &[u8], size: usize, mut f: impl FnMut(&[u8])) {
    for_each(t, |at| f(&bytes[(at as usize - first) * size..][..size]));
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
    for ((n, stride), target) in t.dims.iter().zip(&t.strides).zip(&dims[more..]) {
        ensure(n == target || *n == 1, ACLNN_ERR_PARAM_INVALID, || refused().text)?;
        wide.strides.push(if n == target { *stride } else { 0 });
    }
    Ok(wide)
}
