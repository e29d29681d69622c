//! Fuzz target: texts and ids, given to good tokenizers.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(text);
