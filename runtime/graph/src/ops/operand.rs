//! Operands of cases: a shape in each of the layouts that views give it.

use crate::graph::Graph;
use crate::tensor::{Shape, Tensor};
use llmrt_abi::DType;

/// Dtypes of [`super::check::numbers`].
pub(super) const NUMBERS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

/// The memory layout of an operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Layout {
    /// One after the other.
    Dense,
    /// A part of a larger tensor in dims 0 and 1: gaps between rows.
    Sliced,
    /// Dims 1 and 2 were exchanged: whole rows in another order.
    RowsPermuted,
    /// Dims 0 and 1 were exchanged: gaps within rows.
    Transposed,
    /// All dims in reverse order, and a part of dim 0.
    Reversed,
}

impl Layout {
    /// All but the dense one.
    pub(super) const STRIDED: [Layout; 4] =
        [Layout::Sliced, Layout::RowsPermuted, Layout::Transposed, Layout::Reversed];
    /// All.
    pub(super) const ALL: [Layout; 5] =
        [Layout::Dense, Layout::Sliced, Layout::RowsPermuted, Layout::Transposed, Layout::Reversed];
}

/// An input of shape `ne` in this layout.
pub(super) fn operand(g: &mut Graph, name: &str, dtype: DType, ne: Shape, layout: Layout) -> Tensor {
    prepared(g, name, dtype, ne, layout, |_, t| t)
}

/// As [`operand`], of an input that goes through `prepare`, which keeps its shape, before it is viewed.
pub(super) fn prepared(
    g: &mut Graph,
    name: &str,
    dtype: DType,
    ne: Shape,
    layout: Layout,
    prepare: impl FnOnce(&mut Graph, Tensor) -> Tensor,
) -> Tensor {
    let [n0, n1, n2, n3] = ne;
    let whole = match layout {
        Layout::Dense => ne,
        Layout::Sliced => [n0 + 7, n1 + 2, n2, n3],
        Layout::RowsPermuted => [n0, n2, n1, n3],
        Layout::Transposed => [n1, n0, n2, n3],
        Layout::Reversed => [n3, n2, n1, n0 + 3],
    };
    let t = g.input(name, dtype, &whole);
    let t = prepare(g, t);
    match layout {
        Layout::Dense => t,
        Layout::Sliced => {
            let t = g.slice(t, 0, 3, n0);
            g.slice(t, 1, 1, n1)
        }
        Layout::RowsPermuted => g.permute(t, [0, 2, 1, 3]),
        Layout::Transposed => g.permute(t, [1, 0, 2, 3]),
        Layout::Reversed => {
            let t = g.permute(t, [3, 2, 1, 0]);
            g.slice(t, 0, 2, n0)
        }
    }
}

/// Largest error of a result that was computed in f32 and rounded once: now and then to the other neighbour.
pub(super) fn rounding(dtype: DType) -> f64 {
    if dtype == DType::BF16 { 5e-6 } else { 1e-7 }
}
