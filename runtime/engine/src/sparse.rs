//! Thresholds of sparse inference that the user leaves to files and variables.

use crate::error::Result;
use crate::neurons::stats_of;
use llmrt_host::knobs;
use llmrt_host::load::ModelFiles;
use llmrt_models::{SparseMode, SparseOptions};
use llmrt_sparse::stats::path_beside;

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
