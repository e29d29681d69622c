//! y[i, j] = x[i, j], 0 where i > n_past + j.

pub use super::diag_mask_inf::supports;
use super::{Args, Output, Worker, diag_mask_inf};

pub fn compute(w: &mut Worker<'_>, a: &Args, out: Output<'_>) {
    diag_mask_inf::masked(w, a, out, 0.0);
}
