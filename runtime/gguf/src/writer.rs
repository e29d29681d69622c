//! Writes GGUF files: header, metadata, tensor table, then each tensor's bytes, padded to the alignment.

use std::io::{self, Write};

use crate::error::Error;
use crate::header::{Flavour, alignment, dtype_id, index, min_row};
use crate::metadata::Metadata;
use crate::reader::MAX_NESTING;
use crate::tensor::TensorShape;
use crate::value::{Array, Value};

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A table that no reader would accept.
    #[error(transparent)]
    Invalid(#[from] Error),
    /// A tensor was given with more or fewer bytes than its shape requires.
    #[error("tensor `{tensor}`: {found} bytes were given, its shape has {expected}")]
    WrongSize {
        /// The tensor.
        tensor: String,
        /// Bytes given.
        found: u64,
        /// Bytes of its shape.
        expected: u64,
    },
    /// The write failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// What is written before the data. The alignment is the metadata's `general.alignment`, else 32.
#[derive(Clone, PartialEq, Debug)]
pub struct Tables {
    /// Dense or PowerInfer.
    pub flavour: Flavour,
    /// 2 or 3.
    pub version: u32,
    /// The key-value pairs.
    pub metadata: Metadata,
    /// The tensors, in the order of their data.
    pub tensors: Vec<TensorShape>,
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { flavour: Flavour::Dense, version: 3, metadata: Metadata::new(), tensors: Vec::new() }
    }
}

/// Writes a file and returns its length. `data(i, out)` writes exactly the bytes of tensor `i`.
pub fn write<W: Write>(
    out: W,
    tables: &Tables,
    mut data: impl FnMut(usize, &mut dyn Write) -> io::Result<()>,
) -> Result<u64, WriteError> {
    let alignment = u64::from(alignment(&tables.metadata)?);
    if !matches!(tables.version, 2 | 3) {
        return Err(Error::BadVersion { found: tables.version }.into());
    }
    index(tables.tensors.iter().map(|t| &t.name))?;
    let places = places(tables, alignment)?;

    let mut out = Counted { out, n: 0 };
    out.write_all(match tables.flavour {
        Flavour::Dense => b"GGUF",
        Flavour::PowerInfer => b"PWRI",
    })?;
    out.u32(tables.version)?;
    out.u64(tables.tensors.len() as u64)?;
    out.u64(tables.metadata.len() as u64)?;
    for (key, value) in tables.metadata.iter() {
        out.string(key)?;
        out.value(key, value)?;
    }

    for (tensor, place) in tables.tensors.iter().zip(&places) {
        out.tensor(tensor, place)?;
    }

    if !places.is_empty() {
        out.pad(alignment)?;
    }
    for (i, &Place { nbytes: expected, .. }) in places.iter().enumerate() {
        let start = out.n;
        data(i, &mut out)?;
        let found = out.n - start;
        if found != expected {
            return Err(WriteError::WrongSize { tensor: tables.tensors[i].name.clone(), found, expected });
        }
        out.pad(alignment)?;
    }
    out.flush()?;
    Ok(out.n)
}

/// What the tensor table has of a tensor besides name and shape.
struct Place {
    type_id: u32,
    /// From the beginning of the data.
    offset: u64,
    nbytes: u64,
}

fn places(tables: &Tables, alignment: u64) -> Result<Vec<Place>, Error> {
    let min_row = min_row(tables.flavour, &tables.metadata);
    let mut offset = 0u64;
    let mut places = Vec::with_capacity(tables.tensors.len());
    for t in &tables.tensors {
        let tensor = || t.name.clone();
        let nbytes = t.nbytes_of_rows(min_row)?;
        let type_id = dtype_id(t.dtype, tables.flavour);
        let type_id =
            type_id.ok_or_else(|| Error::BadTensorType { tensor: tensor(), found: t.dtype.id() })?;
        places.push(Place { type_id, offset, nbytes });
        let end = offset.checked_add(nbytes).and_then(|end| end.checked_next_multiple_of(alignment));
        offset = end.ok_or_else(|| Error::TooManyElements { tensor: tensor(), ne: t.ne })?;
    }
    Ok(places)
}

