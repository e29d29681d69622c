//! Fuzz target: files of sparse statistics.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(sparse_file);
