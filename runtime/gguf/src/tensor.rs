//! A tensor as a file describes it: name, type, shape, and where its bytes are.

use llmrt_abi::DType;

use crate::error::Error;

/// A tensor without a place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorShape {
    /// GGUF's name, e.g. `blk.0.attn_q.weight`: fewer than 64 bytes.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// Elements per dimension, innermost first; 1 past `n_dims`.
    pub ne: [u64; 4],
    /// How many dimensions the file names, 0 to 4.
    pub n_dims: u32,
}

/// A tensor and where its bytes are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorInfo {
    /// GGUF's name, e.g. `blk.0.attn_q.weight`.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// Elements per dimension, innermost first; 1 past `n_dims`.
    pub ne: [u64; 4],
    /// How many dimensions the file names, 0 to 4.
    pub n_dims: u32,
    /// Which file of a split model it is in; 0 for a single file.
    pub file: usize,
    /// Where the bytes begin, from the beginning of the file.
    pub offset: u64,
    /// How many bytes there are.
    pub nbytes: u64,
}

impl TensorShape {
    /// A tensor of at most 4 dimensions; `dims` innermost first.
    pub fn new(name: impl Into<String>, dtype: DType, dims: &[u64]) -> Result<TensorShape, Error> {
        let (name, n_dims) = (name.into(), dims.len() as u32);
        if dims.len() > 4 {
            return Err(Error::TooManyDims { tensor: name, found: n_dims });
        }
        let mut ne = [1; 4];
        ne[..dims.len()].copy_from_slice(dims);
        Ok(TensorShape { name, dtype, ne, n_dims })
    }

    /// The dimensions that a file names.
    pub fn dims(&self) -> &[u64] {
        let last = self.ne.iter().rposition(|&n| n != 1).map_or(0, |i| i + 1);
        &self.ne[..last.max(self.n_dims.min(4) as usize)]
    }

    /// The bytes of the tensor, once name and shape are found to be what GGUF allows.
    pub fn nbytes(&self) -> Result<u64, Error> {
        self.nbytes_of_rows(1)
    }

    /// The same for a file whose rows may have `min_row` elements: 0, or 1 as in every model.
    pub(crate) fn nbytes_of_rows(&self, min_row: i64) -> Result<u64, Error> {
        let tensor = || self.name.clone();
        check_name_len(self.name.as_bytes())?;
        let min = |dim| if dim == 0 { min_row } else { 1 };
        if let Some(dim) = (0..4).find(|&dim| (self.ne[dim] as i64) < min(dim)) {
            return Err(Error::BadDim { tensor: tensor(), dim, found: self.ne[dim] as i64 });
        }
        let too_many = || Error::TooManyElements { tensor: tensor(), ne: self.ne };
        product(self.ne).ok_or_else(too_many)?;

        let [row, n1, n2, n3] = self.ne;
        let block = self.dtype.block_elems();
        if row % block as u64 != 0 {
            let dtype = self.dtype.name();
            return Err(Error::PartialBlock { tensor: tensor(), found: row, dtype, block });
        }
        let row_bytes = self.dtype.row_bytes(row).ok_or_else(too_many)?;
        product([row_bytes, n1, n2, n3]).ok_or_else(too_many)
    }
}

impl TensorInfo {
    /// The smallest entry of a tensor table: an empty name's length, no dimension, type, offset.
    pub(crate) const MIN_BYTES: u64 = 8 + 4 + 4 + 8;

    /// How many elements there are.
    pub fn n_elements(&self) -> u64 {
        self.ne.iter().product()
    }

    /// Name, type and shape.
    pub fn shape(&self) -> TensorShape {
        TensorShape { name: self.name.clone(), dtype: self.dtype, ne: self.ne, n_dims: self.n_dims }
    }
}

/// GGUF's names have fewer than 64 bytes; the error shows the first 64 of more.
pub(crate) fn check_name_len(name: &[u8]) -> Result<(), Error> {
    match name.get(..64) {
        None => Ok(()),
        Some(start) => {
            let tensor = String::from_utf8_lossy(start).into_owned();
            Err(Error::LongTensorName { tensor, found: name.len() as u64 })
        }
    }
}

/// The product, if it fits 63 bits and leaves room to add a file offset and padding.
fn product(factors: [u64; 4]) -> Option<u64> {
    let p = factors.iter().try_fold(1u64, |p, &n| p.checked_mul(n))?;
    (p <= i64::MAX as u64).then_some(p)
}
