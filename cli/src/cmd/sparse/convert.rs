//! `llmrt sparse convert`: PowerInfer's models as GGUF and back, with neurons sorted by how often they are active.

mod plan;
mod predictors;
mod weights;

use super::ffn;
use super::inputs::{self, Counted, CountsArgs};
use crate::cmd::quantize;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::model::OpenModel;
use crate::new_file::{self, NewFile};
use crate::output::note;
use clap::{Args, ValueEnum};
use llmrt_gguf::Flavour;
use llmrt_gguf::writer::{self, Tables, WriteError};
use llmrt_host::load::OpenOptions;
use llmrt_sparse::Counts;
use llmrt_sparse::stats::{self, SparseFile};
use plan::Output;
use predictors::Predictors;
use std::io;
use std::path::{Path, PathBuf};

/// Convert between PowerInfer's model files and GGUF.
///
/// A model gets its predictors from torch's files or from its file of statistics; one made of a PowerInfer model
/// leaves them in OUT.sparse.gguf, where counts of active neurons go, too. Matrices whose blocks run across are quantised again, which is reported.
#[derive(Args, Debug)]
pub struct Convert {
    /// Model.
    #[arg(value_name = "IN.gguf")]
    pub input: PathBuf,
    /// File to write; an existing one is not overwritten.
    #[arg(value_name = "OUT.gguf")]
    pub output: PathBuf,
    /// Format to write [default: the one that IN does not have].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Option<Format>,
    /// Predictors: a folder with model_<layer>.pt, and config.json with sparse_threshold, or a file of statistics
    /// [default: IN.sparse.gguf, else those of the model].
    #[arg(long, value_name = "DIR|FILE")]
    pub predictors: Option<PathBuf>,
    #[command(flatten)]
    pub counts: CountsArgs,
    /// Put the most active neurons first. What the model computes stays the same, but for the order of additions.
    #[arg(long)]
    pub sort: bool,
    /// Set a metadata key: KEY=TYPE:VAL with TYPE int, float, bool or str (repeatable).
    #[arg(long = "override-kv", value_name = "KEY=TYPE:VAL")]
    pub overrides: Vec<String>,
    /// Overwrite the outputs; what is read is never overwritten.
    #[arg(long)]
    pub force: bool,
}

/// What is written.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// GGUF, with `ffn_down` and without predictors.
    Gguf,
    /// PowerInfer's, with `ffn_down_t` and predictors.
    Powerinfer,
}

impl Convert {
    /// Writes the model, and a file of statistics where there is something to keep in it.
    pub fn run(&self) -> Result<()> {
        let options = OpenOptions { overrides: self.overrides.clone(), ..OpenOptions::default() };
        let model = OpenModel::open(Some(&self.input), &options)?;
        if model.is_checkpoint() {
            return Err(model.error("is a llama2.c checkpoint: make a GGUF file of it with `llmrt convert`"));
        }
        let to = self.to.unwrap_or(match model.files.model.flavour {
            Flavour::Dense => Format::Powerinfer,
            Flavour::PowerInfer => Format::Gguf,
        });
        let stats_path = self.output.with_extension("sparse.gguf");
        let beside = [Some(inputs::stats_path(&model)), self.predictors.clone()];
        let inputs = model.files.files().map(|file| file.path.clone()).chain(beside.into_iter().flatten());
        let inputs: Vec<_> = inputs.collect();
        for output in [&self.output, &stats_path] {
            new_file::check_output(output, self.force, inputs.iter().map(AsRef::<Path>::as_ref))?;
        }

        let predictors = Predictors::find(self.predictors.as_deref(), &model, to)?;
        let counts = self.find_counts(&model)?;
        let of_layers = |counted: &Counted| counted.layers.iter().map(Counts::order).collect::<Vec<_>>();
        let orders = counts.as_ref().filter(|_| self.sort).map(of_layers);
        let outputs = plan::outputs(&model, to, predictors.as_ref(), orders.as_deref())?;
        let tables = Tables {
            flavour: if to == Format::Gguf { Flavour::Dense } else { Flavour::PowerInfer },
            metadata: plan::metadata(&model, to, predictors.as_ref())?,
            tensors: outputs.iter().map(|output| output.shape.clone()).collect(),
            ..Tables::default()
        };
        note_requantised(&outputs);
        let n = self.write_model(&model, &tables, &outputs)?;
        note(format_args!("{}: {}", self.output.display(), quantize::summary(&tables.tensors, n)));

        let kept = predictors.filter(|_| to == Format::Gguf);
        if kept.is_none() && counts.is_none() {
            return Ok(());
        }
        let mut counts = counts.unwrap_or(Counted { layers: Vec::new(), recorded_tokens: None });
        if let Some(orders) = &orders {
            counts.layers = sorted(&counts.layers, orders);
        }
        self.write_stats(&stats_path, kept.as_ref(), orders.as_deref(), counts)
    }

