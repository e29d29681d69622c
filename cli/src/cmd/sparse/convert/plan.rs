//! What the converted file has: names, types, and what is done to each tensor.

use super::predictors::Predictors;
use super::{Format, weights};
use crate::cmd::convert;
use crate::cmd::quantize;
use crate::error::Result;
use crate::interrupt;
use crate::model::OpenModel;
use llmrt_gguf::{Flavour, Metadata, TensorInfo, TensorShape};
use llmrt_graph::quant;
use llmrt_graph::rows::layer_of;
use llmrt_sparse::stats::RECALL_KEY;
use std::io::{self, Write};

/// A tensor of the new file.
pub struct Output<'a> {
    /// Its name, type and dims.
    pub shape: TensorShape,
    source: Source<'a>,
    /// Whether rows become columns.
    turns: bool,
    /// The order of its neurons, and whether they are columns of the source.
    order: Option<(&'a [u32], bool)>,
}

enum Source<'a> {
    Model(&'a TensorInfo),
    /// With the neurons of all layers in this order.
    Predictor(&'a Predictors<'a>, &'a TensorInfo, Option<&'a [Vec<u32>]>),
}

impl Output<'_> {
    /// Whether numbers change, since blocks are made again.
    pub fn is_requantised(&self) -> bool {
        self.turns && !weights::is_exact(self.shape.dtype)
    }

    /// Writes the bytes.
    pub fn write(&self, model: &OpenModel, out: &mut dyn Write) -> io::Result<()> {
        if interrupt::is_requested() {
            return Err(io::Error::other("interrupted"));
        }
        match self.source {
            Source::Model(tensor) if !self.turns && self.order.is_none() => {
                convert::copy(&model.files, tensor, out)
            }
            Source::Model(tensor) => {
                let bytes = model.files.bytes(tensor).map_err(io::Error::other)?;
                let problem = |what| {
                    let problem = format!("tensor `{}` ({}): {what}", tensor.name, tensor.dtype);
                    io::Error::new(io::ErrorKind::InvalidData, problem)
                };
                out.write_all(&self.changed(bytes, tensor).map_err(problem)?)
            }
            Source::Predictor(predictors, tensor, orders) => {
                out.write_all(&predictors.bytes(tensor, orders)?)
            }
        }
    }

    /// Neurons that are columns become rows, are ordered, and become columns again if they should be.
    fn changed(&self, bytes: Vec<u8>, tensor: &TensorInfo) -> std::result::Result<Vec<u8>, &'static str> {
        let [n_cols, n_rows] = [tensor.ne[0] as usize, tensor.ne[1] as usize];
        let turn = |bytes: &[u8], n_cols| weights::transposed(tensor.dtype, bytes, n_cols, self.shape.dtype);
        Ok(match (self.turns, self.order) {
            (false, None) => bytes,
            (true, None) => turn(&bytes, n_cols)?,
            (false, Some((order, false))) => weights::ordered(&bytes, order),
            (true, Some((order, false))) => turn(&weights::ordered(&bytes, order), n_cols)?,
            (true, Some((order, true))) => weights::ordered(&turn(&bytes, n_cols)?, order),
            (false, Some((order, true))) => turn(&weights::ordered(&turn(&bytes, n_cols)?, order), n_rows)?,
        })
    }
}

/// The tensors in their order: predictors after the last of each layer, as upstream's converter has them.
pub fn outputs<'a>(
    model: &'a OpenModel,
    to: Format,
    predictors: Option<&'a Predictors<'a>>,
    orders: Option<&'a [Vec<u32>]>,
) -> Result<Vec<Output<'a>>> {
    let tensors = &model.files.model.tensors;
    let is_kept = |t: &&TensorInfo| !t.name.contains(".fc1.") && !t.name.contains(".fc2.");
    let kept: Vec<_> = tensors.iter().filter(is_kept).collect();
    let mut outputs = Vec::new();
    for (i, tensor) in kept.iter().enumerate() {
        let layer = layer_of(&tensor.name);
        let order = layer.and_then(|layer| orders?.get(layer)).map(Vec::as_slice);
        outputs.push(output(model, tensor, to, order)?);
        let is_last = layer != kept.get(i + 1).and_then(|next| layer_of(&next.name));
        let (Some(layer), Some(predictors), true, Format::Powerinfer) = (layer, predictors, is_last, to)
        else {
            continue;
        };
        outputs.extend(predictors.of_layer(layer).map(|t| Output {
            shape: t.shape(),
            source: Source::Predictor(predictors, t, orders),
            turns: false,
            order: None,
        }));
    }
    Ok(outputs)
}

