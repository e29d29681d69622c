//! Files of statistics: what is written is read, for its model alone.

use llmrt_abi::DType;
use llmrt_gguf::writer::{Tables, to_vec};
use llmrt_gguf::{Gguf, Metadata, TensorInfo, TensorShape};
use llmrt_sparse::stats::{SparseFile, Split, write};
use llmrt_sparse::{Counts, Error, ModelId, digest};
use std::convert::Infallible;

fn model(name: &str, checksum: &str) -> ModelId {
    ModelId { name: name.into(), checksum: checksum.into() }
}

fn tensor(name: &str, ne: [u64; 4]) -> TensorInfo {
    let nbytes = 4 * ne.iter().product::<u64>();
    TensorInfo { name: name.into(), dtype: DType::F32, ne, n_dims: 2, file: 0, offset: 0, nbytes }
}

fn full() -> SparseFile {
    SparseFile {
        n_tokens: 32,
        counts: vec![Counts::new(vec![1.0, 2.5, 0.0]).unwrap(), Counts::new(vec![0.0; 3]).unwrap()],
        quantiles: vec![("blk.0.attn_q".into(), vec![0.0, 0.5, 2.0])],
        thresholds: vec![("blk.0.attn_q".into(), 0.25), ("blk.0.ffn_up".into(), 0.0)],
        predictor_threshold: Some(0.1),
        predictor_recall: Some(0.99),
        predictors: vec![tensor("blk.0.fc1.weight", [4, 2, 1, 1]), tensor("blk.0.fc2.weight", [2, 3, 1, 1])],
        splits: vec![Split {
            devices: vec!["sim0".into(), "sim1".into()],
            bytes: vec![24, 12],
            device_of: vec![vec![0, 1, 2], vec![1, 0, 0]],
        }],
        ..SparseFile::new(model("tiny", "0123456789abcdef"))
    }
}

fn written(file: &SparseFile) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes, file, |tensor, out| out.write_all(&vec![7; tensor.nbytes as usize])).unwrap();
    bytes
}

#[test]
fn what_is_written_is_read() {
    let (bytes, expected) = (written(&full()), full());
    let mut found = SparseFile::parse(&bytes).unwrap();
    let predictors = std::mem::take(&mut found.predictors);
    for (found, expected) in predictors.iter().zip(&expected.predictors) {
        assert_eq!(found.shape(), expected.shape());
        assert_eq!(bytes[found.offset as usize..][..found.nbytes as usize], vec![7; found.nbytes as usize]);
    }
    assert_eq!(predictors.len(), 2);
    assert_eq!(found, SparseFile { predictors: vec![], ..expected });
    let empty = SparseFile::new(model("tiny", "0"));
    assert_eq!(SparseFile::parse(&written(&empty)).unwrap(), empty);
}

#[test]
fn another_model_is_refused_by_the_name_of_the_old_one() {
    let file = full();
    file.check_model(&model("renamed", "0123456789abcdef")).unwrap();
    let e = file.check_model(&model("other", "fedcba9876543210")).unwrap_err().to_string();
    assert!(
        e.contains("made for tiny (checksum 0123456789ab), not for other (checksum fedcba987654)"),
        "{e}"
    );
    assert!(e.contains("`llmrt sparse profile MODEL -f TEXT --force`"), "{e}");
    assert_eq!(file.check_counts(&[3]), Err(Error::WrongLayers { found: 2, expected: 1 }));
    assert_eq!(file.check_counts(&[3, 4]), Err(Error::WrongCounts { found: 3, expected: 4 }));
}

/// The file with its tables changed; the data stay.
fn spoiled(change: impl Fn(&mut Tables)) -> String {
    let bytes = written(&full());
    let gguf = Gguf::parse(&bytes, bytes.len() as u64).unwrap();
    let tensors = gguf.tensors.iter().map(TensorInfo::shape).collect();
    let mut tables = Tables { metadata: gguf.metadata.clone(), tensors, ..Tables::default() };
    change(&mut tables);
    let data: Vec<&[u8]> =
        gguf.tensors.iter().map(|t| &bytes[t.offset as usize..][..t.nbytes as usize]).collect();
    SparseFile::parse(&to_vec(&tables, &data).unwrap()).unwrap_err().to_string()
}

