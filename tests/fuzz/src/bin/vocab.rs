//! Fuzz target: vocabularies in GGUF metadata, and the tokenizers made of them.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(vocab);
