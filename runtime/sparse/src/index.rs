//! PowerInfer's neuron index (`<model file>.generated.gpuidx`): which neurons of each layer are on the device.
//!
//! It is GGUF with the magic `PWRI`: two I32 tensors a layer, `gpu_idx` with 0 or 1 for every neuron, and `gpu_bucket`
//! with the ids of the ones, ascending, perhaps none. Upstream reads them by position and checks neither against the
//! other nor against the model; here what contradicts is refused.

use llmrt_abi::DType;
use llmrt_gguf::writer::{self, Tables};
use llmrt_gguf::{Flavour, Gguf, Metadata, NEURON_INDEX_ARCH, TensorInfo, TensorShape, Value};

use crate::Error;
use crate::error::cause;

const LAYERS_KEY: &str = "generic.gpu_index.block_count";
const BYTES_KEY: &str = "split.vram_capacity";

/// Which neurons are on the device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NeuronIndex {
    /// Bytes of the device's memory that it was made for: upstream uses it where the budget is no less.
    pub vram_capacity: u64,
    /// The layers.
    pub layers: Vec<LayerIndex>,
}

/// One layer's neurons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayerIndex {
    /// How many there are.
    pub n_ff: usize,
    /// The ids of those on the device, ascending.
    pub hot: Vec<u32>,
}

impl NeuronIndex {
    /// Reads the whole file.
    pub fn parse(bytes: &[u8]) -> Result<NeuronIndex, Error> {
        NeuronIndex::parsed(bytes).map_err(|e| match e {
            // What helps with a model's file does not help here.
            Error::Gguf(e) => Error::DamagedIndex { problem: cause(&e) },
            e => e,
        })
    }

    fn parsed(bytes: &[u8]) -> Result<NeuronIndex, Error> {
        let gguf = Gguf::parse(bytes, bytes.len() as u64)?;
        let is_index = gguf.metadata.str("general.architecture") == Some(NEURON_INDEX_ARCH);
        if gguf.flavour != Flavour::PowerInfer || !is_index {
            return Err(Error::NotAnIndex);
        }
        let vram_capacity = gguf.metadata.require_u64(BYTES_KEY)?;
        let (n_layers, found) = (gguf.metadata.require_u64(LAYERS_KEY)?, gguf.tensors.len());
        if n_layers.checked_mul(2) != Some(found as u64) {
            return Err(Error::IndexTensors { found, n_layers });
        }
        let pairs = gguf.tensors.chunks_exact(2).enumerate();
        let layers = pairs.map(|(layer, pair)| LayerIndex::parse(bytes, layer, &pair[0], &pair[1]));
        Ok(NeuronIndex { vram_capacity, layers: layers.collect::<Result<_, _>>()? })
    }

    /// Refuses an index of a model with other numbers of layers or neurons.
    pub fn check_model(&self, n_ff: &[usize]) -> Result<(), Error> {
        if self.layers.len() != n_ff.len() {
            return Err(Error::IndexLayers { found: self.layers.len(), expected: n_ff.len() });
        }
        let sizes = self.layers.iter().map(|layer| layer.n_ff).zip(n_ff.iter().copied());
        match sizes.enumerate().find(|(_, (found, expected))| found != expected) {
            None => Ok(()),
            Some((layer, (found, expected))) => Err(Error::IndexNeurons { layer, found, expected }),
        }
    }

    /// The file's bytes, which are those of upstream's writer. An error if ids are out of range or order.
    pub fn to_vec(&self) -> Result<Vec<u8>, Error> {
        let mut metadata = Metadata::new();
        metadata.set("general.architecture", NEURON_INDEX_ARCH);
        metadata.set(LAYERS_KEY, self.layers.len() as u32);
        metadata.set(BYTES_KEY, Value::U64(self.vram_capacity));
        let (mut tensors, mut data) = (Vec::new(), Vec::new());
        for (i, layer) in self.layers.iter().enumerate() {
            let flags = layer.flags(i)?;
            let shape = |part: &str, n| TensorShape::new(format!("blk.{i}.{part}"), DType::I32, &[n as u64]);
            tensors.extend([shape("gpu_idx", layer.n_ff)?, shape("gpu_bucket", layer.hot.len())?]);
            data.push(flags.iter().flat_map(|n| n.to_le_bytes()).collect::<Vec<u8>>());
            data.push(layer.hot.iter().flat_map(|n| n.to_le_bytes()).collect());
        }
        let tables = Tables { flavour: Flavour::PowerInfer, metadata, tensors, ..Tables::default() };
        let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        writer::to_vec(&tables, &slices).map_err(|e| match e {
            writer::WriteError::Invalid(e) => Error::Gguf(e),
            other => Error::BadRequest {
                what: "the index",
                found: other.to_string(),
                expected: "layers with neurons",
            },
        })
    }
}

impl LayerIndex {
    fn parse(bytes: &[u8], layer: usize, idx: &TensorInfo, bucket: &TensorInfo) -> Result<LayerIndex, Error> {
        let (flags, bucket) = (i32s(bytes, idx)?, i32s(bytes, bucket)?);
        let n_ff = flags.len();
        if let Some((neuron, &found)) = flags.iter().enumerate().find(|(_, flag)| !matches!(flag, 0 | 1)) {
            return Err(Error::IndexFlag { layer, neuron, found });
        }
        let id = |&found: &i32| {
            let id = u32::try_from(found);
            id.map_err(|_| Error::IndexRange { layer, found: found.into(), n_ff })
        };
        let hot = bucket.iter().map(id).collect::<Result<Vec<_>, _>>()?;
        let read = LayerIndex { n_ff, hot };
        let expected = read.flags(layer)?;
        match flags.iter().zip(&expected).position(|(found, expected)| found != expected) {
            Some(neuron) => Err(Error::IndexContradicts { layer, neuron, flag: flags[neuron] }),
            None => Ok(read),
        }
    }

    /// 0 or 1 for each neuron; an error if ids are out of range or order.
    fn flags(&self, layer: usize) -> Result<Vec<i32>, Error> {
        let mut flags = vec![0; self.n_ff];
        let mut previous = None;
        for &found in &self.hot {
            if let Some(previous) = previous.filter(|&previous| previous >= found) {
                return Err(Error::IndexOrder { layer, found, previous });
            }
            let flag = flags.get_mut(found as usize);
            *flag.ok_or(Error::IndexRange { layer, found: found.into(), n_ff: self.n_ff })? = 1;
            previous = Some(found);
        }
        Ok(flags)
    }
}

/// The numbers of a vector of I32, whose bytes are in the file.
fn i32s(bytes: &[u8], tensor: &TensorInfo) -> Result<Vec<i32>, Error> {
    if tensor.dtype != DType::I32 || tensor.ne[1..] != [1; 3] {
        let found = format!("{} {:?}", tensor.dtype, tensor.shape().dims());
        return Err(Error::IndexTensor { tensor: tensor.name.clone(), found, expected: "a vector of I32" });
    }
    let start = tensor.offset as usize;
    let data = bytes.get(start..start + tensor.nbytes as usize).unwrap_or_default();
    Ok(data.as_chunks().0.iter().map(|&b| i32::from_le_bytes(b)).collect())
}
