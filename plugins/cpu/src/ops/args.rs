//! A node bound to memory: what `compute` gets.

use super::supports;
use crate::tensor::Tensor;
use llmrt_plugin::{Error, NodeView, Op, Result};

/// Operands of a node, bound to memory.
pub struct Args {
    /// What is computed.
    pub op: Op,
    /// Sources.
    pub src: [Option<Tensor>; 9],
    /// The result.
    pub dst: Tensor,
    params: [u8; 64],
    n_params: usize,
}

impl Args {
    /// Binds a node to its memory.
    pub fn bind(node: &NodeView<'_>) -> Result<Args> {
        let op = node.op().ok_or_else(|| Error::unsupported(format!("op {} is unknown", node.op_id())))?;
        supports(node).map_err(|reason| Error::unsupported(format!("{op}: {reason}")))?;
        let mut src = [None; 9];
        for (i, src) in src.iter_mut().enumerate() {
            *src = node.src(i).map(|t| Tensor::bind(&t)).transpose()?;
        }
        let bytes = node.params_bytes();
        let mut params = [0; 64];
        let n_params = bytes.len().min(params.len());
        params[..n_params].copy_from_slice(&bytes[..n_params]);
        Ok(Args { op, src, dst: Tensor::bind(&node.dst())?, params, n_params })
    }

    /// Source `i`, which `supports` found present.
    pub fn arg(&self, i: usize) -> &Tensor {
        self.src[i].as_ref().unwrap_or(&self.dst)
    }

    /// The sources that are given.
    pub fn src(&self) -> impl Iterator<Item = &Tensor> {
        self.src.iter().flatten()
    }

    /// The params struct, read by its `from_bytes`.
    pub fn params<P: Default>(&self, from_bytes: fn(&[u8]) -> Option<P>) -> P {
        from_bytes(&self.params[..self.n_params]).unwrap_or_default()
    }
}
