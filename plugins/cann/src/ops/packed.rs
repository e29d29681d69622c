//! Quantised weights as they are in the file, and their numbers, computed on the card: exactly, but slowly.

use crate::buffer::CardMemory;
use crate::call::Call;
use crate::format::{self, Field, Format};
use crate::layout;
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::{DType, Error, Result, TensorView};

/// Blocks of rows.
#[derive(Clone, Debug)]
pub struct Packed {
    dtype: DType,
    /// I8 [row's bytes, rows]; rows of all matrices follow each other.
    pub bytes: Operand,
}

impl Packed {
    /// Whether a tensor's numbers can be had: a known format without gaps.
    pub fn reads(t: &TensorView<'_>) -> bool {
        t.dtype().is_some_and(|dtype| format::of(dtype).is_some()) && t.is_contiguous()
    }

    /// A quantised tensor whose layout keeps the file's bytes.
    pub fn of(t: &TensorView<'_>) -> Result<Option<Packed>> {
        let Some(dtype) = t.dtype().filter(|dtype| format::of(*dtype).is_some()) else { return Ok(None) };
        let Some(kept_at) = layout::canonical_at(t) else { return Ok(None) };
        let memory = t.buffer::<CardMemory>();
        let memory = memory.ok_or_else(|| Error::invalid(format!("`{}` is not on a card", t.name())))?;
        let row = t.ne()[0] / dtype.block_elems() * dtype.block_bytes();
        let bytes = Operand::contiguous(ACL_INT8, &[row as i64, t.n_rows() as i64], memory.address(0));
        Ok(Some(Packed { dtype, bytes: Operand { offset: (t.offset() + kept_at) as i64, ..bytes } }))
    }

    /// `n` rows from `start` on.
    pub fn part(&self, start: i64, n: i64) -> Packed {
        Packed { bytes: self.bytes.slice(1, start, n), ..self.clone() }
    }

    /// The same format with other rows.
    pub fn with(&self, bytes: Operand) -> Packed {
        Packed { bytes, ..self.clone() }
    }

    /// To be written: `n` blocks' bytes of values, I8 [bytes, n], and their scales, F16 [1, n]. Of Q4_0 and Q8_0.
    pub fn blocks(&self, n: i64) -> (Operand, Operand) {
        let size = self.dtype.block_bytes() as i64;
        let all = self.bytes.reshape(&[size, n]);
        let d = Operand {
            dtype: ACL_FLOAT16,
            ne: vec![1, n],
            stride: vec![1, size / 2],
            offset: all.offset / 2,
            ..all.clone()
        };
        (all.slice(0, 2, size - 2), d)
    }

    /// y = their numbers: F32 [k, rows] without gaps.
    pub fn decode(&self, call: &mut Call<'_>, y: &Operand) -> Result<()> {
        let Some(f) = format::of(self.dtype) else { return Err(Error::unsupported("no such format")) };
        let blocks = Blocks::new(&f, &self.bytes);
        let (n, parts) = (f.n as i64, f.parts as i64);
        let values = y.reshape(&[n, blocks.n, blocks.rows]);
        call.scoped(|call| {
            call.fill(&values, -f.zero)?;
            blocks.add(call, &f.values, &values)?;
            let d = blocks.half(call, f.d)?;
            let scales = match f.scales.is_empty() {
                true => d,
                false => {
                    let scales = call.temporary(ACL_FLOAT, &[parts, blocks.n, blocks.rows])?;
                    call.fill(&scales, -f.scale_zero)?;
                    blocks.add(call, &f.scales, &scales)?;
                    call.mul(&scales, &d, &scales)?;
                    scales
                }
            };
            let in_parts = values.split(0, n / parts);
            call.mul(&in_parts, &scales.with_dim(0), &in_parts)?;
            let Some((at, sign)) = f.min else { return Ok(()) };
            let min = blocks.half(call, at)?;
            call.scale(&min, sign, &min)?;
            let mins = match f.mins.is_empty() {
                true => min,
                false => {
                    let mins = call.temporary(ACL_FLOAT, &[parts, blocks.n, blocks.rows])?;
                    call.fill(&mins, 0.0)?;
                    blocks.add(call, &f.mins, &mins)?;
                    call.mul(&mins, &min, &mins)?;
                    mins
                }
            };
            call.sub(&in_parts, &mins.with_dim(0), &in_parts)
        })
    }
}

/// Bytes as blocks: [byte, block, row].
struct Blocks {
    bytes: Operand,
    n: i64,
    rows: i64,
}

impl Blocks {
    fn new(f: &Format, bytes: &Operand) -> Blocks {
        let bytes = bytes.split(0, f.bytes as i64);
        Blocks { n: bytes.ne[1], rows: bytes.ne[2], bytes }
    }

    /// The F16 at a byte of each block, as F32 [1, blocks, rows].
    fn half(&self, call: &mut Call<'_>, at: usize) -> Result<Operand> {
        let halves = |n: i64| n / 2;
        let t = Operand {
            dtype: ACL_FLOAT16,
            ne: vec![1, self.n, self.rows],
            stride: vec![1, halves(self.bytes.stride[1]), halves(self.bytes.stride[2])],
            offset: halves(self.bytes.offset + at as i64),
            ..self.bytes.clone()
        };
        call.cast(&t, ACL_FLOAT)
    }

    /// y [number, block, row] += what the fields hold.
    fn add(&self, call: &mut Call<'_>, fields: &[Field], y: &Operand) -> Result<()> {
        fields.iter().try_for_each(|f| {
            call.scoped(|call| {
                let (from, to) = (spread(&self.bytes, f.at, f.n, [1, f.from]), spread(y, f.to, f.n, f.step));
                let numbers = number(call, &from, f)?;
                call.add(&to, &numbers, &to)
            })
        })
    }
}

/// Of dim 0 the elements from `at` on, as two dims.
fn spread(t: &Operand, at: usize, n: [usize; 2], step: [usize; 2]) -> Operand {
    let mut t = t.clone();
    let unit = t.stride[0];
    t.offset += at as i64 * unit;
    (t.ne[0], t.stride[0]) = (n[0] as i64, step[0] as i64 * unit);
    t.ne.insert(1, n[1] as i64);
    t.stride.insert(1, step[1] as i64 * unit);
    t
}

/// The bits of bytes as F32 numbers.
fn number(call: &mut Call<'_>, bytes: &Operand, f: &Field) -> Result<Operand> {
    if f.bits == 8 {
        return call.cast(bytes, ACL_FLOAT);
    }
    let x = call.cast(&bytes.as_type(ACL_UINT8), ACL_FLOAT)?;
    if f.shift > 0 {
        call.scale(&x, 2f32.powi(-(f.shift as i32)), &x)?;
        call.floor(&x, &x)?;
    }
    if f.shift + f.bits < 8 {
        let above = call.temporary(ACL_FLOAT, &x.ne)?;
        call.scale(&x, 2f32.powi(-(f.bits as i32)), &above)?;
        call.floor(&above, &above)?;
        call.scale(&above, -(2f32.powi(f.bits as i32)), &above)?;
        call.add(&x, &above, &x)?;
    }
    if f.factor != 1.0 {
        call.scale(&x, f.factor, &x)?;
    }
    Ok(x)
}