fn output<'a>(
    model: &OpenModel,
    tensor: &'a TensorInfo,
    to: Format,
    order: Option<&'a [u32]>,
) -> Result<Output<'a>> {
    const NAMES: [&str; 2] = ["ffn_down.", "ffn_down_t."];
    let mut shape = tensor.shape();
    let is_down = NAMES.iter().any(|name| tensor.name.contains(name));
    let is_transposed = tensor.name.contains(NAMES[1]);
    let is_matrix = tensor.name.ends_with(".weight");
    let turns = is_down && is_matrix && is_transposed == (to == Format::Gguf);
    if is_down {
        let [gguf, powerinfer] = NAMES;
        let (from, to) = if to == Format::Gguf { (powerinfer, gguf) } else { (gguf, powerinfer) };
        shape.name = shape.name.replace(from, to);
    }
    if turns {
        shape.ne.swap(0, 1);
        shape.dtype = quantize::fitting(tensor.dtype, shape.ne[0]);
        if !weights::is_exact(tensor.dtype) && !quant::can_encode(shape.dtype) {
            return Err(model.error(format_args!(
                "tensor `{}` is {}, which is not made again here: start from a float file, or from one in another type",
                tensor.name, tensor.dtype
            )));
        }
    }
    let is_neurons = ["ffn_up.", "ffn_gate."].iter().any(|part| tensor.name.contains(part));
    let has_neurons =
        |order: &[u32]| tensor.name.contains("ffn_") && tensor.ne.contains(&(order.len() as u64));
    if !is_neurons && !is_down && order.is_some_and(has_neurons) && !tensor.name.contains("ffn_norm") {
        return Err(model.error(format_args!(
            "tensor `{}` may have an element for each neuron: such models cannot be sorted",
            tensor.name
        )));
    }
    let order = order.filter(|_| is_neurons || (is_down && is_matrix));
    let are_columns = is_down && !is_transposed;
    if order.is_some() && are_columns && !weights::is_exact(tensor.dtype) {
        return Err(model.error(format_args!(
            "tensor `{}` is {}: neurons are in blocks, which sorting would break; sort a float file, then quantise it",
            tensor.name, tensor.dtype
        )));
    }
    Ok(Output { shape, source: Source::Model(tensor), turns, order: order.map(|order| (order, are_columns)) })
}

/// Architectures of PowerInfer's files, and the activation that they compute whatever the file has.
const ARCHS: [(&str, &str); 4] =
    [("llama", "relu"), ("falcon", "relu"), ("bamboo", "drelu"), ("opt", "relu")];

/// Those whose models have another activation unless their file has the key.
const NEED_KEY: [&str; 2] = ["llama", "falcon"];

/// The metadata in their order. A GGUF file has the activation that PowerInfer's have no key for.
pub fn metadata(model: &OpenModel, to: Format, predictors: Option<&Predictors<'_>>) -> Result<Metadata> {
    let mut metadata = model.metadata().clone();
    let arch = metadata.require_str("general.architecture").map_err(|e| model.error(e))?.to_string();
    let key = format!("{arch}.hidden_activation");
    let activation = ARCHS.iter().find(|(name, _)| *name == arch).map(|(_, activation)| *activation);
    let is_powerinfer = model.files.model.flavour == Flavour::PowerInfer;
    match to {
        Format::Gguf => {
            if let Some(activation) = activation.filter(|_| is_powerinfer && NEED_KEY.contains(&&*arch)) {
                metadata.set(key, activation);
            }
        }
        Format::Powerinfer => {
            let Some(activation) = activation else {
                return Err(model.error(format_args!(
                    "architecture `{arch}`: PowerInfer's files have llama, falcon, bamboo or opt"
                )));
            };
            metadata.remove(&key);
            let implied = is_powerinfer || !NEED_KEY.contains(&&*arch);
            let found = model.metadata().optional::<&str>(&key).map_err(|e| model.error(e))?;
            if !found.map_or(implied, |found| found == activation) {
                return Err(model.error(format_args!(
                    "`{key}` is {}: PowerInfer computes {activation}, so a model with another activation would give wrong \
                     answers; if the model has it, give --override-kv {key}=str:{activation}",
                    found.unwrap_or("missing"),
                )));
            }
            if let Some(threshold) = predictors.and_then(|predictors| predictors.threshold) {
                metadata.set("powerinfer.sparse_threshold", threshold);
            }
            if let Some(recall) = predictors.and_then(|predictors| predictors.recall) {
                metadata.set(RECALL_KEY, recall);
            }
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;
    use llmrt_abi::DType;

    #[test]
    fn layers_are_read_off_names() {
        assert_eq!(layer_of("blk.12.ffn_up.weight"), Some(12));
        assert_eq!(layer_of("output.weight"), None);
        assert!(weights::is_exact(DType::F16) && !weights::is_exact(DType::Q4_0));
    }
}
