//! Reads a file of statistics.

use llmrt_abi::DType;
use llmrt_gguf::{Gguf, Metadata, TensorInfo};

use super::{ARCH, RECALL_KEY, SparseFile, Split, VERSION};
use crate::error::cause;
use crate::{Counts, Error, ModelId};

impl SparseFile {
    /// Reads the whole file; predictors stay where they are in it.
    pub fn parse(bytes: &[u8]) -> Result<SparseFile, Error> {
        SparseFile::parsed(bytes).map_err(|e| match e {
            Error::Gguf(e) => Error::DamagedStats { problem: cause(&e) },
            e => e,
        })
    }

    fn parsed(bytes: &[u8]) -> Result<SparseFile, Error> {
        let gguf = Gguf::parse(bytes, bytes.len() as u64)?;
        let metadata = &gguf.metadata;
        if metadata.str("general.architecture") != Some(ARCH) {
            return Err(Error::NotStats);
        }
        let found = metadata.require_u32("sparse.version")?;
        if found != VERSION {
            return Err(Error::StatsVersion { found, expected: VERSION });
        }
        let model = ModelId {
            name: metadata.require_str("sparse.model.name")?.into(),
            checksum: metadata.require_str("sparse.model.checksum")?.into(),
        };
        let mut file = SparseFile::new(model);
        file.n_tokens = metadata.optional("sparse.tokens")?.unwrap_or(0);
        file.thresholds = thresholds(metadata)?;
        file.predictor_threshold = metadata.optional("powerinfer.sparse_threshold")?;
        check_threshold("the predictors", file.predictor_threshold.unwrap_or(0.0))?;
        file.predictor_recall = metadata.optional(RECALL_KEY)?;
        file.counts = counts(bytes, &gguf)?;
        file.quantiles = quantiles(bytes, &gguf)?;
        file.predictors = predictors(&gguf)?;
        file.splits = splits(bytes, &gguf)?;
        Ok(file)
    }
}

fn check_threshold(what: &str, found: f32) -> Result<(), Error> {
    match found.is_nan() {
        true => Err(Error::BadThreshold { what: what.into(), found }),
        false => Ok(()),
    }
}

fn thresholds(metadata: &Metadata) -> Result<Vec<(String, f32)>, Error> {
    let names: Option<&[String]> = metadata.optional("sparse.thresholds.names")?;
    let values: Vec<f32> = metadata.optional("sparse.thresholds.values")?.unwrap_or_default();
    let names = names.unwrap_or_default();
    if names.len() != values.len() {
        let (found, expected) =
            (format!("{} thresholds for {} names", values.len(), names.len()), "one each");
        return Err(Error::Content { found, expected });
    }
    names.iter().zip(&values).try_for_each(|(name, &found)| check_threshold(name, found))?;
    Ok(names.iter().cloned().zip(values).collect())
}

/// `blk.0.counts`, `blk.1.counts`, … until one is missing.
fn counts(bytes: &[u8], gguf: &Gguf) -> Result<Vec<Counts>, Error> {
    let tensors = (0..).map_while(|i| gguf.tensor(&format!("blk.{i}.counts")));
    tensors.map(|tensor| Counts::new(vector(bytes, tensor, DType::F64, f64::from_le_bytes)?)).collect()
}

fn quantiles(bytes: &[u8], gguf: &Gguf) -> Result<Vec<(String, Vec<f32>)>, Error> {
    let named = gguf.tensors.iter().filter_map(|t| Some((t.name.strip_suffix(".quantiles")?, t)));
    let read = |(name, tensor): (&str, &TensorInfo)| {
        let values = vector(bytes, tensor, DType::F32, f32::from_le_bytes)?;
        let ascends = values.iter().all(|x| *x >= 0.0) && values.is_sorted();
        match ascends {
            true => Ok((name.to_string(), values)),
            false => Err(problem(tensor, "expected ascending numbers of at least 0")),
        }
    };
    named.map(read).collect()
}

/// fc1 and fc2 of each layer that has both, of fitting dims.
fn predictors(gguf: &Gguf) -> Result<Vec<TensorInfo>, Error> {
    let mut found = Vec::new();
    for fc1 in &gguf.tensors {
        let Some(layer) = fc1.name.strip_suffix(".fc1.weight") else { continue };
        let fc2 = gguf.tensor(&format!("{layer}.fc2.weight"));
        let fc2 = fc2.ok_or_else(|| problem(fc1, "its layer has no fc2"))?;
        if fc1.ne[2..] != [1; 2] || fc2.ne[2..] != [1; 2] || fc2.ne[0] != fc1.ne[1] {
            return Err(problem(fc2, "expected a matrix with as many columns as fc1 has rows"));
        }
        found.extend([fc1.clone(), fc2.clone()]);
    }
    Ok(found)
}

fn splits(bytes: &[u8], gguf: &Gguf) -> Result<Vec<Split>, Error> {
    let mut splits = Vec::new();
    while let Some(devices) =
        gguf.metadata.optional::<&[String]>(&format!("sparse.split.{}.devices", splits.len()))?
    {
        let s = splits.len();
        let sizes: Vec<u64> = gguf.metadata.require(&format!("sparse.split.{s}.bytes"))?;
        if sizes.len() != devices.len() {
            let found = format!("{} sizes for {} devices of split {s}", sizes.len(), devices.len());
            return Err(Error::Content { found, expected: "one each" });
        }
        let tensors = (0..).map_while(|i| gguf.tensor(&format!("split.{s}.blk.{i}")));
        let read = |tensor: &TensorInfo| {
            let device_of = vector(bytes, tensor, DType::I8, |[n]: [u8; 1]| n)?;
            match device_of.iter().all(|&d| usize::from(d) <= devices.len()) {
                true => Ok(device_of),
                false => Err(problem(tensor, "it has a device that the split has no name for")),
            }
        };
        let device_of = tensors.map(read).collect::<Result<_, _>>()?;
        splits.push(Split { devices: devices.to_vec(), bytes: sizes, device_of });
    }
    Ok(splits)
}

/// The elements of a vector of this type.
fn vector<T, const N: usize>(
    bytes: &[u8],
    tensor: &TensorInfo,
    dtype: DType,
    convert: impl Fn([u8; N]) -> T,
) -> Result<Vec<T>, Error> {
    if tensor.dtype != dtype || tensor.ne[1..] != [1; 3] {
        return Err(problem(tensor, &format!("expected a vector of {dtype}")));
    }
    let start = tensor.offset as usize;
    let data = bytes.get(start..start + tensor.nbytes as usize).unwrap_or_default();
    Ok(data.as_chunks().0.iter().map(|&b| convert(b)).collect())
}

fn problem(tensor: &TensorInfo, problem: &str) -> Error {
    Error::StatsTensor { tensor: tensor.name.clone(), problem: problem.into() }
}
