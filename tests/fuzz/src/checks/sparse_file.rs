//! Files of sparse statistics: read or refused; what is read comes back when it is written and read again.

use crate::{Target, accepted};
use llmrt_abi::DType;
use llmrt_gguf::TensorInfo;
use llmrt_sparse::stats::{SparseFile, Split, write};
use llmrt_sparse::{Counts, ModelId};

/// Files of sparse statistics.
pub const TARGET: Target = Target { name: "sparse_file", check, seeds };

/// Reads a file.
pub fn check(data: &[u8]) {
    let Some(file) = accepted(SparseFile::parse(data)) else { return };
    let bytes = |t: &TensorInfo| &data[t.offset as usize..][..t.nbytes as usize];
    let mut written = Vec::new();
    let done = write(&mut written, &file, |tensor, out| out.write_all(bytes(tensor)));
    if accepted(done).is_none() {
        return; // a name that is too long once it is UTF-8
    }
    let mut again = SparseFile::parse(&written).expect("what is written can be read");
    again.predictors.clone_from(&file.predictors); // elsewhere in the file
    assert_eq!(format!("{again:?}"), format!("{file:?}"));
}

fn seeds() -> Vec<Vec<u8>> {
    let tensor = |name: &str, ne: [u64; 2]| TensorInfo {
        name: name.into(),
        dtype: DType::F32,
        ne: [ne[0], ne[1], 1, 1],
        n_dims: 2,
        file: 0,
        offset: 0,
        nbytes: 4 * ne[0] * ne[1],
    };
    let model = ModelId { name: "model.gguf".into(), checksum: "0123".into() };
    let file = SparseFile {
        n_tokens: 9,
        counts: Counts::new(vec![1.0, 0.0, 2.5]).into_iter().collect(),
        quantiles: vec![("blk.0.ffn_up".into(), vec![0.0, 1.0])],
        thresholds: vec![("blk.0.ffn_up".into(), 0.5)],
        predictor_threshold: Some(0.25),
        predictors: vec![tensor("blk.0.fc1.weight", [4, 2]), tensor("blk.0.fc2.weight", [2, 3])],
        splits: vec![Split { devices: vec!["sim".into()], bytes: vec![8], device_of: vec![vec![0, 1, 0]] }],
        ..SparseFile::new(model)
    };
    let mut bytes = Vec::new();
    write(&mut bytes, &file, |t, out| out.write_all(&vec![0; t.nbytes as usize])).expect("a good file");
    vec![bytes]
}
