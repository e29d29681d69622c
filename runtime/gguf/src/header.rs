//! A GGUF file's tables: header, metadata, and where each tensor's bytes are.

use std::collections::HashMap;

use llmrt_abi::DType;

use crate::error::Error;
use crate::metadata::Metadata;
use crate::reader::Reader;
use crate::tensor::{TensorInfo, TensorShape, check_name_len};
use crate::value::Value;

/// Tensor data starts at a multiple of this unless `general.alignment` sets another alignment.
pub const DEFAULT_ALIGNMENT: u32 = 32;
/// The key of the alignment, u32.
pub const ALIGNMENT_KEY: &str = "general.alignment";

/// The architecture of PowerInfer's neuron indexes. Their lists of neurons may be empty: rows of 0 elements.
pub const NEURON_INDEX_ARCH: &str = "generic.gpu_index";

/// The format by the first four bytes; the rest of the layout is the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    /// `GGUF`.
    Dense,
    /// `PWRI`: a sparse model or neuron index of PowerInfer.
    PowerInfer,
}

/// The tables of one file.
#[derive(Clone, PartialEq, Debug)]
pub struct Gguf {
    /// Dense or PowerInfer.
    pub flavour: Flavour,
    /// 2 or 3.
    pub version: u32,
    /// What tensor offsets are multiples of, in bytes.
    pub alignment: u32,
    /// The key-value pairs.
    pub metadata: Metadata,
    /// The tensors in file order.
    pub tensors: Vec<TensorInfo>,
    /// Where tensor data begins, in bytes from the beginning of the file.
    pub data_offset: u64,
    index: HashMap<String, usize>,
}

impl Gguf {
    /// Reads the tables of a file of `file_len` bytes that begins with `prefix`.
    ///
    /// When the tables go on after the prefix the error is `NeedMore`: call again with at least that many bytes.
    pub fn parse(prefix: &[u8], file_len: u64) -> Result<Gguf, Error> {
        let file_len = file_len.min(i64::MAX as u64); // offsets below stay far from overflow
        let mut r = Reader::new(prefix, file_len);
        let flavour = read_magic(&mut r)?;
        let version = read_version(&mut r)?;
        let n_tensors = r.u64(format_args!("the tensor count"))?;
        let n_pairs = r.u64(format_args!("the metadata count"))?;
        r.count(n_tensors, TensorInfo::MIN_BYTES, format_args!("the tensor count"))?;
        r.count(n_pairs, MIN_PAIR_BYTES, format_args!("the metadata count"))?;

        let metadata = read_metadata(&mut r, n_pairs)?;
        let alignment = alignment(&metadata)?;

        let entries = read_tensor_table(&mut r, n_tensors, flavour)?;
        let data_offset = r.pos().next_multiple_of(alignment.into());
        let index = index(entries.iter().map(|(shape, _)| &shape.name))?;
        let data = DataRules { alignment, min_row: min_row(flavour, &metadata) };
        let tensors = place(entries, data_offset, data, file_len)?;
        let data_offset = data_offset.min(file_len); // without tensors there is no padding either
        Ok(Gguf { flavour, version, alignment, metadata, tensors, data_offset, index })
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.index.get(name).map(|&i| &self.tensors[i])
    }
}

/// A key's length, a value's type, and a value of one byte.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;

fn read_magic(r: &mut Reader<'_>) -> Result<Flavour, Error> {
    match r.take(4, format_args!("the magic"))? {
        b"GGUF" => Ok(Flavour::Dense),
        b"PWRI" => Ok(Flavour::PowerInfer),
        other => Err(Error::BadMagic { found: other.escape_ascii().to_string() }),
    }
}

/// A version whose low half is empty was written in the other byte order.
fn read_version(r: &mut Reader<'_>) -> Result<u32, Error> {
    match r.u32(format_args!("the version"))? {
        v @ (2 | 3) => Ok(v),
        found if found != 0 && found & 0xffff == 0 => Err(Error::WrongEndianness { found }),
        found => Err(Error::BadVersion { found }),
    }
}

fn read_metadata(r: &mut Reader<'_>, n_pairs: u64) -> Result<Metadata, Error> {
    let mut metadata = Metadata::new();
    for i in 0..n_pairs {
        let key = r.string(format_args!("metadata key {i}"))?;
        let value = r.value(&key)?;
        metadata.insert(key, value)?;
    }
    Ok(metadata)
}

/// The alignment that the metadata set.
pub(crate) fn alignment(metadata: &Metadata) -> Result<u32, Error> {
    match metadata.get(ALIGNMENT_KEY) {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(&Value::U32(n)) if n.is_power_of_two() => Ok(n),
        Some(other) => Err(Error::BadAlignment { found: other.describe() }),
    }
}

