//! Tensors of torch: views of a storage by offset, sizes and strides.

use std::borrow::Cow;
use std::ops::Range;

use half::{bf16, f16};
use llmrt_abi::DType;

use crate::Error;

/// Dimensions of a tensor; torch's own files of models have 4 at most.
pub(super) const MAX_DIMS: usize = 8;

macro_rules! numbers {
    ($($name:ident $storage:literal $ty:ty, $dtype:expr, |$v:ident| $convert:expr;)*) => {
        /// The real types of torch.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs)]
        pub enum Number { $($name,)* }

        impl Number {
            /// The type of `torch.<name>Storage`.
            pub(super) fn of_storage(name: &str) -> Option<Number> {
                match name { $($storage => Some(Number::$name),)* _ => None }
            }

            /// Bytes of an element.
            pub fn bytes(self) -> usize {
                match self { $(Number::$name => size_of::<$ty>(),)* }
            }

            /// The type of a GGUF tensor that holds the same numbers exactly, if there is one.
            pub fn dtype(self) -> Option<DType> {
                match self { $(Number::$name => $dtype,)* }
            }

            /// Converts elements, given as their bytes.
            fn convert<'a>(self, elements: impl Iterator<Item = &'a [u8]>) -> Vec<f64> {
                match self {
                    $(Number::$name => elements.filter_map(|b| b.try_into().ok()).map(|b| {
                        let $v = <$ty>::from_le_bytes(b);
                        $convert
                    }).collect(),)*
                }
            }
        }
    };
}

numbers! {
    F64 "Double" f64, Some(DType::F64), |v| v;
    F32 "Float" f32, Some(DType::F32), |v| v.into();
    F16 "Half" f16, Some(DType::F16), |v| v.to_f64();
    Bf16 "BFloat16" bf16, Some(DType::BF16), |v| v.to_f64();
    I64 "Long" i64, Some(DType::I64), |v| v as f64;
    I32 "Int" i32, Some(DType::I32), |v| v.into();
    I16 "Short" i16, Some(DType::I16), |v| v.into();
    I8 "Char" i8, Some(DType::I8), |v| v.into();
    U8 "Byte" u8, None, |v| v.into();
    Bool "Bool" u8, None, |v| f64::from(v != 0);
}

/// Numbers of one type, one after the other.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Storage {
    number: Number,
    n: u64,
    bytes: Range<usize>,
}

impl Storage {
    /// `n` numbers in these bytes of the file, which may have more.
    pub fn new(number: Number, n: u64, key: &str, bytes: Range<usize>) -> Result<Storage, Error> {
        let (found, expected) = (bytes.len() as u64, n.saturating_mul(number.bytes() as u64));
        if expected > found {
            return Err(Error::ShortStorage { key: key.into(), found, expected });
        }
        Ok(Storage { number, n, bytes })
    }
}

/// A tensor: which bytes of the file its elements are.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// Type of the elements.
    pub number: Number,
    /// Elements per dimension, outermost first, as torch has them.
    pub sizes: Vec<u64>,
    strides: Vec<u64>,
    offset: u64,
    bytes: Range<usize>,
}

impl Tensor {
    /// A view that stays within its storage and shows no element twice.
    pub(super) fn new(
        storage: &Storage,
        offset: u64,
        sizes: Vec<u64>,
        strides: Vec<u64>,
    ) -> Result<Tensor, Error> {
        let Storage { number, n, bytes } = storage.clone();
        let tensor = Tensor { number, sizes, strides, offset, bytes };
        match tensor.problem(n) {
            None => Ok(tensor),
            Some(problem) => {
                let Tensor { sizes, strides, .. } = tensor;
                Err(Error::BadView { sizes, strides, offset, problem })
            }
        }
    }

    fn problem(&self, n: u64) -> Option<String> {
        let dims = self.sizes.iter().zip(&self.strides);
        if self.sizes.len() != self.strides.len() || self.sizes.len() > MAX_DIMS {
            return Some(format!("expected as many strides as sizes, at most {MAX_DIMS}"));
        }
        if self.sizes.contains(&0) {
            return None; // no elements
        }
        let n_elems = self.sizes.iter().try_fold(1u64, |n, &size| n.checked_mul(size));
        let last = dims
            .clone()
            .try_fold(self.offset, |at, (size, stride)| at.checked_add((size - 1).checked_mul(*stride)?));
        match (n_elems, last) {
            (Some(n_elems), Some(last)) if last < n && n_elems <= n => None,
            (_, Some(last)) if last < n => Some(format!("more elements than the storage's {n}")),
            _ => Some(format!("it ends past the storage's {n} elements")),
        }
    }

    /// How many elements there are.
    pub fn n_elements(&self) -> usize {
        if self.sizes.contains(&0) { 0 } else { self.sizes.iter().product::<u64>() as usize }
    }

    /// The elements' bytes, little-endian, in the order of the sizes: borrowed from the file where that has them so.
    pub fn bytes<'f>(&self, file: &'f [u8]) -> Cow<'f, [u8]> {
        let width = self.number.bytes();
        let data = file.get(self.bytes.clone()).unwrap_or_default();
        if self.is_contiguous() {
            let start = self.offset as usize * width;
            let bytes = data.get(start..start + self.n_elements() * width);
            return Cow::Borrowed(bytes.unwrap_or_default());
        }
        let elements = Places::new(self).filter_map(|at| data.get(at * width..(at + 1) * width));
        Cow::Owned(elements.flatten().copied().collect())
    }

    /// The elements in the order of the sizes, as numbers.
    pub fn to_f64s(&self, file: &[u8]) -> Vec<f64> {
        self.number.convert(self.bytes(file).chunks_exact(self.number.bytes()))
    }

    /// Whether each element follows the one before it.
    fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        let dims = self.sizes.iter().zip(&self.strides).rev();
        let mut follows = dims.filter(|(size, _)| **size > 1).map(|(size, stride)| {
            let is_next = *stride == expected;
            expected = expected.saturating_mul(*size);
            is_next
        });
        self.n_elements() == 0 || follows.all(|follows| follows)
    }
}

/// The places of a view's elements in its storage, the innermost dimension moving first.
struct Places<'a> {
    tensor: &'a Tensor,
    index: [u64; MAX_DIMS],
    left: usize,
}

impl<'a> Places<'a> {
    fn new(tensor: &'a Tensor) -> Places<'a> {
        Places { tensor, index: [0; MAX_DIMS], left: tensor.n_elements() }
    }
}

impl Iterator for Places<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let Tensor { sizes, strides, offset, .. } = self.tensor;
        let at = offset + self.index.iter().zip(strides).map(|(i, stride)| i * stride).sum::<u64>();
        for (i, &size) in self.index.iter_mut().zip(sizes).rev() {
            *i += 1;
            if *i < size {
                break;
            }
            *i = 0;
        }
        Some(at as usize)
    }
}
