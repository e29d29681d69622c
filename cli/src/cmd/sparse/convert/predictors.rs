//! A model's predictors: in its own file, in a file of statistics, or in torch's.

use super::{Format, weights};
use crate::cmd::sparse::ffn;
use crate::cmd::sparse::inputs;
use crate::error::{Error, Result};
use crate::model::OpenModel;
use llmrt_abi::DType;
use llmrt_gguf::TensorInfo;
use llmrt_graph::quant;
use llmrt_graph::rows::layer_of;
use llmrt_sparse::Predictor;
use llmrt_sparse::stats::{RECALL_KEY, SparseFile};
use std::io;
use std::path::{Path, PathBuf};

/// Predictors of every layer.
pub struct Predictors<'a> {
    /// A neuron counts as active if its score is not below this.
    pub threshold: Option<f32>,
    /// What they find at this threshold, if it was measured.
    pub recall: Option<f32>,
    /// fc1, then fc2 of each layer, under their names in a model.
    tensors: Vec<TensorInfo>,
    source: Source<'a>,
}

enum Source<'a> {
    Model(&'a OpenModel),
    Stats(Vec<u8>),
    /// A file for each layer.
    Torch(Vec<PathBuf>),
}

impl<'a> Predictors<'a> {
    /// The given ones, else those beside the model, else those of its file. What is written for PowerInfer has some.
    pub fn find(given: Option<&Path>, model: &'a OpenModel, to: Format) -> Result<Option<Predictors<'a>>> {
        let is_fc = |t: &&TensorInfo| t.name.ends_with(".fc1.weight") || t.name.ends_with(".fc2.weight");
        let own: Vec<_> = model.files.model.tensors.iter().filter(is_fc).cloned().collect();
        // Where the file has some, what is beside it may be of another model, which is noted where its counts are not used.
        let beside = || match inputs::stats_beside(model) {
            Err(_) if !own.is_empty() => Ok(None),
            found => found,
        };
        let found = match given {
            Some(dir) if dir.is_dir() => Some(of_torch(dir, model)?),
            Some(file) => Some(of_stats(inputs::stats_of(model, file)?)),
            None => {
                let beside = beside()?.filter(|(file, _)| !file.predictors.is_empty());
                Some(beside.map_or_else(|| of_file(model, own), of_stats))
            }
        };
        let found = found.filter(|predictors| !predictors.tensors.is_empty());
        if found.is_none() && to == Format::Powerinfer {
            let path = inputs::stats_path(model);
            return Err(model.error(format_args!(
                "has no predictors, which PowerInfer's files need, nor has {}: give them with --predictors",
                path.display()
            )));
        }
        found.map(|predictors| predictors.checked(model)).transpose()
    }

    /// The tensors as they will be written.
    pub fn tensors(&self) -> Vec<TensorInfo> {
        self.tensors.clone()
    }

    /// Both matrices of a layer.
    pub fn of_layer(&self, layer: usize) -> impl Iterator<Item = &TensorInfo> {
        let prefix = format!("blk.{layer}.");
        self.tensors.iter().filter(move |t| t.name.starts_with(&prefix))
    }

    /// A tensor's bytes, with the neurons of each layer in this order.
    pub fn bytes(&self, tensor: &TensorInfo, orders: Option<&[Vec<u32>]>) -> io::Result<Vec<u8>> {
        let bytes = match &self.source {
            Source::Model(model) => model.files.bytes(tensor).map_err(io::Error::other)?,
            Source::Stats(bytes) => {
                let start = tensor.offset as usize;
                bytes.get(start..start + tensor.nbytes as usize).unwrap_or_default().to_vec()
            }
            Source::Torch(paths) => torch_bytes(&paths[tensor.file], tensor)?,
        };
        let has_neurons = tensor.name.ends_with(".fc2.weight");
        let order = layer_of(&tensor.name).filter(|_| has_neurons).and_then(|layer| orders?.get(layer));
        Ok(order.map(|order| weights::ordered(&bytes, order)).unwrap_or(bytes))
    }

    /// Refuses predictors of other dims than the model's.
    fn checked(self, model: &OpenModel) -> Result<Predictors<'a>> {
        for (i, layer) in ffn::layers(model)?.iter().enumerate() {
            let [n_embd, n_ff, ..] = layer.up.ne;
            let dims: Vec<_> = self.of_layer(i).map(|t| t.ne).collect();
            let fits = matches!(dims[..], [[a, r, 1, 1], [s, b, 1, 1]] if a == n_embd && b == n_ff && r == s);
            if !fits {
                return Err(model.error(format_args!(
                    "layer {i}: predictors are {dims:?}, expected [{n_embd}, r] and [r, {n_ff}]: they are of another model"
                )));
            }
        }
        if let Some(threshold) = self.threshold.filter(|threshold| threshold.is_nan()) {
            return Err(
                model.error(format_args!("the predictors' threshold is {threshold}: expected a number"))
            );
        }
        Ok(self)
    }
}