/// The fewest elements of a row: in a model every row has some.
pub(crate) fn min_row(flavour: Flavour, metadata: &Metadata) -> i64 {
    let is_index = metadata.str("general.architecture") == Some(NEURON_INDEX_ARCH);
    if flavour == Flavour::PowerInfer && is_index { 0 } else { 1 }
}

/// What a file's metadata decide about its tensors.
#[derive(Clone, Copy)]
struct DataRules {
    alignment: u32,
    min_row: i64,
}

/// A tensor and its offset from the beginning of the data.
type Entry = (TensorShape, u64);

fn read_tensor_table(r: &mut Reader<'_>, n_tensors: u64, flavour: Flavour) -> Result<Vec<Entry>, Error> {
    let n = r.count(n_tensors, TensorInfo::MIN_BYTES, format_args!("the tensor count"))?;
    let mut entries = Vec::with_capacity(n);
    for i in 0..n {
        entries.push(read_tensor(r, i, flavour)?);
    }
    Ok(entries)
}

fn read_tensor(r: &mut Reader<'_>, i: usize, flavour: Flavour) -> Result<Entry, Error> {
    let name = r.string_bytes(format_args!("name of tensor {i}"))?;
    check_name_len(name)?;
    let name = String::from_utf8_lossy(name).into_owned();
    let n_dims = r.u32(format_args!("dimension count of tensor `{name}`"))?;
    if n_dims > 4 {
        return Err(Error::TooManyDims { tensor: name, found: n_dims });
    }
    let mut ne = [1; 4];
    for n in &mut ne[..n_dims as usize] {
        *n = r.u64(format_args!("dimensions of tensor `{name}`"))?;
    }
    let type_id = r.u32(format_args!("type of tensor `{name}`"))?;
    let Some(dtype) = dtype_from_id(type_id, flavour) else {
        return Err(Error::BadTensorType { tensor: name, found: type_id });
    };
    let offset = r.u64(format_args!("offset of tensor `{name}`"))?;
    Ok((TensorShape { name, dtype, ne, n_dims }, offset))
}

/// PowerInfer's files number the plain integers as GGUF did in 2023: I8 16, I16 17, I32 18.
const POWERINFER_INTS: [(u32, DType); 3] = [(16, DType::I8), (17, DType::I16), (18, DType::I32)];

fn dtype_from_id(id: u32, flavour: Flavour) -> Option<DType> {
    let old = POWERINFER_INTS.iter().find(|&&(n, _)| flavour == Flavour::PowerInfer && n == id);
    old.map(|&(_, t)| t).or_else(|| DType::from_id(id))
}

/// The number of a dtype in a file of this flavour; the IQ types that came after PowerInfer have none there.
pub(crate) fn dtype_id(dtype: DType, flavour: Flavour) -> Option<u32> {
    let mut ids = POWERINFER_INTS.iter().map(|&(n, _)| n).chain([dtype.id()]);
    ids.find(|&id| dtype_from_id(id, flavour) == Some(dtype))
}

/// Turns offsets within the data into offsets within the file: aligned, one after the other, inside the file.
fn place(
    entries: Vec<Entry>,
    data_offset: u64,
    DataRules { alignment, min_row }: DataRules,
    file_len: u64,
) -> Result<Vec<TensorInfo>, Error> {
    let mut tensors = Vec::with_capacity(entries.len());
    let mut expected = 0;
    for (shape, found) in entries {
        let nbytes = shape.nbytes_of_rows(min_row)?;
        let tensor = shape.name;
        if !found.is_multiple_of(alignment.into()) {
            return Err(Error::MisalignedTensor { tensor, found, alignment });
        }
        if found != expected {
            return Err(Error::OutOfOrder { tensor, found, expected });
        }
        let offset = data_offset + found;
        let end = offset + nbytes;
        if end > file_len {
            return Err(Error::PastEnd { tensor, end, file_len });
        }
        expected = (found + nbytes).next_multiple_of(alignment.into());
        let (dtype, ne, n_dims) = (shape.dtype, shape.ne, shape.n_dims);
        tensors.push(TensorInfo { name: tensor, dtype, ne, n_dims, file: 0, offset, nbytes });
    }
    Ok(tensors)
}

/// Positions by name; an error if a name appears twice.
pub(crate) fn index<'a>(names: impl Iterator<Item = &'a String>) -> Result<HashMap<String, usize>, Error> {
    let mut index = HashMap::new();
    for (i, name) in names.enumerate() {
        if index.insert(name.clone(), i).is_some() {
            return Err(Error::DuplicateTensor { tensor: name.clone() });
        }
    }
    Ok(index)
}
