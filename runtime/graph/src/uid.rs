//! Identity of a graph: a hash of topology, shapes, dtypes and params. Names do not count.

use crate::graph::Graph;
use crate::tensor::Tensor;
use std::hash::{DefaultHasher, Hash, Hasher};

impl Graph {
    /// Equal numbers mean equal topology, shapes, dtypes and params, within one process.
    pub fn uid(&self) -> u64 {
        let mut h = DefaultHasher::new();
        for t in &self.tensors {
            (t.dtype, t.ne, t.nb, t.kind, t.role, t.output, t.view).hash(&mut h);
            // Which weight or state it is, matters: two layers differ by nothing else.
            if !matches!(t.kind, crate::Kind::Computed) {
                (&t.name, &t.listed).hash(&mut h);
            }
        }
        for n in &self.nodes {
            (n.op, n.dst, &n.params).hash(&mut h);
            n.src.iter().for_each(|s: &Option<Tensor>| s.hash(&mut h));
        }
        h.finish()
    }
}
