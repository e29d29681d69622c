//! What is read beside a model: folders of torch's files, and its file of statistics.

use super::ffn::Layer;
use crate::error::{Error, Result};
use crate::model::OpenModel;
use crate::new_file::NewFile;
use crate::output::note;
use clap::Args;
use llmrt_engine::neurons::counts_folder;
use llmrt_gguf::TensorInfo;
use llmrt_sparse::stats::{self, SparseFile};
use llmrt_sparse::{Counts, ModelId, digest, folder};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Where counts come from.
#[derive(Args, Debug)]
pub struct CountsArgs {
    /// Folder with activation_<layer>.pt, how often each neuron was active [default: the counts of MODEL.sparse.gguf; of `report` and
    /// `solve`, where there is no such file, the folder `activation` beside the model].
    #[arg(long, value_name = "DIR")]
    pub activation: Option<PathBuf>,
    /// Tokens that were counted over [default: the file's, else the largest count].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub tokens: Option<u64>,
}

/// Counts by layer, and over how many tokens, if that is recorded.
pub struct Counted {
    pub layers: Vec<Counts>,
    pub recorded_tokens: Option<u64>,
}

impl Counted {
    /// Tokens that were counted over: at least as many as the most active neuron was active in.
    pub fn n_tokens(&self) -> u64 {
        self.recorded_tokens.unwrap_or_else(|| most_active(&self.layers).ceil() as u64)
    }

    /// Of neurons that stay together the mean of all.
    pub fn by_blocks(self, layers: &[Layer<'_>]) -> Counted {
        let recorded_tokens = Some(self.n_tokens());
        let layers = self.layers.iter().zip(layers).map(|(counts, layer)| counts.by_blocks(layer.block()));
        Counted { layers: layers.collect(), recorded_tokens }
    }
}

/// The largest count, or 1.
fn most_active(layers: &[Counts]) -> f64 {
    layers.iter().flat_map(Counts::as_slice).copied().fold(1.0, f64::max)
}

/// The counts of a model whose layers have so many neurons.
pub fn counts(args: &CountsArgs, model: &OpenModel, n_ff: &[usize]) -> Result<Counted> {
    let folder = Some(counts_folder(&model_path(model)));
    let found = folder.filter(|folder| !stats_path(model).exists() && folder.is_dir());
    let activation = args.activation.clone().or(found);
    let beside = if activation.is_none() { Some(required_stats(model)?) } else { None };
    counted(&CountsArgs { activation, tokens: args.tokens }, model, beside, n_ff)
}

/// The same, with the statistics beside the model that count if no folder is given.
pub fn counted(
    args: &CountsArgs,
    model: &OpenModel,
    beside: Option<SparseFile>,
    n_ff: &[usize],
) -> Result<Counted> {
    let (source, layers) = match (&args.activation, &beside) {
        (Some(dir), _) => (dir.clone(), read_counts(dir)?),
        (None, beside) => (stats_path(model), beside.iter().flat_map(|file| file.counts.clone()).collect()),
    };
    if layers.is_empty() && beside.is_some() {
        return Err(no_counts(model));
    }
    stats::check_counts(&layers, n_ff).map_err(|e| Error::file(&source, e))?;
    let most = most_active(&layers);
    if let Some(n) = args.tokens.filter(|&n| (n as f64) < most) {
        return Err(Error::usage(format_args!(
            "--tokens {n}: a neuron was active in {most} tokens: give the number of tokens that were counted over"
        )));
    }
    let recorded = beside.map(|file| file.n_tokens).filter(|&n| n > 0);
    Ok(Counted { layers, recorded_tokens: args.tokens.or(recorded) })
}

/// That the statistics beside a model, if there are any, have no counts.
pub fn no_counts(model: &OpenModel) -> Error {
    let problem = "has no counts: count them with `llmrt sparse profile MODEL -f TEXT`";
    Error::file(&stats_path(model), problem)
}

fn required_stats(model: &OpenModel) -> Result<SparseFile> {
    stats_beside(model)?.map(|(file, _)| file).ok_or_else(|| {
        let path = stats_path(model);
        model.error(format_args!(
            "there is no {}: count with `llmrt sparse profile`, or give a folder of counts with --activation",
            path.display()
        ))
    })
}

fn read_counts(dir: &Path) -> Result<Vec<Counts>> {
    let paths = numbered(dir, "activation_")?;
    paths.iter().map(|path| Counts::from_pt(&read(path)?).map_err(|e| Error::file(path, e))).collect()
}

/// The files PREFIX<layer>.pt of a folder, by number.
pub fn numbered(dir: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|e| Error::unreadable(dir, &e))?;
    let names: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let found = folder::by_number(names.iter().map(String::as_str), prefix, ".pt");
    let found = found.map_err(|e| Error::file(dir, e))?;
    Ok(found.into_iter().map(|name| dir.join(name)).collect())
}

