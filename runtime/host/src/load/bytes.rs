//! Bytes of tensors: out of the memory map where there is one, else read from the file.

use std::ops::Range;

use llmrt_gguf::TensorInfo;

use super::mapping::Mapping;
use super::place::Item;
use super::read::buffer;
use super::{ModelFiles, Result};

/// A model's files and the maps of those that are mapped.
pub(super) struct Bytes<'a> {
    pub files: &'a ModelFiles,
    /// One row per source.
    pub maps: &'a [Option<Mapping>],
}

impl Bytes<'_> {
    /// `n` bytes of a tensor from byte `off` of it on; in `scratch` if they had to be read.
    pub fn get<'s>(
        &'s self,
        tensor: &TensorInfo,
        off: u64,
        n: u64,
        scratch: &'s mut Vec<u8>,
    ) -> Result<&'s [u8]> {
        if let Some(bytes) = self.mapped(tensor, off, n) {
            return Ok(bytes);
        }
        if (scratch.len() as u64) < n {
            *scratch = buffer(n, || format!("reading tensor `{}`", tensor.name))?;
        }
        let dst = &mut scratch[..n as usize];
        self.files.read(tensor, off, dst)?;
        Ok(dst)
    }

    /// Fills `dst` with bytes of a tensor from byte `off` of it on.
    pub fn read(&self, tensor: &TensorInfo, off: u64, dst: &mut [u8]) -> Result<()> {
        match self.mapped(tensor, off, dst.len() as u64) {
            Some(bytes) => {
                dst.copy_from_slice(bytes);
                Ok(())
            }
            None => self.files.read(tensor, off, dst),
        }
    }

    /// As [`Bytes::get`], of what is requested: the bytes of a part may be apart in the file.
    pub fn get_of<'s>(
        &'s self,
        item: &Item<'_>,
        off: u64,
        n: u64,
        scratch: &'s mut Vec<u8>,
    ) -> Result<&'s [u8]> {
        if item.pieces.is_together() {
            return self.get(&item.info, off, n, scratch);
        }
        if (scratch.len() as u64) < n {
            *scratch = buffer(n, || format!("reading tensor `{}`", item.info.name))?;
        }
        let dst = &mut scratch[..n as usize];
        self.read_of(item, off, dst)?;
        Ok(dst)
    }

    /// As [`Bytes::read`], of what is requested.
    pub fn read_of(&self, item: &Item<'_>, off: u64, dst: &mut [u8]) -> Result<()> {
        let (mut at, mut rest) = (off, dst);
        while !rest.is_empty() {
            let (from, len) = item.pieces.at(at);
            let len = len.min(rest.len() as u64);
            let (piece, after) = rest.split_at_mut(len as usize);
            self.read(&item.info, from, piece)?;
            (at, rest) = (at + len, after);
        }
        Ok(())
    }

    /// Brings pages of a file into memory and into its map, if it is mapped.
    pub fn read_ahead(&self, file: usize, range: Range<u64>) {
        if let Some(mapping) = self.map(file) {
            mapping.read_ahead(range);
        }
    }

    /// Requests pages of a file from storage, if it is mapped.
    pub fn request(&self, file: usize, range: Range<u64>) {
        if let Some(mapping) = self.map(file) {
            mapping.request(range);
        }
    }

    /// Lets go of the pages of the first `n` bytes of a tensor; the file still has them.
    pub fn release(&self, tensor: &TensorInfo, n: u64) {
        if let Some(mapping) = self.map(tensor.file) {
            mapping.release(tensor.offset..tensor.offset + n);
        }
    }

    fn mapped(&self, tensor: &TensorInfo, off: u64, n: u64) -> Option<&[u8]> {
        let start = tensor.offset + off;
        self.map(tensor.file)?.bytes(start..start + n)
    }

    fn map(&self, file: usize) -> Option<&Mapping> {
        self.maps.get(file)?.as_ref()
    }
}