fn of_file(model: &OpenModel, tensors: Vec<TensorInfo>) -> Predictors<'_> {
    let threshold = model.metadata().f32("powerinfer.sparse_threshold");
    let recall = model.metadata().f32(RECALL_KEY);
    Predictors { threshold, recall, tensors, source: Source::Model(model) }
}

fn of_stats<'a>((file, bytes): (SparseFile, Vec<u8>)) -> Predictors<'a> {
    let SparseFile { predictor_threshold: threshold, predictor_recall: recall, predictors: tensors, .. } =
        file;
    Predictors { threshold, recall, tensors, source: Source::Stats(bytes) }
}

/// model_<layer>.pt of a folder. They get the type of the model's own matrices, or F16 where rows are no whole blocks.
fn of_torch<'a>(dir: &Path, model: &OpenModel) -> Result<Predictors<'a>> {
    let paths = inputs::numbered(dir, "model_")?;
    let layers = ffn::layers(model)?;
    if paths.len() != layers.len() {
        let problem = format!("predictors of {} layers, the model has {}", paths.len(), layers.len());
        return Err(Error::file(dir, problem));
    }
    let mut tensors = Vec::new();
    for (i, (path, layer)) in paths.iter().zip(&layers).enumerate() {
        let file = inputs::read(path)?;
        let [n_embd, n_ff, ..] = layer.up.ne;
        let checked = Predictor::from_pt(&file).and_then(|p| p.check(n_embd, n_ff).map(|()| p));
        let r = checked.map_err(|e| Error::file(path, e))?.rank();
        for (part, ne) in [("fc1", [n_embd, r, 1, 1]), ("fc2", [r, n_ff, 1, 1])] {
            let fits = ne[0].is_multiple_of(layer.up.dtype.block_elems() as u64);
            let dtype = if fits { layer.up.dtype } else { DType::F16 };
            let nbytes = dtype.row_bytes(ne[0]).unwrap_or(0) * ne[1];
            let name = format!("blk.{i}.{part}.weight");
            tensors.push(TensorInfo { name, dtype, ne, n_dims: 2, file: i, offset: 0, nbytes });
        }
    }
    Ok(Predictors { threshold: config_threshold(dir)?, recall: None, tensors, source: Source::Torch(paths) })
}

/// `sparse_threshold` of config.json, if there is one.
fn config_threshold(dir: &Path) -> Result<Option<f32>> {
    let path = dir.join("config.json");
    if !path.exists() {
        return Ok(None);
    }
    let config: serde_json::Value =
        serde_json::from_slice(&inputs::read(&path)?).map_err(|e| Error::file(&path, e))?;
    match config.get("sparse_threshold") {
        None => Ok(None),
        Some(value) => match value.as_f64() {
            Some(threshold) => Ok(Some(threshold as f32)),
            None => Err(Error::file(&path, format!("sparse_threshold is {value}: expected a number"))),
        },
    }
}

/// A matrix of a file of torch in the tensor's type.
fn torch_bytes(path: &Path, tensor: &TensorInfo) -> io::Result<Vec<u8>> {
    let problem =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {what}", path.display()));
    let file = std::fs::read(path)?;
    let predictor = Predictor::from_pt(&file).map_err(|e| problem(e.to_string()))?;
    let matrix = if tensor.name.ends_with("fc1.weight") { predictor.fc1 } else { predictor.fc2 };
    if matrix.number.dtype() == Some(tensor.dtype) {
        return Ok(matrix.bytes(&file).into_owned());
    }
    let numbers: Vec<f32> = matrix.to_f64s(&file).into_iter().map(|x| x as f32).collect();
    let bytes = quant::quantise(tensor.dtype, &numbers);
    let is_bad =
        numbers.iter().any(|x| !x.is_finite()) || quant::find_invalid(tensor.dtype, &bytes).is_some();
    match is_bad {
        true => Err(problem(format!("an element is no number, or too large for {}", tensor.dtype))),
        false => Ok(bytes),
    }
}
