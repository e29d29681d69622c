//! A product of quantised weights with many columns, to measure an instruction set by.

use super::Output;
use super::product::{self, Column, Product};
use super::worker::{Rank, Taken};
use crate::quant::{GROUP, XGroup};
use crate::scratch::Scratch;
use crate::simd::Isa;
use crate::tensor::Tensor;
use llmrt_plugin::DType;

/// Elements of a row, rows, and columns: what the first two caches hold.
const K: usize = 1024;
const ROWS: usize = 64;
const COLUMNS: usize = 64;

/// The operands.
pub struct Sample {
    weights: Vec<u8>,
    x: Vec<XGroup>,
    y: Vec<f32>,
    columns: Vec<Column>,
    scratch: Scratch,
}

impl Sample {
    /// Operands that are zero.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Sample {
        Sample {
            weights: vec![0; K / DType::Q4_0.block_elems() * DType::Q4_0.block_bytes() * ROWS],
            x: vec![XGroup::default(); K / GROUP * COLUMNS],
            y: vec![0.0; ROWS * COLUMNS],
            columns: (0..COLUMNS).map(|i| Column { x: i, y: i }).collect(),
            scratch: Scratch::default(),
        }
    }

    /// Multiplies once: how many multiplications and additions that were.
    pub fn multiply(&mut self, isa: Isa) -> f64 {
        // SAFETY: the vectors outlive the tensors, which this function drops. `f32` is aligned.
        let (weights, result) = unsafe {
            let y = bytemuck::cast_slice_mut(&mut self.y);
            (
                Tensor::of_bytes(&mut self.weights, DType::Q4_0, [K, ROWS, 1, 1]),
                Tensor::of_bytes(y, DType::F32, [ROWS, COLUMNS, 1, 1]),
            )
        };
        let product = Product {
            w: &weights,
            at: [0; 2],
            picked: None,
            quantised: &self.x,
            packed: &[],
            columns: &self.columns,
        };
        let taken = [Taken::default()];
        // SAFETY: the result is gapless F32; the team is this thread, and nothing else uses the result.
        let out = unsafe { Output::new(&result, Rank::new(0, 1), &taken, None) };
        for mut y in out.tiles([ROWS, COLUMNS, 1, 1]) {
            product::compute(isa, &product, &mut y, &mut self.scratch);
        }
        (2 * K * ROWS * COLUMNS) as f64
    }
}
