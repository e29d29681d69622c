//! Fuzz target: llama2.c checkpoints of all three formats.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(checkpoint);
