//! Fuzz target: GGUF files: header, metadata, tensor table.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(gguf);
