//! Fuzz target: model metadata and tensor tables, up to the graph.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(model);
