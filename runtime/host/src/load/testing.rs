//! Small model files for the tests of this module.

use std::path::{Path, PathBuf};

use llmrt_abi::DType;
use llmrt_gguf::writer::{self, Tables};
use llmrt_gguf::{TensorShape, Value};

/// A GGUF file of F32 tensors of `(name, n)`; the bytes of tensor i count up from i.
pub fn gguf(tensors: &[(&str, u64)], pairs: &[(&str, Value)]) -> Vec<u8> {
    let mut tables = Tables::default();
    tables.metadata.set("general.architecture", "test");
    pairs.iter().for_each(|(key, value)| tables.metadata.set(*key, value.clone()));
    let shape = |(name, n): &(&str, u64)| TensorShape::new(*name, DType::F32, &[*n]).unwrap();
    tables.tensors = tensors.iter().map(shape).collect();
    let data: Vec<Vec<u8>> = tensors.iter().enumerate().map(|(i, (_, n))| data(i, *n)).collect();
    writer::to_vec(&tables, &data.iter().map(|d| &d[..]).collect::<Vec<_>>()).unwrap()
}

/// What `gguf` puts into tensor `i` of `n` elements: bytes below 64, so that no f32 of them is NaN.
pub fn data(i: usize, n: u64) -> Vec<u8> {
    (0..4 * n as usize).map(|b| ((b / 4 * 7 + b + i) % 64) as u8).collect()
}

/// The parts of a split model `m`, each with one tensor `tNO` of 8 elements; written into `folder`.
pub fn split_model(folder: &Path, count: u16) -> Vec<PathBuf> {
    let part = |no: u16| {
        let keys = [
            ("split.no", Value::U16(no)),
            ("split.count", Value::U16(count)),
            ("split.tensors.count", Value::I32(count.into())),
        ];
        let path = folder.join(format!("m-{:05}-of-{count:05}.gguf", no + 1));
        std::fs::write(&path, gguf(&[(&format!("t{no}"), 8)], &keys)).unwrap();
        path
    };
    (0..count).map(part).collect()
}

/// A checkpoint of format 0 (f32) or 2 (int8 in groups of 4): dim 8, hidden 12, 1 layer, 2 heads, 5 tokens.
/// Numbers count up from 1; every int8 group is 2 times half its number.
pub fn checkpoint(version: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if version == 2 {
        bytes.extend(0x616b_3432u32.to_le_bytes());
        bytes.extend(version.to_le_bytes());
    }
    bytes.extend([8, 12, 1, 2, 1, 5, 3i32].iter().flat_map(|n| n.to_le_bytes()));
    let mut number = 0.0f32;
    let mut next = || {
        number += 1.0;
        number
    };
    let matrices = [8 * 8, 8 * 4, 8 * 4, 8 * 8, 8 * 12, 8 * 12, 8 * 12];
    if version == 2 {
        bytes.extend([1, 4, 0, 0, 0]); // shared classifier, group size
        bytes.resize(256, 0);
        (0..3 * 8).for_each(|_| bytes.extend(next().to_le_bytes()));
        for n in [5 * 8].into_iter().chain(matrices) {
            bytes.extend(std::iter::repeat_n(2u8, n));
            (0..n / 4).for_each(|_| bytes.extend((next() / 2.0).to_le_bytes()));
        }
    } else {
        let [q, k, v, o, gate, down, up] = matrices;
        let rope = 2 * 3 * 2;
        let n: usize = [5 * 8, 8, q, k, v, o, 8, gate, down, up, 8, rope].iter().sum();
        (0..n).for_each(|_| bytes.extend(next().to_le_bytes()));
    }
    bytes
}

/// A tokenizer.bin of `n` tokens.
pub fn tokenizer_bin(n: i32) -> Vec<u8> {
    let token = |id: i32| [(-id as f32).to_le_bytes(), 1i32.to_le_bytes()].concat().into_iter().chain([b'a']);
    4i32.to_le_bytes().into_iter().chain((0..n).flat_map(token)).collect()
}
