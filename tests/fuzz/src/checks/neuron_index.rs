//! PowerInfer's neuron indexes: read or refused; what is read comes back when it is written and read again.

use crate::{Target, accepted};
use llmrt_sparse::index::{LayerIndex, NeuronIndex};

/// Neuron indexes.
pub const TARGET: Target = Target { name: "neuron_index", check, seeds };

/// Reads an index.
pub fn check(data: &[u8]) {
    let Some(index) = accepted(NeuronIndex::parse(data)) else { return };
    for layer in &index.layers {
        assert!(layer.hot.is_sorted_by(|a, b| a < b), "ids out of order");
        assert!(layer.hot.last().is_none_or(|&id| (id as usize) < layer.n_ff), "an id out of range");
    }
    let written = index.to_vec().expect("what is read can be written");
    assert_eq!(NeuronIndex::parse(&written).expect("and read again"), index);
}

fn seeds() -> Vec<Vec<u8>> {
    let layer = |hot: &[u32]| LayerIndex { n_ff: 8, hot: hot.into() };
    let layers = vec![layer(&[]), layer(&[1, 7]), layer(&[0, 1, 2, 3, 4, 5, 6, 7])];
    let index = NeuronIndex { vram_capacity: 1 << 30, layers };
    vec![index.to_vec().expect("a good index")]
}
