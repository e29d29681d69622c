//! Fuzz target: files of torch.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(torch);
