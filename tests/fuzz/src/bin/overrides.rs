//! Fuzz target: `--override-kv`, up to the model.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(overrides);
