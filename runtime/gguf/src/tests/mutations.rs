//! Spoiled files of every kind: read or refused, never a panic.

use llmrt_abi::DType;

use crate::checkpoint::{Checkpoint, TokenizerBin, to_metadata};
use crate::mutate::mutate;
use crate::writer::{Tables, to_vec};
use crate::{Array, Gguf, TensorShape, Value, merge, sniff};

/// Mutates `bytes` 20 000 times and gives each to `parse`, which returns whether it was accepted.
fn survives(bytes: &[u8], parse: impl Fn(&[u8]) -> bool) {
    let mut spoiled = Vec::new();
    let mut n_accepted = 0;
    for seed in 0..20_000 {
        spoiled.clear();
        spoiled.extend_from_slice(bytes);
        mutate(&mut spoiled, seed);
        n_accepted += usize::from(parse(&spoiled));
    }
    assert!(parse(bytes));
    assert!(
        (1..19_000).contains(&n_accepted),
        "{n_accepted} of 20000 accepted: the mutations miss the parser"
    );
}

#[test]
fn a_spoiled_gguf_file_never_panics() {
    let mut tables = Tables::default();
    tables.metadata.set("general.architecture", "llama");
    tables.metadata.set("general.alignment", 32u32);
    tables.metadata.set("tokens", vec!["a".to_string(), "bc".into(), "".into()]);
    tables
        .metadata
        .set("nested", Value::Array(Array::Nested(vec![Array::U8(vec![1, 2]), Array::F64(vec![0.5])])));
    tables.tensors.push(TensorShape::new("token_embd.weight", DType::Q4_0, &[32, 3]).unwrap());
    tables.tensors.push(TensorShape::new("output_norm.weight", DType::F32, &[5]).unwrap());
    let bytes = to_vec(&tables, &[&[1; 54], &[2; 20]]).unwrap();

    survives(&bytes, |spoiled| {
        sniff(spoiled);
        let _ = Gguf::parse(&spoiled[..spoiled.len() / 2], spoiled.len() as u64);
        let Ok(gguf) = Gguf::parse(spoiled, spoiled.len() as u64) else { return false };
        assert!(gguf.tensors.iter().all(|t| t.offset + t.nbytes <= spoiled.len() as u64));
        merge(vec![gguf]).is_ok()
    });
}

#[test]
fn a_spoiled_checkpoint_never_panics() {
    for version in 0..=2 {
        let bytes = crate::checkpoint::tests::file(version, true);
        survives(&bytes, |spoiled| {
            sniff(spoiled);
            let Ok(checkpoint) = Checkpoint::parse(spoiled, spoiled.len() as u64) else { return false };
            assert!(checkpoint.tensors.iter().all(|t| t.read_f32(spoiled).is_ok()));
            to_metadata(&checkpoint.config, None).is_ok()
        });
    }
}

#[test]
fn a_spoiled_tokenizer_never_panics() {
    let bytes = crate::checkpoint::tests::tokenizer(300);
    survives(&bytes, |spoiled| TokenizerBin::parse(spoiled).is_ok());
}
