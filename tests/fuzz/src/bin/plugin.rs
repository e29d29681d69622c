//! Fuzz target: plugin files: ELF and manifest.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(plugin);
