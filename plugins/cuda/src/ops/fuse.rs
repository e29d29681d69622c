//! Neighbouring nodes as one launch. All that the nodes would write is written, so that intermediate results
//! may have other readers; where one reads memory that another writes at the same time, they stay apart.

use super::{gated, norm, products, rope};
use crate::call::{Call, address};
use llmrt_plugin::{NodeView, Result, TensorView};

/// The launches of the first of `nodes`, or of several as one, if the stream does so. How many nodes they are.
pub fn compute_some(call: &mut Call<'_>, nodes: &[NodeView<'_>]) -> Result<usize> {
    if call.fuses {
        for rule in [norm::fused, rope::fused, gated::fused, products::fused] {
            let n = rule(call, nodes)?;
            if n > 0 {
                call.wrote(&nodes[..n])?;
                return Ok(n);
            }
        }
    }
    super::compute(call, &nodes[0])?;
    call.wrote(&nodes[..1])?;
    Ok(1)
}

/// Whether two tensors have no byte in common.
pub fn apart(a: &TensorView<'_>, b: &TensorView<'_>) -> Result<bool> {
    if a.n_elements() == 0 || b.n_elements() == 0 {
        return Ok(true);
    }
    let (first, second) = (address(a)?, address(b)?);
    Ok(first + a.nbytes() <= second || second + b.nbytes() <= first)
}

/// Whether two tensors have no byte in common, or each element of one has the address of the same one of the other.
pub fn apart_or_same(a: &TensorView<'_>, b: &TensorView<'_>) -> Result<bool> {
    let alike = a.dtype() == b.dtype() && a.ne() == b.ne() && a.nb() == b.nb();
    Ok(apart(a, b)? || (alike && address(a)? == address(b)?))
}

/// Whether no node writes what another one reads or writes, but for results of earlier nodes that are the source which
/// `is_handed_on` names: the fused kernel hands those on.
pub fn independent(nodes: &[NodeView<'_>], is_handed_on: fn(&NodeView<'_>, usize) -> bool) -> Result<bool> {
    for (i, node) in nodes.iter().enumerate() {
        let written = node.dst();
        for (j, other) in nodes.iter().enumerate().filter(|(j, _)| *j != i) {
            for (s, t) in (0..other.n_src()).filter_map(|s| Some((s, other.src(s)?))) {
                let is_link = i < j && t.id() == written.id() && is_handed_on(other, s);
                if !is_link && !apart(&written, &t)? {
                    return Ok(false);
                }
            }
            if !apart(&written, &other.dst())? {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