#[test]
fn files_with_one_thing_wrong_are_refused() {
    let check = |change: fn(&mut Tables), expected: &str| {
        let e = spoiled(change);
        assert!(e.contains(expected), "{e}");
    };
    check(|t| t.metadata.set("general.architecture", "llama"), "no file of sparse statistics");
    check(|t| t.metadata.set("sparse.version", 2u32), "is of version 2, this llmrt reads 1");
    check(|t| drop(t.metadata.remove("sparse.model.checksum")), "`sparse.model.checksum` is missing");
    check(|t| t.metadata.set("sparse.thresholds.values", vec![0.5f32]), "1 thresholds for 2 names");
    check(
        |t| t.metadata.set("sparse.thresholds.values", vec![0.5, f32::NAN]),
        "threshold NaN of blk.0.ffn_up",
    );
    check(|t| t.metadata.set("powerinfer.sparse_threshold", f32::NAN), "threshold NaN of the predictors");
    check(|t| t.metadata.set("sparse.split.0.devices", vec!["a".to_string()]), "2 sizes for 1 devices");
    check(|t| t.tensors[0].dtype = DType::I64, "`blk.0.counts`: expected a vector of F64");
    let fc2 = |t: &mut Tables| {
        let fc2 = t.tensors.iter_mut().find(|t| t.name == "blk.0.fc2.weight").unwrap();
        *fc2 = TensorShape::new(fc2.name.clone(), DType::F32, &[3, 2]).unwrap();
    };
    check(fc2, "as many columns as fc1 has rows");
}

#[test]
fn numbers_that_cannot_be_are_refused() {
    let refused = |change: fn(&mut SparseFile), expected: &str| {
        let mut file = full();
        change(&mut file);
        let e = SparseFile::parse(&written(&file)).unwrap_err().to_string();
        assert!(e.contains(expected), "{e}");
    };
    refused(|f| f.quantiles[0].1.swap(0, 2), "expected ascending numbers");
    refused(|f| f.quantiles[0].1[2] = f32::NAN, "expected ascending numbers");
    refused(|f| f.splits[0].device_of[1][0] = 3, "a device that the split has no name for");
}

#[test]
fn the_digest_is_of_what_decides_which_neurons_fire() {
    let tensors = [tensor("a", [64, 64, 1, 1]), tensor("b", [8, 1, 1, 1])];
    let of = |change: fn(&mut Metadata, &mut [TensorInfo]), byte: u8| {
        let (mut metadata, mut tensors) = (Metadata::new(), tensors.clone());
        metadata.set("general.architecture", "llama");
        metadata.set("tokenizer.chat_template", "x");
        change(&mut metadata, &mut tensors);
        let read = |_: &TensorInfo, _: u64, bytes: &mut [u8]| {
            bytes.fill(byte);
            Ok::<_, Infallible>(())
        };
        digest(&metadata, &tensors, read).unwrap()
    };
    let same = of(|_, _| (), 1);
    assert_eq!(same.len(), 64);
    assert_eq!(of(|m, _| m.set("tokenizer.chat_template", "y"), 1), same);
    assert_ne!(of(|_, _| (), 2), same);
    assert_ne!(of(|_, t| t[1].name = "c".into(), 1), same);
    assert_ne!(of(|_, t| t[0].ne = [32, 128, 1, 1], 1), same);
    assert_ne!(of(|_, t| t[0].dtype = DType::I32, 1), same);
    assert_ne!(of(|m, _| m.set("general.architecture", "qwen2"), 1), same);
    assert_ne!(of(|m, _| m.set("llama.hidden_activation", "relu"), 1), same);
}
