//! One file per target: its check and its seeds.

pub mod gguf;

pub mod checkpoint;
pub mod tokenizer_bin;

pub mod text;
pub mod vocab;

pub mod chat;

pub mod model;
pub mod overrides;

pub mod plugin;

pub mod torch;

pub mod neuron_index;
pub mod sparse_file;
