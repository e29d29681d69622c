//! A matrix, and the vectors that come with it.

use crate::builder::Builder;
use crate::error::Result;
use llmrt_abi::DType;
use llmrt_graph::{Pick, Role, Tensor};

/// How a matrix is multiplied.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Product {
    /// As it is.
    Dense,
    /// As it is; most of x are zeros.
    Zeros,
    /// The rows whose scores [n_out, n] pass; the others give zeros.
    Rows(Tensor, Pick),
}

impl Builder<'_> {
    /// w·x · scale + bias, scale (one number) and bias if the file has them: [n_out, n]. Named as the matrix is.
    pub(crate) fn linear(&mut self, name: &str, n_out: u64, x: Tensor) -> Result<Tensor> {
        let (y, _) = self.product(name, n_out, x, Product::Dense)?;
        let y = self.times_scale(name, y)?;
        let y = self.plus_bias(name, n_out, y)?;
        Ok(self.name(y, name))
    }

    /// (w·x + bias) · scale. FFNs scale last, and where `Config::ffn_scales` is false only NVFP4 weights are scaled:
    /// llama.cpp, whose files these are, does so.
    pub(crate) fn ffn_linear(&mut self, name: &str, n_out: u64, x: Tensor) -> Result<Tensor> {
        self.ffn_product(name, n_out, x, Product::Dense)
    }

    /// As `ffn_linear`, of what this kind of product makes of w and x.
    pub(crate) fn ffn_product(&mut self, name: &str, n_out: u64, x: Tensor, kind: Product) -> Result<Tensor> {
        let (y, dtype) = self.product(name, n_out, x, kind)?;
        let y = self.plus_bias(name, n_out, y)?;
        let y = match self.cfg.ffn_scales || dtype == DType::NVFP4 {
            true => self.times_scale(name, y)?,
            false => y,
        };
        Ok(self.name(y, name))
    }

    /// w·x: [n_out, n]. Of matrices whose scales and biases do not count, but the scales of NVFP4.
    pub(crate) fn matmul(&mut self, name: &str, n_out: u64, x: Tensor) -> Result<Tensor> {
        let (y, dtype) = self.product(name, n_out, x, Product::Dense)?;
        let y = if dtype == DType::NVFP4 { self.times_scale(name, y)? } else { y };
        Ok(self.name(y, name))
    }

    fn product(&mut self, name: &str, n_out: u64, x: Tensor, kind: Product) -> Result<(Tensor, DType)> {
        let n_in = self.g.ne(x)[0];
        let threshold = self.cfg.neurons.input_threshold(name, &self.path(name));
        let role = match kind {
            Product::Rows(..) => Role::Matrix,
            Product::Dense if threshold.is_none() => Role::Matrix,
            Product::Dense | Product::Zeros => Role::MatrixOfZeros,
        };
        let x = threshold.map_or(x, |threshold| self.g.threshold(x, threshold));
        let w = self.weight(&format!("{name}.weight"), &[n_in, n_out], role)?;
        let y = match kind {
            Product::Dense | Product::Zeros => self.g.mul_mat(w, x),
            Product::Rows(scores, pick) => self.g.mul_mat_sparse(w, x, scores, pick),
        };
        Ok((y, self.g.def(w).dtype))
    }

    fn times_scale(&mut self, name: &str, y: Tensor) -> Result<Tensor> {
        let scale = self.leaf(&self.layer_path(&format!("{name}.scale")), &[1], Role::Other)?;
        Ok(scale.map_or(y, |scale| self.g.mul(y, scale)))
    }

    fn plus_bias(&mut self, name: &str, n_out: u64, y: Tensor) -> Result<Tensor> {
        let bias = self.optional(&format!("{name}.bias"), &[n_out], Role::Bias)?;
        Ok(bias.map_or(y, |bias| self.g.add(y, bias)))
    }
}
