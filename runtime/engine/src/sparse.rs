//! Thresholds of sparse inference that the user leaves to files and variables.

use crate::error::{Error, Result};
use llmrt_host::knobs;
use llmrt_host::load::ModelFiles;
use llmrt_models::{Model, SparseMode, SparseOptions};
use llmrt_sparse::ModelId;
use llmrt_sparse::stats::{SparseFile, path_beside};
use std::path::Path;

/// The user's choice, with the threshold of predictors from the variable, or those of inputs from the file beside the model.
pub(crate) fn options(files: &ModelFiles, given: &SparseOptions) -> Result<SparseOptions> {
    let mut options = given.clone();
    match options.mode {
        SparseMode::Magnitude if options.threshold.is_none() && options.thresholds.is_empty() => {
            if let Some(file) = files.files().next().filter(|file| path_beside(&file.path).exists()) {
                options.thresholds = stats_of(files, &file.path)?.thresholds.into();
            }
        }
        SparseMode::Magnitude => {}
        _ => options.threshold = options.threshold.or(knobs::settings()?.sparse_threshold),
    }
    Ok(options)
}

/// Share of zeros below which the CPU multiplies panels sooner than it skips zeros (docs/perf/sparse.md).
const MIN_ZEROS: f64 = 0.75;

/// Whether `auto` takes all neurons of a model whose activations are zeros, since the counts beside it have too few zeros for any gain;
/// else those that are not zero, as without counts. The reason, or why there are no counts, is added to the notes.
pub(crate) fn has_few_zeros(files: &ModelFiles, model: &Model, notes: &mut Vec<String>) -> Result<bool> {
    let beside = files.files().next().map(|file| &file.path).filter(|path| path_beside(path).exists());
    let Some(path) = beside else { return Ok(false) };
    if model.sparse_mode()? != SparseMode::Exact {
        return Ok(false);
    }
    let name = path_beside(path).display().to_string();
    let stats = match stats_of(files, path) {
        Ok(stats) => stats,
        Err(e) => {
            notes.push(format!("{e}; --sparse auto skips zeros without counts"));
            return Ok(false);
        }
    };
    let n_neurons: usize = stats.counts.iter().map(|counts| counts.as_slice().len()).sum();
    let n_active: f64 = stats.counts.iter().map(|counts| counts.total()).sum();
    let zeros = 1.0 - n_active / (n_neurons as f64 * stats.n_tokens as f64);
    // Counts may be missing, or the number of their tokens.
    let is_few = zeros.is_finite() && zeros < MIN_ZEROS;
    if is_few {
        notes.push(format!(
            "--sparse auto is off: by {name} {:.0} % of neurons give zeros, and from {:.0} % on it is faster to skip them \
             (--sparse exact does)",
            100.0 * zeros.max(0.0),
            100.0 * MIN_ZEROS
        ));
    }
    Ok(is_few)
}

/// The statistics beside a model, which must be of this model.
pub(crate) fn stats_of(files: &ModelFiles, model: &Path) -> Result<SparseFile> {
    let path = path_beside(model);
    let failed = |problem: String| Error::SparseFile { path: path.display().to_string(), problem };
    let bytes = std::fs::read(&path).map_err(|e| failed(e.to_string()))?;
    let file = SparseFile::parse(&bytes).map_err(|e| failed(e.to_string()))?;
    let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let checksum = llmrt_sparse::digest(&files.model.metadata, &files.model.tensors, |t, at, bytes| {
        files.read(t, at, bytes)
    })?;
    file.check_model(&ModelId { name, checksum }).map_err(|e| failed(e.to_string()))?;
    Ok(file)
}
