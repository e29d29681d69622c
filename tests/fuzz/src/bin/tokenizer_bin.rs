//! Fuzz target: llama2.c's `tokenizer.bin`, and the tokenizer made of it.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(tokenizer_bin);