/// A file in memory; `data[i]` are the bytes of tensor `i`.
pub fn to_vec(tables: &Tables, data: &[&[u8]]) -> Result<Vec<u8>, WriteError> {
    let mut bytes = Vec::new();
    write(&mut bytes, tables, |i, out| out.write_all(data.get(i).copied().unwrap_or_default()))?;
    Ok(bytes)
}

/// A writer that counts its bytes.
struct Counted<W> {
    out: W,
    n: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.n += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Counted<W> {
    fn u32(&mut self, v: u32) -> io::Result<()> {
        self.write_all(&v.to_le_bytes())
    }

    fn u64(&mut self, v: u64) -> io::Result<()> {
        self.write_all(&v.to_le_bytes())
    }

    fn string(&mut self, s: &str) -> io::Result<()> {
        self.u64(s.len() as u64)?;
        self.write_all(s.as_bytes())
    }

    /// A type, then a value of it.
    fn value(&mut self, key: &str, value: &Value) -> Result<(), WriteError> {
        self.u32(value.value_type() as u32)?;
        match value {
            Value::U8(v) => self.write_all(&v.to_le_bytes())?,
            Value::I8(v) => self.write_all(&v.to_le_bytes())?,
            Value::U16(v) => self.write_all(&v.to_le_bytes())?,
            Value::I16(v) => self.write_all(&v.to_le_bytes())?,
            Value::U32(v) => self.write_all(&v.to_le_bytes())?,
            Value::I32(v) => self.write_all(&v.to_le_bytes())?,
            Value::F32(v) => self.write_all(&v.to_le_bytes())?,
            Value::Bool(v) => self.write_all(&[u8::from(*v)])?,
            Value::String(s) => self.string(s)?,
            Value::Array(a) => self.array(key, a, 1)?,
            Value::U64(v) => self.write_all(&v.to_le_bytes())?,
            Value::I64(v) => self.write_all(&v.to_le_bytes())?,
            Value::F64(v) => self.write_all(&v.to_le_bytes())?,
        }
        Ok(())
    }

    /// An element type, a count, then the elements.
    fn array(&mut self, key: &str, array: &Array, depth: usize) -> Result<(), WriteError> {
        if depth > MAX_NESTING {
            return Err(Error::NestedTooDeep { key: key.into(), limit: MAX_NESTING }.into());
        }
        self.u32(array.element_type() as u32)?;
        self.u64(array.len() as u64)?;
        match array {
            Array::U8(v) => self.write_all(v)?,
            Array::I8(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::U16(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::I16(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::U32(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::I32(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::F32(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::Bool(v) => self.numbers(v, |x| [u8::from(x)])?,
            Array::U64(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::I64(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::F64(v) => self.numbers(v, |x| x.to_le_bytes())?,
            Array::String(v) => v.iter().try_for_each(|s| self.string(s))?,
            Array::Nested(v) => v.iter().try_for_each(|a| self.array(key, a, depth + 1))?,
        }
        Ok(())
    }

    fn numbers<T: Copy, const N: usize>(&mut self, v: &[T], bytes: impl Fn(T) -> [u8; N]) -> io::Result<()> {
        v.iter().try_for_each(|&x| self.write_all(&bytes(x)))
    }

    /// One entry of the tensor table.
    fn tensor(&mut self, tensor: &TensorShape, place: &Place) -> io::Result<()> {
        self.string(&tensor.name)?;
        self.u32(tensor.dims().len() as u32)?;
        tensor.dims().iter().try_for_each(|&n| self.u64(n))?;
        self.u32(place.type_id)?;
        self.u64(place.offset)
    }

    fn pad(&mut self, alignment: u64) -> io::Result<()> {
        let n = self.n.next_multiple_of(alignment) - self.n;
        io::copy(&mut io::Read::take(io::repeat(0), n), self).map(drop)
    }
}
