//! The tensors of a GGUF file, read by name.

use super::model::Linear;
use llmrt_abi::DType;
use llmrt_gguf::{Gguf, Metadata, TensorInfo};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// The tables of a file are in its first bytes; these are more than any has.
const MAX_TABLES: u64 = 64 << 20;

/// A file, and its tensors that were not read yet.
pub struct Tensors {
    path: String,
    file: File,
    pub metadata: Metadata,
    left: HashMap<String, TensorInfo>,
}

impl Tensors {
    pub fn open(path: &Path) -> Result<Tensors, String> {
        let fail = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
        let mut file = File::open(path).map_err(|e| fail(&e))?;
        let len = file.metadata().map_err(|e| fail(&e))?.len();
        let mut prefix = Vec::new();
        file.by_ref().take(MAX_TABLES).read_to_end(&mut prefix).map_err(|e| fail(&e))?;
        let gguf = Gguf::parse(&prefix, len).map_err(|e| fail(&e))?;
        let left = gguf.tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Ok(Tensors { path: path.display().to_string(), file, metadata: gguf.metadata, left })
    }

    /// Whether all that are left are F32.
    pub fn are_f32(&self) -> bool {
        self.left.values().all(|tensor| tensor.dtype == DType::F32)
    }

    /// One that was not read.
    pub fn left(&self) -> Option<&String> {
        self.left.keys().next()
    }

    /// How many rows a matrix has.
    pub fn n_rows(&self, name: &str) -> usize {
        self.left.get(name).map_or(0, |tensor| tensor.ne[1] as usize)
    }

    /// NAME.weight [rows][columns], and NAME.bias [rows] if there is one.
    pub fn linear(&mut self, name: &str, rows: usize, columns: usize) -> Result<Linear, String> {
        Ok(Linear {
            weight: self.matrix(&format!("{name}.weight"), rows, columns)?,
            bias: self.optional(&format!("{name}.bias"), 1, rows)?,
        })
    }

    pub fn vector(&mut self, name: &str, n: usize) -> Result<Vec<f32>, String> {
        self.matrix(name, 1, n)
    }

    pub fn matrix(&mut self, name: &str, rows: usize, columns: usize) -> Result<Vec<f32>, String> {
        let found = self.optional(name, rows, columns)?;
        found.ok_or_else(|| format!("{}: there is no tensor `{name}`", self.path))
    }

    pub fn optional(&mut self, name: &str, rows: usize, columns: usize) -> Result<Option<Vec<f32>>, String> {
        let Some(TensorInfo { dtype, ne, offset, nbytes, .. }) = self.left.remove(name) else {
            return Ok(None);
        };
        if (dtype, ne) != (DType::F32, [columns as u64, rows as u64, 1, 1]) {
            return Err(format!(
                "{}: `{name}` is {dtype} {ne:?}, expected F32 [{columns}, {rows}]",
                self.path
            ));
        }
        let mut bytes = vec![0; nbytes as usize];
        let read = self.file.seek(SeekFrom::Start(offset)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map_err(|e| format!("{}: `{name}`: {e}", self.path))?;
        Ok(Some(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()))
    }
}
