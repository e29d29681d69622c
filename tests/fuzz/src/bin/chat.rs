//! Fuzz target: chat templates.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(chat);
