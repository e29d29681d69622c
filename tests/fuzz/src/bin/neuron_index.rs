//! Fuzz target: neuron indexes of PowerInfer.
#![cfg_attr(fuzzing, no_main)]

llmrt_fuzz::target!(neuron_index);
