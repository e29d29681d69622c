//! The int8 groups of a llama2.c checkpoint as f32, dequantised from the file's bytes on each read.

use llmrt_abi::DType;
use llmrt_gguf::TensorInfo;
use llmrt_gguf::checkpoint::{CheckpointTensor, Storage, dequantise};

use super::Result;
use super::read::{OpenFile, buffer};

/// f32 tensors one after the other, as if they were a file.
#[derive(Debug, Default)]
pub struct Dequantised {
    tensors: Vec<Int8Tensor>,
    nbytes: u64,
}

/// An int8 tensor: where its f32 are here, and its values and scales in the file.
#[derive(Debug)]
struct Int8Tensor {
    name: String,
    at: u64,
    values: u64,
    scales: u64,
    group: u64,
}

impl Dequantised {
    /// Places a checkpoint's tensors: f32 in source 0, the file; int8 in source 1, which comes along if there are any.
    pub(super) fn plan(tensors: &[CheckpointTensor]) -> (Option<Dequantised>, Vec<TensorInfo>) {
        let mut d = Dequantised::default();
        let infos = tensors.iter().map(|t| t.f32_in_place().unwrap_or_else(|| d.add(t))).collect();
        ((!d.tensors.is_empty()).then_some(d), infos)
    }

    fn add(&mut self, t: &CheckpointTensor) -> TensorInfo {
        let (at, nbytes, shape) = (self.nbytes, 4 * t.n_elements(), t.shape.clone());
        if let Storage::Int8Groups { offset: values, scales_offset: scales, group } = t.storage {
            self.tensors.push(Int8Tensor { name: shape.name.clone(), at, values, scales, group });
        }
        self.nbytes += nbytes;
        let (name, ne, n_dims) = (shape.name, shape.ne, shape.n_dims);
        TensorInfo { name, dtype: DType::F32, ne, n_dims, file: 1, offset: at, nbytes }
    }

    /// Fills `dst` with the f32 bytes from `at` on, which are in one tensor.
    pub(super) fn read(&self, file: &OpenFile, at: u64, dst: &mut [u8]) -> Result<()> {
        let after = self.tensors.partition_point(|t| t.at <= at);
        let t = &self.tensors[after.saturating_sub(1)];
        let (start, end) = (at - t.at, at - t.at + dst.len() as u64);
        let first_group = start / 4 / t.group;
        let (from, to) = (first_group * t.group, end.div_ceil(4));

        let room = |n| buffer(n, || format!("tensor `{}`", t.name));
        let mut values = room(to - from)?;
        file.read_exact_at(t.values + from, &mut values)?;
        let mut scales = room(4 * (to.div_ceil(t.group) - first_group))?;
        file.read_exact_at(t.scales + 4 * first_group, &mut scales)?;

        let numbers = dequantise(&values, &scales, t.group as usize);
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).skip((start - 4 * from) as usize);
        dst.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Ok(())
    }
}
