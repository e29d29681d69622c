//! `llmrt sparse thresholds`: which inputs of matrices count as zeros with `--sparse magnitude`.

use super::inputs;
use crate::args::OpenArgs;
use crate::error::Result;
use crate::model::{self, OpenModel};
use crate::output::{n_things, note};
use clap::Args;
use llmrt_models::takes_threshold;
use llmrt_sparse::thresholds::{Matrix, greedy, uniform};
use std::path::PathBuf;

/// Choose the thresholds of --sparse magnitude from what `sparse profile` measured.
///
/// Inputs of a matrix that are smaller than its threshold count as zeros. In each layer the matrices get more zeros first whose
/// inputs have the least of their energy in small ones.
#[derive(Args, Debug)]
pub struct Thresholds {
    /// Model, with MODEL.sparse.gguf beside it.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    /// Share of the bytes of a layer's matrices that are not read.
    #[arg(long, value_name = "SHARE", default_value_t = 0.4, value_parser = inputs::share)]
    pub zeros: f64,
    /// The same share of zeros for all matrices.
    #[arg(long)]
    pub uniform: bool,
    #[command(flatten)]
    pub open: OpenArgs,
}

impl Thresholds {
    /// Writes the thresholds into the file beside the model.
    pub fn run(&self) -> Result<()> {
        let model = OpenModel::open(Some(&self.model), &model::table_options(&self.open))?;
        let path = inputs::stats_path(&model);
        let found = inputs::stats_beside(&model)?.filter(|(file, _)| !file.quantiles.is_empty());
        let Some((mut file, bytes)) = found else {
            let problem = "has no sizes of inputs: measure them with `llmrt sparse profile MODEL -f TEXT`";
            return Err(model.error(format_args!("{} {problem}", path.display())));
        };
        let mut thresholds = Vec::new();
        for layer in layers(&file.quantiles) {
            let matrices = layer.into_iter().filter_map(|(name, quantiles)| {
                let tensor = model.files.model.tensor(&format!("{name}.weight"))?;
                Some((name, Matrix { bytes: tensor.nbytes, quantiles }))
            });
            let (names, matrices): (Vec<_>, Vec<_>) = matrices.unzip();
            let chosen = if self.uniform { uniform } else { greedy }(&matrices, self.zeros);
            thresholds.extend(names.into_iter().cloned().zip(chosen));
        }
        file.thresholds = thresholds;
        inputs::save(&path, &file, &bytes)?;
        note(format_args!("{}: {}", path.display(), n_things(file.thresholds.len(), "threshold")));
        Ok(())
    }
}

/// Quantiles of one layer's matrices.
type Layer<'a> = Vec<(&'a String, &'a [f32])>;

/// The matrices that `--sparse magnitude` is for, by layer.
fn layers(quantiles: &[(String, Vec<f32>)]) -> Vec<Layer<'_>> {
    let mut layers: Vec<(&str, Layer<'_>)> = Vec::new();
    for (name, quantiles) in quantiles {
        let Some((layer, part)) = name.rsplit_once('.') else { continue };
        if !takes_threshold(part) {
            continue;
        }
        match layers.iter_mut().find(|(known, _)| *known == layer) {
            Some((_, matrices)) => matrices.push((name, quantiles)),
            None => layers.push((layer, vec![(name, quantiles)])),
        }
    }
    layers.into_iter().map(|(_, matrices)| matrices).collect()
}
