//! What a model keeps between steps: groups of caches that a caller allocates and addresses alike.

use llmrt_abi::DType;
use std::ops::Range;

/// Caches of layers that share how their memory is allocated. Made while the graph is built, so that there is no second
/// list of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CacheGroup {
    /// A row of K and of V for each token, addressed through a block table: states `blk.N.k_cache` and, where V has rows
    /// of its own, `blk.N.v_cache`.
    Paged {
        /// The layers. Their rows may differ: KV heads do in some models.
        layers: Vec<PagedLayer>,
        /// Tokens that attention sees, the query included; 0: all. Blocks before a window are not read again.
        window: u32,
    },
    /// A row of the keys that an indexer scores for each token, addressed as `Paged`: states `blk.N.index_cache`.
    Index {
        /// The layers, and elements of their rows.
        layers: Vec<(usize, u64)>,
    },
    /// A row of K and of V for each token that an encoder read, for the cross attention of a decoder's layers: states
    /// `blk.N.cross_k_cache` and `blk.N.cross_v_cache`, in the blocks that the sequence has in caches without a window.
    Cross {
        /// The layers.
        layers: Vec<PagedLayer>,
    },
    /// States of fixed size for each sequence, passed from token to token: F32 states `blk.N.NAME` of rows by slot. A step
    /// reads one slot of a sequence and writes another, so that it can be repeated.
    Recurrent {
        /// The layers.
        layers: Vec<usize>,
        /// What each layer has.
        tensors: Vec<StateTensor>,
    },
}

/// A state of one layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateTensor {
    /// Its name within the layer, such as `conv_state`.
    pub name: &'static str,
    /// Elements of a row.
    pub row: u64,
}

/// Rows of one layer's caches.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagedLayer {
    /// Number of the layer.
    pub il: usize,
    /// Elements of a K row.
    pub k_row: u64,
    /// Where V rows are.
    pub v: ValueRows,
}

/// Where the V rows of a layer are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueRows {
    /// In a cache of their own, of so many elements each.
    Own(u64),
    /// These elements of the K rows.
    ViewOfK(Range<u64>),
}

impl CacheGroup {
    /// Bytes that one token takes in all layers, in caches of these types.
    pub fn bytes_per_token(&self, k_type: DType, v_type: DType) -> u64 {
        let row = |dtype: DType, n: u64| dtype.row_bytes(n).unwrap_or(u64::MAX);
        let of_layer = |layer: &PagedLayer| match layer.v {
            ValueRows::Own(v_row) => row(k_type, layer.k_row).saturating_add(row(v_type, v_row)),
            ValueRows::ViewOfK(_) => row(k_type, layer.k_row),
        };
        match self {
            CacheGroup::Paged { layers, .. } | CacheGroup::Cross { layers } => {
                layers.iter().map(of_layer).fold(0, u64::saturating_add)
            }
            CacheGroup::Index { layers } => {
                layers.iter().map(|&(_, n)| row(k_type, n)).fold(0, u64::saturating_add)
            }
            CacheGroup::Recurrent { .. } => 0,
        }
    }

    /// Bytes that a sequence takes in all layers, however many tokens it has.
    pub fn bytes_per_sequence(&self) -> u64 {
        match self {
            CacheGroup::Recurrent { layers, tensors } => {
                let row = tensors.iter().map(|tensor| tensor.row).fold(0, u64::saturating_add);
                row.saturating_mul(4 * layers.len() as u64)
            }
            CacheGroup::Paged { .. } | CacheGroup::Cross { .. } | CacheGroup::Index { .. } => 0,
        }
    }
}
