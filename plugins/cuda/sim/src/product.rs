//! A product of cuBLASLt by its definition: D = alpha · op(A) · op(B) + beta · C, matrices column by column.

use crate::sys::*;
use crate::world::{Answer, World};
use half::f16;
use std::ffi::c_int;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A matrix: element (i, j) is number i + j · ld.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Matrix {
    /// Address.
    pub at: u64,
    /// The library's number.
    pub dtype: cudaDataType,
    /// As stored.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Elements from column to column.
    pub ld: usize,
}

impl Default for Matrix {
    fn default() -> Matrix {
        Matrix { at: 0, dtype: CUDA_R_32F, rows: 0, cols: 0, ld: 0 }
    }
}

impl Matrix {
    fn size(&self) -> usize {
        if self.dtype == CUDA_R_32F { 4 } else { 2 }
    }

    /// From the first to past the last element.
    pub fn n_bytes(&self) -> usize {
        (self.cols.saturating_sub(1) * self.ld + self.rows) * self.size()
    }

    fn offset(&self, i: usize, j: usize) -> usize {
        (i + j * self.ld) * self.size()
    }

    fn get(&self, bytes: &[u8], i: usize, j: usize) -> f32 {
        let at = self.offset(i, j);
        match self.dtype {
            CUDA_R_16F => f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32(),
            CUDA_R_16BF => f32::from_bits(u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]])) << 16),
            _ => f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]),
        }
    }
}

/// A, B, C and D, and what is done to A and B before.
#[derive(Clone, Debug)]
pub struct Shape {
    /// A, B, C, D.
    pub matrices: [Matrix; 4],
    /// Of A and of B: as stored, or transposed.
    pub transposed: [c_int; 2],
}

impl Shape {
    /// Rows and columns of op(A), or of op(B).
    fn dims(&self, i: usize) -> (usize, usize) {
        let m = &self.matrices[i];
        if self.transposed[i] == CUBLAS_OP_T { (m.cols, m.rows) } else { (m.rows, m.cols) }
    }

    /// What the library would not take.
    pub fn problem(&self) -> Option<String> {
        let ([a, b, c, d], (m, k), (k2, n)) = (&self.matrices, self.dims(0), self.dims(1));
        let is_known = self.transposed.iter().all(|op| [CUBLAS_OP_N, CUBLAS_OP_T].contains(op));
        let halves = [CUDA_R_16F, CUDA_R_16BF];
        let types = halves.contains(&a.dtype) && a.dtype == b.dtype;
        if !is_known || !types || [c.dtype, d.dtype] != [CUDA_R_32F; 2] {
            return Some(format!("operations or types of {self:?}"));
        }
        if k != k2 || [(c.rows, c.cols), (d.rows, d.cols)] != [(m, n); 2] || m * n * k == 0 {
            return Some(format!("dims that do not fit: {self:?}"));
        }
        let is_short = self.matrices.iter().any(|matrix| matrix.ld < matrix.rows);
        is_short.then(|| format!("columns that overlap: {self:?}"))
    }

    /// A number for all of it but the addresses.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for matrix in self.matrices {
            Matrix { at: 0, ..matrix }.hash(&mut hasher);
        }
        self.transposed.hash(&mut hasher);
        hasher.finish()
    }
}

/// A product that was enqueued.
#[derive(Clone, Debug)]
pub struct Product {
    /// Matrices.
    pub shape: Shape,
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of C, which is not read where it is 0.
    pub beta: f32,
    /// Address and bytes.
    pub workspace: (u64, usize),
}

impl World {
    /// Computes a product; its workspace is written over.
    pub fn multiply(&mut self, p: &Product) -> Answer {
        let (at, n) = p.workspace;
        if n > 0 {
            let to = self.device_bytes(at, n)?;
            // SAFETY: as many bytes of a card, which only the world uses.
            unsafe { to.write_bytes(0xff, n) };
        }
        let [a, b, c, d] = p.shape.matrices;
        let mut read = |matrix: &Matrix| {
            let n = matrix.n_bytes();
            let from = self.device_bytes(matrix.at, n)?;
            // SAFETY: as above.
            Answer::Ok(unsafe { std::slice::from_raw_parts(from, n) }.to_vec())
        };
        let (of_a, of_b, of_c) = (read(&a)?, read(&b)?, read(&c)?);
        let ((m, k), (_, n)) = (p.shape.dims(0), p.shape.dims(1));
        let [is_a, is_b] = p.shape.transposed.map(|op| op == CUBLAS_OP_T);
        let to = self.device_bytes(d.at, d.n_bytes())?;
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let left = |l| if is_a { a.get(&of_a, l, i) } else { a.get(&of_a, i, l) };
            let right = |l| if is_b { b.get(&of_b, j, l) } else { b.get(&of_b, l, j) };
            let sum: f32 = (0..k).map(|l| left(l) * right(l)).sum();
            let more = if p.beta == 0.0 { 0.0 } else { p.beta * c.get(&of_c, i, j) };
            let y = (p.alpha * sum + more).to_le_bytes();
            // SAFETY: an element within the matrix, whose bytes were found above.
            unsafe { to.add(d.offset(i, j)).copy_from(y.as_ptr(), 4) };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused() {
        let matrix = |dtype, rows, cols, ld| Matrix { at: 0, dtype, rows, cols, ld };
        let shape = |a, b, d| Shape { matrices: [a, b, d, d], transposed: [CUBLAS_OP_T, CUBLAS_OP_N] };
        let (a, b, d) =
            (matrix(CUDA_R_16F, 8, 3, 8), matrix(CUDA_R_16F, 8, 2, 16), matrix(CUDA_R_32F, 3, 2, 3));
        assert_eq!(shape(a, b, d).problem(), None);
        for (a, b, d, words) in [
            (a, matrix(CUDA_R_16BF, 8, 2, 16), d, "types"),
            (a, matrix(CUDA_R_16F, 7, 2, 16), d, "dims"),
            (a, b, matrix(CUDA_R_32F, 2, 3, 3), "dims"),
            (a, b, matrix(CUDA_R_32F, 3, 2, 2), "overlap"),
        ] {
            let problem = shape(a, b, d).problem().unwrap_or_default();
            assert!(problem.contains(words), "{words}: {problem}");
        }
    }
}
