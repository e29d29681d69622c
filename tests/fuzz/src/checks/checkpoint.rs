//! llama2.c checkpoints: read or refused; what is read is inside the file.

use crate::{Target, accepted, samples};
use llmrt_gguf::checkpoint::{Checkpoint, to_metadata};
use llmrt_gguf::sniff;

/// llama2.c checkpoints of all three formats.
pub const TARGET: Target = Target { name: "checkpoint", check, seeds };

/// Reads whole files, and headers of files that are as long as the header requires.
pub fn check(data: &[u8]) {
    sniff(data);
    let Some(checkpoint) = accepted(Checkpoint::parse(data, data.len() as u64)) else { return };
    for tensor in &checkpoint.tensors {
        let values = tensor.read_f32(data).expect("tensors are inside the file");
        assert_eq!(values.len() as u64, tensor.n_elements());
        assert_eq!(checkpoint.tensor(&tensor.shape.name), Some(tensor));
    }
    checkpoint.f32_tensors();
    accepted(to_metadata(&checkpoint.config, None));
}

fn seeds() -> Vec<Vec<u8>> {
    (0..3).map(samples::checkpoint).collect()
}
