//! The activation xIELU (arXiv 2411.13010), whose numbers each layer learns.

use super::Keys;
use crate::error::Result;

/// Numbers of one layer's xIELU, as the op `xielu` takes them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Xielu {
    /// Factor on the negative side.
    pub alpha_n: f32,
    /// Factor of x² on the positive side.
    pub alpha_p: f32,
    /// Slope at zero.
    pub beta: f32,
    /// Bound of what the negative side's exponential takes.
    pub eps: f32,
}

impl Xielu {
    /// Of every layer. The keys have no architecture's name.
    pub(crate) fn read(keys: &Keys<'_>, n_layer: usize) -> Result<Vec<Xielu>> {
        let keys = Keys { meta: keys.meta, arch: "xielu" };
        let [alpha_n, alpha_p] =
            [keys.f32_per_layer("alpha_n", n_layer)?, keys.f32_per_layer("alpha_p", n_layer)?];
        let [beta, eps] = [keys.f32_per_layer("beta", n_layer)?, keys.f32_per_layer("eps", n_layer)?];
        let of_layer =
            |il| Xielu { alpha_n: alpha_n[il], alpha_p: alpha_p[il], beta: beta[il], eps: eps[il] };
        Ok((0..n_layer).map(of_layer).collect())
    }
}
