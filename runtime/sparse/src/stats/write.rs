//! Writes a file of statistics.

use std::io::{self, Write};

use llmrt_abi::DType;
use llmrt_gguf::writer::{self, Tables, WriteError};
use llmrt_gguf::{Array, Metadata, TensorInfo, TensorShape, Value};

use super::{ARCH, RECALL_KEY, SparseFile, VERSION};

/// Where a tensor's bytes come from.
enum Data<'a> {
    Bytes(Vec<u8>),
    Predictor(&'a TensorInfo),
}

/// Writes the file and returns its length. `predictor(tensor, out)` writes the bytes of one of its predictors' tensors.
pub fn write<W: Write>(
    out: W,
    file: &SparseFile,
    mut predictor: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
) -> Result<u64, WriteError> {
    let mut tables = Tables { metadata: metadata(file), ..Tables::default() };
    let mut data = Vec::new();
    for (name, dtype, bytes) in vectors(file) {
        let n = bytes.len() / dtype.row_bytes(1).unwrap_or(1) as usize;
        tables.tensors.push(TensorShape::new(name, dtype, &[n as u64])?);
        data.push(Data::Bytes(bytes));
    }
    for tensor in &file.predictors {
        tables.tensors.push(tensor.shape());
        data.push(Data::Predictor(tensor));
    }
    writer::write(out, &tables, |i, out| match &data[i] {
        Data::Bytes(bytes) => out.write_all(bytes),
        Data::Predictor(tensor) => predictor(tensor, out),
    })
}

fn metadata(file: &SparseFile) -> Metadata {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", ARCH);
    metadata.set("sparse.version", VERSION);
    metadata.set("sparse.model.name", file.model.name.as_str());
    metadata.set("sparse.model.checksum", file.model.checksum.as_str());
    if file.n_tokens > 0 {
        metadata.set("sparse.tokens", file.n_tokens);
    }
    if !file.thresholds.is_empty() {
        let (names, values): (Vec<String>, Vec<f32>) = file.thresholds.iter().cloned().unzip();
        metadata.set("sparse.thresholds.names", names);
        metadata.set("sparse.thresholds.values", values);
    }
    if let Some(threshold) = file.predictor_threshold {
        metadata.set("powerinfer.sparse_threshold", threshold);
    }
    if let Some(recall) = file.predictor_recall {
        metadata.set(RECALL_KEY, recall);
    }
    for (s, split) in file.splits.iter().enumerate() {
        metadata.set(format!("sparse.split.{s}.devices"), split.devices.clone());
        metadata.set(format!("sparse.split.{s}.bytes"), Value::Array(Array::U64(split.bytes.clone())));
    }
    metadata
}

/// Names, types and bytes of all vectors.
fn vectors(file: &SparseFile) -> Vec<(String, DType, Vec<u8>)> {
    let counts = file.counts.iter().enumerate().map(|(i, counts)| {
        let bytes = counts.as_slice().iter().flat_map(|n| n.to_le_bytes()).collect();
        (format!("blk.{i}.counts"), DType::F64, bytes)
    });
    let quantiles = file.quantiles.iter().map(|(name, values)| {
        (format!("{name}.quantiles"), DType::F32, values.iter().flat_map(|x| x.to_le_bytes()).collect())
    });
    let splits = file.splits.iter().enumerate().flat_map(|(s, split)| {
        let layers = split.device_of.iter().enumerate();
        layers.map(move |(i, device_of)| (format!("split.{s}.blk.{i}"), DType::I8, device_of.clone()))
    });
    counts.chain(quantiles).chain(splits).collect()
}
