//! y[i, j] = x[i, j], 0 where i > n_past + j.

pub use super::diag_mask_inf::supports;
use super::{Args, Worker, diag_mask_inf};

pub fn compute(w: &mut Worker<'_>, a: &Args) {
    diag_mask_inf::masked(w, a, 0.0);
}
