//! Thresholds of sparse inference that the user leaves to files and variables.

use crate::error::{Error, Result};
use llmrt_host::knobs;
use llmrt_host::load::ModelFiles;
use llmrt_models::{SparseMode, SparseOptions};
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
