//! x in the form that products take, kept in scratch memory for the products that follow with the same x: those of
//! q, k and v, of gate and up. It is kept while no node writes over x, and while no other node needs scratch memory, so
//! that nothing takes more of it than the verdicts name.

use super::{mul_mat, source, tiles, workspace};
use crate::call::{Call, address};
use llmrt_plugin::{DType, NodeView, Op, Piece, Result, TensorView};

/// The form of x that products take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// In 8 bits: `Packed` of kernels/pack.cuh.
    Packed,
    /// Halves of this dtype: `Halve` of kernels/mul_mat_half.cu.
    Halves(DType),
}

/// Rows in memory: tensors with the same ones have the same numbers in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    address: u64,
    n_bytes: u64,
    dtype: u32,
    /// Elements and bytes, of dim 0.
    inner: (usize, usize),
    /// The same of the other dims, without those of one.
    outer: [(usize, usize); 3],
}

impl Rows {
    /// Of a tensor on the device.
    pub fn of(t: &TensorView<'_>) -> Result<Rows> {
        let (ne, nb) = (t.ne(), t.nb());
        let mut outer = [(1, 0); 3];
        let long = (1..4).filter(|d| ne[*d] != 1);
        long.zip(&mut outer).for_each(|(d, dim)| *dim = (ne[d], nb[d]));
        let (address, n_bytes) = (address(t)?, t.nbytes());
        Ok(Rows { address, n_bytes, dtype: t.dtype_id(), inner: (ne[0], nb[0]), outer })
    }

    /// Whether a tensor has no byte of them.
    fn is_apart_from(&self, t: &TensorView<'_>) -> Result<bool> {
        let other = address(t)?;
        Ok(other + t.nbytes() <= self.address || self.address + self.n_bytes <= other)
    }
}

/// What is in scratch memory.
pub struct Kept {
    x: Rows,
    form: Form,
    piece: Piece,
    /// x is what the running launches write.
    is_result: bool,
}

impl Call<'_> {
    /// x in a form, if it is kept already.
    pub fn kept(&mut self, x: &TensorView<'_>, form: Form) -> Result<Option<u64>> {
        let x = Rows::of(x)?;
        let found = self.kept.as_ref().filter(|kept| kept.x == x && kept.form == form);
        let found = found.map(|kept| kept.piece.addr);
        self.uses_kept |= found.is_some();
        Ok(found)
    }

    /// Memory of so many bytes for x in a form, which is a source or what is written. Kept only if it is the first of this
    /// call's: what comes first goes last.
    pub fn keep(&mut self, x: &TensorView<'_>, form: Form, bytes: usize, is_result: bool) -> Result<u64> {
        if !self.fuses || !self.pieces.is_empty() {
            return self.scratch(bytes);
        }
        self.forget();
        let (x, piece) = (Rows::of(x)?, self.piece(bytes)?);
        *self.kept = Some(Kept { x, form, piece, is_result });
        self.uses_kept = true;
        Ok(piece.addr)
    }

    /// Gives back what is kept: launches that follow may write over it. Other memory of this call was taken after it
    /// and is freed before it; calls take no other memory until they have decided whether they use it.
    pub fn forget(&mut self) {
        if let Some(kept) = self.kept.take() {
            self.give_back();
            if let Some(scratch) = self.scratch.as_mut() {
                scratch.free(kept.piece);
            }
        }
    }

    /// After the launches of nodes: what they wrote over is not kept any longer.
    pub fn wrote(&mut self, nodes: &[NodeView<'_>]) -> Result<()> {
        let Some(kept) = self.kept.as_mut() else { return Ok(()) };
        let (x, is_result) = (kept.x, std::mem::take(&mut kept.is_result));
        for node in nodes.iter().filter(|_| !is_result) {
            if !x.is_apart_from(&node.dst())? {
                self.forget();
                break;
            }
        }
        Ok(())
    }

    /// Whether one of the next nodes multiplies packed weights by these rows in 8 bits before they are written over,
    /// and before other scratch memory is needed.
    pub fn is_read_packed(&self, rows: &TensorView<'_>, next: &[NodeView<'_>]) -> Result<bool> {
        let x = Rows::of(rows)?;
        for node in next.iter().take(AHEAD) {
            let room = workspace(node, self.gpu);
            if matches!(node.op(), Some(Op::MulMat | Op::MulMatId))
                && Rows::of(&source(node, 1)?)? == x
                && tiles::takes_packed(self, node)?
            {
                return Ok(room >= mul_mat::packed_bytes(rows) as u64);
            }
            if room > 0 || !x.is_apart_from(&node.dst())? {
                return Ok(false);
            }
        }
        Ok(false)
    }
}

/// How many nodes are looked at: between a norm and its products stand a router's at most.
const AHEAD: usize = 6;
