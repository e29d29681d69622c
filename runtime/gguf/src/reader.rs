//! Reads little-endian numbers, strings and values out of the beginning of a file, trusting none of them.

use std::fmt::Arguments;

use crate::error::Error;
use crate::value::{Array, Value, ValueType};

/// Arrays of arrays go this deep.
pub const MAX_NESTING: usize = 4;

/// A position in the first bytes of a file whose whole length is known.
pub struct Reader<'a> {
    bytes: &'a [u8],
    pos: usize,
    file_len: u64,
}

impl<'a> Reader<'a> {
    pub fn new(prefix: &'a [u8], file_len: u64) -> Reader<'a> {
        let n = file_len.min(prefix.len() as u64) as usize;
        Reader { bytes: &prefix[..n], pos: 0, file_len }
    }

    pub fn pos(&self) -> u64 {
        self.pos as u64
    }

    /// The next `n` bytes. `Truncated` if the file has fewer, `NeedMore` if only the prefix has.
    pub fn take(&mut self, n: u64, what: Arguments<'_>) -> Result<&'a [u8], Error> {
        let end = self.pos().checked_add(n).filter(|&end| end <= self.file_len);
        let Some(end) = end else {
            let (at, file_len) = (self.pos(), self.file_len);
            return Err(Error::Truncated { what: what.to_string(), at, needed: n, file_len });
        };
        if end > self.bytes.len() as u64 {
            return Err(Error::NeedMore { at_least: end });
        }
        let taken = &self.bytes[self.pos..end as usize];
        self.pos = end as usize;
        Ok(taken)
    }

    /// `n` as a count of things of at least `min_bytes` each that follow: checked before anything is allocated.
    pub fn count(&self, n: u64, min_bytes: u64, what: Arguments<'_>) -> Result<usize, Error> {
        let most = (self.file_len - self.pos()) / min_bytes;
        if n > most {
            return Err(Error::BadCount { what: what.to_string(), found: n, most });
        }
        let at_least = self.pos() + n * min_bytes;
        if at_least > self.bytes.len() as u64 {
            return Err(Error::NeedMore { at_least });
        }
        Ok(n as usize)
    }

    fn array<const N: usize>(&mut self, what: Arguments<'_>) -> Result<[u8; N], Error> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    pub fn u32(&mut self, what: Arguments<'_>) -> Result<u32, Error> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn i32(&mut self, what: Arguments<'_>) -> Result<i32, Error> {
        self.array(what).map(i32::from_le_bytes)
    }

    pub fn f32(&mut self, what: Arguments<'_>) -> Result<f32, Error> {
        self.array(what).map(f32::from_le_bytes)
    }

    pub fn u64(&mut self, what: Arguments<'_>) -> Result<u64, Error> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A length in 64 bits, then that many bytes.
    pub fn string_bytes(&mut self, what: Arguments<'_>) -> Result<&'a [u8], Error> {
        let n = self.u64(what)?;
        self.take(n, what)
    }

    pub fn string(&mut self, what: Arguments<'_>) -> Result<String, Error> {
        let bytes = self.string_bytes(what)?;
        // A vocabulary has hundreds of thousands, and nearly all are UTF-8.
        Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        })
    }

    fn value_type(&mut self, key: &str) -> Result<ValueType, Error> {
        let found = self.u32(format_args!("type of metadata key `{key}`"))?;
        ValueType::from_id(found).ok_or_else(|| Error::BadValueType { key: key.into(), found })
    }

    /// A type, then a value of it.
    pub fn value(&mut self, key: &str) -> Result<Value, Error> {
        let ty = self.value_type(key)?;
        let what = format_args!("value of metadata key `{key}`");
        Ok(match ty {
            ValueType::U8 => Value::U8(u8::from_le_bytes(self.array(what)?)),
            ValueType::I8 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            ValueType::U16 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            ValueType::I16 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            ValueType::U32 => Value::U32(self.u32(what)?),
            ValueType::I32 => Value::I32(self.i32(what)?),
            ValueType::F32 => Value::F32(self.f32(what)?),
            ValueType::Bool => Value::Bool(self.array::<1>(what)? != [0]),
            ValueType::String => Value::String(self.string(what)?),
            ValueType::Array => Value::Array(self.array_value(key, 1)?),
            ValueType::U64 => Value::U64(self.u64(what)?),
            ValueType::I64 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            ValueType::F64 => Value::F64(f64::from_le_bytes(self.array(what)?)),
        })
    }

    /// An element type, a count, then the elements.
    fn array_value(&mut self, key: &str, depth: usize) -> Result<Array, Error> {
        if depth > MAX_NESTING {
            return Err(Error::NestedTooDeep { key: key.into(), limit: MAX_NESTING });
        }
        let ty = self.value_type(key)?;
        let what = format_args!("array of metadata key `{key}`");
        let n = self.u64(what)?;
        Ok(match ty {
            ValueType::U8 => Array::U8(self.numbers(n, u8::from_le_bytes, what)?),
            ValueType::I8 => Array::I8(self.numbers(n, i8::from_le_bytes, what)?),
            ValueType::U16 => Array::U16(self.numbers(n, u16::from_le_bytes, what)?),
            ValueType::I16 => Array::I16(self.numbers(n, i16::from_le_bytes, what)?),
            ValueType::U32 => Array::U32(self.numbers(n, u32::from_le_bytes, what)?),
            ValueType::I32 => Array::I32(self.numbers(n, i32::from_le_bytes, what)?),
            ValueType::F32 => Array::F32(self.numbers(n, f32::from_le_bytes, what)?),
            ValueType::Bool => Array::Bool(self.numbers(n, |b: [u8; 1]| b != [0], what)?),
            ValueType::U64 => Array::U64(self.numbers(n, u64::from_le_bytes, what)?),
            ValueType::I64 => Array::I64(self.numbers(n, i64::from_le_bytes, what)?),
            ValueType::F64 => Array::F64(self.numbers(n, f64::from_le_bytes, what)?),
            ValueType::String => {
                let mut strings = Vec::with_capacity(self.count(n, 8, what)?);
                for i in 0..n {
                    strings.push(self.string(format_args!("string {i} of metadata key `{key}`"))?);
                }
                Array::String(strings)
            }
            ValueType::Array => {
                let mut arrays = Vec::with_capacity(self.count(n, 12, what)?);
                for _ in 0..n {
                    arrays.push(self.array_value(key, depth + 1)?);
                }
                Array::Nested(arrays)
            }
        })
    }

    fn numbers<T, const N: usize>(
        &mut self,
        n: u64,
        convert: impl Fn([u8; N]) -> T,
        what: Arguments<'_>,
    ) -> Result<Vec<T>, Error> {
        let n = self.count(n, N as u64, what)?;
        let (chunks, _) = self.take((n * N) as u64, what)?.as_chunks::<N>();
        Ok(chunks.iter().map(|&b| convert(b)).collect())
    }
}