    /// Counts that were given, or that are beside the model; sorting needs some.
    fn find_counts(&self, model: &OpenModel) -> Result<Option<Counted>> {
        let is_required = self.counts.activation.is_some() || self.sort;
        let beside = if is_required { None } else { inputs::own_stats(model)? };
        let beside = beside.filter(|file| !file.counts.is_empty());
        if !is_required && beside.is_none() {
            return Ok(None);
        }
        let n_ff: Vec<_> = ffn::layers(model)?.iter().map(ffn::Layer::n_ff).collect();
        let counted = match beside {
            Some(_) => inputs::counted(&self.counts, model, beside, &n_ff),
            None => inputs::counts(&self.counts, model, &n_ff),
        };
        counted.map(Some)
    }

    fn write_model(&self, model: &OpenModel, tables: &Tables, outputs: &[Output<'_>]) -> Result<u64> {
        let mut file = NewFile::create(&self.output)?;
        let written = writer::write(file.out(), tables, |i, out| outputs[i].write(model, out));
        let n = written.map_err(|e| match e {
            _ if interrupt::is_requested() => Error::interrupted(),
            WriteError::Invalid(e) => model.error(e),
            WriteError::Io(e) if e.kind() == io::ErrorKind::InvalidData => model.error(e),
            WriteError::Io(e) => Error::unwritable(&self.output, &e),
            other => Error::output(&self.output, other),
        })?;
        file.finish()?;
        Ok(n)
    }

    /// Predictors that the model's own file has no place for, and counts.
    fn write_stats(
        &self,
        path: &Path,
        kept: Option<&Predictors<'_>>,
        orders: Option<&[Vec<u32>]>,
        counts: Counted,
    ) -> Result<()> {
        let written = OpenModel::open(Some(&self.output), &OpenOptions::default())?;
        let file = SparseFile {
            n_tokens: counts.recorded_tokens.unwrap_or(0),
            counts: counts.layers,
            predictor_threshold: kept.and_then(|predictors| predictors.threshold),
            predictor_recall: kept.and_then(|predictors| predictors.recall),
            predictors: kept.map(Predictors::tensors).unwrap_or_default(),
            ..SparseFile::new(inputs::model_id(&written)?)
        };
        let mut out = NewFile::create(path)?;
        let done = stats::write(out.out(), &file, |tensor, out| match kept {
            Some(predictors) => out.write_all(&predictors.bytes(tensor, orders)?),
            None => Ok(()),
        });
        done.map_err(|e| Error::output(path, e))?;
        out.finish()?;
        note(format_args!(
            "{}: {} tensors of predictors, counts of {} layers",
            path.display(),
            file.predictors.len(),
            file.counts.len()
        ));
        Ok(())
    }
}

/// Counts in the order of the sorted neurons.
fn sorted(counts: &[Counts], orders: &[Vec<u32>]) -> Vec<Counts> {
    let of = |(counts, order): (&Counts, &Vec<u32>)| {
        let sorted = order.iter().map(|&i| counts.as_slice()[i as usize]).collect();
        Counts::new(sorted).ok()
    };
    counts.iter().zip(orders).filter_map(of).collect()
}

fn note_requantised(outputs: &[Output<'_>]) {
    let again: Vec<_> = outputs.iter().filter(|output| output.is_requantised()).collect();
    if let Some(first) = again.first() {
        note(format_args!(
            "{} matrices such as {} ({}) are dequantised, transposed and quantised again, since blocks run along rows: \
             this loses a little; start from a float file to avoid it",
            again.len(),
            first.shape.name,
            first.shape.dtype
        ));
    }
}
