//! What one device has of a product or a pair: an equal part, or what a list names.

use super::{Cut, GRAIN, Part};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use std::sync::Arc;

/// One device's share.
pub(super) struct Share<'a> {
    /// Which device.
    pub index: usize,
    n: usize,
    dealt: Dealt<'a>,
}

enum Dealt<'a> {
    /// Equal parts that begin at multiples of this.
    Equally(u64),
    /// By number.
    Listed(&'a Arc<[u32]>),
}

impl<'a> Share<'a> {
    /// One of `n` equal parts, which begin at multiples of `grain`.
    pub fn equal(index: usize, n: usize, grain: u64) -> Share<'a> {
        Share { index, n, dealt: Dealt::Equally(grain) }
    }

    /// The rows or columns of a list; `n` devices have one.
    pub fn listed(index: usize, n: usize, list: &'a Arc<[u32]>) -> Share<'a> {
        Share { index, n, dealt: Dealt::Listed(list) }
    }

    fn part<'n>(&self, whole: &'n str, by_columns: bool) -> Part<'n> {
        let cut = match (&self.dealt, by_columns) {
            (Dealt::Equally(grain), false) => Cut::Rows(*grain),
            (Dealt::Equally(grain), true) => Cut::Columns(*grain),
            (Dealt::Listed(_), false) => Cut::ListedRows,
            (Dealt::Listed(_), true) => Cut::ListedColumns,
        };
        Part { whole, index: self.index, n: self.n, cut }
    }

    /// The name of its part of a result.
    pub fn name(&self, whole: &str) -> String {
        match self.dealt {
            Dealt::Equally(_) => Share::equal(self.index, self.n, GRAIN).part(whole, false).name(),
            Dealt::Listed(_) => self.part(whole, false).name(),
        }
    }

    /// Its rows or columns of a matrix: one tensor, however many products multiply it.
    pub fn of_matrix(&self, g: &mut Graph, w: Tensor, by_columns: bool) -> Tensor {
        let TensorDef { name, dtype, ne, role, .. } = g.def(w).clone();
        let part = self.part(&name, by_columns);
        if let Some(found) = g.find(&part.name()) {
            return found;
        }
        let (len, list) = match &self.dealt {
            Dealt::Listed(list) => (list.len() as u64, Some((*list).clone())),
            Dealt::Equally(_) => {
                let range = part.range(ne[usize::from(part.is_of_rows())]).unwrap_or_default();
                (range.end - range.start, None)
            }
        };
        let made = g.weight(&part.name(), dtype, &part.shape(ne, len)[..2], role);
        g.tensors[made.0 as usize].listed = list;
        made
    }

    /// Its numbers of a vector.
    pub fn of_vector(&self, g: &mut Graph, vector: Tensor) -> Tensor {
        match self.part("", false).range(g.ne(vector)[0]) {
            Some(range) => g.slice(vector, 0, range.start, range.end - range.start),
            None => self.of_matrix(g, vector, true),
        }
    }
}
