//! Models that run their layers several times, each time with caches of their own.

use super::{Config, LayerConfig};

/// Most runs of a layer: each adds nodes to the graph, but no bytes to the file.
pub(crate) const MAX_LOOPS: u64 = 64;

/// How layers repeat; all 0 in models whose layers run once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoopConfig {
    /// Layers that run one after the other before something else happens.
    pub n_layer: usize,
    /// Runs of the lower layers before one of the upper layers, where there are two stacks.
    pub n_low: usize,
    /// Whether hidden states are normed between two runs.
    pub has_norm: bool,
}

impl Config {
    /// Makes layers of these blocks, in this order, out of a layer for each block.
    pub(crate) fn run_blocks(&mut self, blocks: impl Iterator<Item = usize>) {
        self.layers = blocks.map(|block| LayerConfig { block, ..self.layers[block].clone() }).collect();
        self.n_layer = self.layers.len();
    }
}
