//! Spoiled files of every kind: read or refused, never a panic.

mod fixtures;

use fixtures::read;
use llmrt_gguf::mutate::mutate;
use llmrt_sparse::index::NeuronIndex;
use llmrt_sparse::pt::Pt;
use llmrt_sparse::{Counts, Predictor};

const N: u64 = 20_000;

/// Mutates `bytes` [`N`] times and gives each to `parse`, which returns whether it was accepted.
fn survives(bytes: &[u8], parse: impl Fn(&[u8]) -> bool) {
    assert!(parse(bytes));
    let mut spoiled = Vec::new();
    let mut n_accepted = 0;
    for seed in 0..N {
        spoiled.clear();
        spoiled.extend_from_slice(bytes);
        mutate(&mut spoiled, seed);
        n_accepted += u64::from(parse(&spoiled));
    }
    assert!(
        (1..N * 95 / 100).contains(&n_accepted),
        "{n_accepted} of {N} accepted: the mutations miss the parser"
    );
}

#[test]
fn a_spoiled_file_of_torch_never_panics() {
    survives(&read("pt/dtypes/activation_0.int8.pt"), |spoiled| {
        let Ok(pt) = Pt::parse(spoiled) else { return false };
        if let Ok(tensor) = pt.tensor() {
            assert_eq!(tensor.to_f64s(spoiled).len(), tensor.n_elements());
        }
        Counts::from_pt(spoiled).is_ok()
    });
    survives(&read("pt/model_1.pt"), |spoiled| Predictor::from_pt(spoiled).is_ok());
}

#[test]
fn a_spoiled_index_never_panics() {
    for name in ["four-layers.generated.gpuidx", "split/llama.capacity-256.gpuidx"] {
        survives(&read(name), |spoiled| {
            let Ok(index) = NeuronIndex::parse(spoiled) else { return false };
            assert_eq!(NeuronIndex::parse(&index.to_vec().unwrap()).unwrap(), index);
            true
        });
    }
}