/// A file's bytes.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| Error::unreadable(path, &e))
}

/// Where a model's statistics are: `x.sparse.gguf` beside `x.gguf`.
pub fn stats_path(model: &OpenModel) -> PathBuf {
    stats::path_beside(&model_path(model))
}

/// The first file of a model.
fn model_path(model: &OpenModel) -> PathBuf {
    model.files.files().next().map_or_else(|| PathBuf::from(&model.name), |file| file.path.clone())
}

/// The statistics beside a model, if there are any, and the file's bytes. Those of another model are an error.
pub fn stats_beside(model: &OpenModel) -> Result<Option<(SparseFile, Vec<u8>)>> {
    let path = stats_path(model);
    if !path.exists() {
        return Ok(None);
    }
    stats_of(model, &path).map(Some)
}

/// The statistics beside a model, if there are any. Those of another model are left out, with a note.
pub fn own_stats(model: &OpenModel) -> Result<Option<SparseFile>> {
    let path = stats_path(model);
    if !path.exists() {
        return Ok(None);
    }
    let (file, _) = parsed(&path)?;
    match file.check_model(&model_id(model)?) {
        Ok(()) => Ok(Some(file)),
        Err(e @ llmrt_sparse::Error::OtherModel { .. }) => {
            note(format_args!("{}; counts of active neurons are left out", Error::file(&path, e).message));
            Ok(None)
        }
        Err(e) => Err(Error::file(&path, e)),
    }
}

/// What parts are written to: the statistics beside a model and the file's bytes, or a file without parts, if there are none or
/// `force` overwrites them.
pub fn stats_to_write(model: &OpenModel, force: bool) -> Result<(SparseFile, Vec<u8>)> {
    match if force { None } else { stats_beside(model)? } {
        Some(known) => Ok(known),
        None => Ok((SparseFile::new(model_id(model)?), Vec::new())),
    }
}

/// A file of statistics, which must be of this model.
pub fn stats_of(model: &OpenModel, path: &Path) -> Result<(SparseFile, Vec<u8>)> {
    let (file, bytes) = parsed(path)?;
    file.check_model(&model_id(model)?).map_err(|e| Error::file(path, e))?;
    Ok((file, bytes))
}

fn parsed(path: &Path) -> Result<(SparseFile, Vec<u8>)> {
    let bytes = read(path)?;
    let file = SparseFile::parse(&bytes).map_err(|e| Error::file(path, e))?;
    Ok((file, bytes))
}

/// Writes the statistics of a model; tensors of predictors are those of `bytes`, the file as it was.
pub fn save(path: &Path, file: &SparseFile, bytes: &[u8]) -> Result<()> {
    let mut out = NewFile::create(path)?;
    let predictor = |tensor: &TensorInfo, out: &mut dyn Write| {
        let start = tensor.offset as usize;
        out.write_all(bytes.get(start..start + tensor.nbytes as usize).unwrap_or_default())
    };
    stats::write(out.out(), file, predictor).map_err(|e| Error::output(path, e))?;
    out.finish()
}

/// The model's name and the digest of its weights.
pub fn model_id(model: &OpenModel) -> Result<ModelId> {
    let files = &model.files;
    let checksum = digest(model.metadata(), &files.model.tensors, |t, at, bytes| files.read(t, at, bytes))?;
    let name = Path::new(&model.name).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(ModelId { name, checksum })
}

/// A share of less than all, on the command line.
pub fn share(text: &str) -> std::result::Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0 to less than 1".to_string())
}
