//! Indexes that PowerInfer's solver and writer made.

mod fixtures;

use fixtures::{counts, read};
use llmrt_sparse::Counts;
use llmrt_sparse::index::{LayerIndex, NeuronIndex};
use llmrt_sparse::solve::{ActivationRequest, UPSTREAM_BATCH, most_activations};

#[test]
fn an_index_comes_back_byte_for_byte() {
    for name in [
        "four-layers.generated.gpuidx",
        "split/llama.capacity-256.gpuidx",
        "split/llama.capacity-768.gpuidx",
        "split/llama.capacity-768-threshold-512.gpuidx",
        "split/llama.capacity-2048.gpuidx",
    ] {
        let bytes = read(name);
        let index = NeuronIndex::parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(index.to_vec().unwrap(), bytes, "{name}");
    }
}

#[test]
fn empty_and_full_buckets_are_read() {
    let index = NeuronIndex::parse(&read("four-layers.generated.gpuidx")).unwrap();
    let sizes: Vec<_> = index.layers.iter().map(|layer| layer.hot.len()).collect();
    assert_eq!((sizes, index.vram_capacity), (vec![0, 512, 256, 100], 123_456_789));
    index.check_model(&[512; 4]).unwrap();
    for (n_ff, expected) in [
        (&[512; 3][..], "index of 4 layers, the model has 3"),
        (&[512, 512, 256, 512], "layer 2: the index has 512"),
    ] {
        let e = index.check_model(n_ff).unwrap_err().to_string();
        assert!(e.contains(expected), "{e}");
    }
}

/// The file that the solver makes of the fixture's counts, with the bytes that all of upstream's have.
fn check(capacity: u64, threshold: u64, name: &str) {
    let layers: Vec<_> = counts().into_iter().map(|counts| Counts::new(counts).unwrap()).collect();
    let request = ActivationRequest { batch: UPSTREAM_BATCH, capacity, threshold };
    let neurons = most_activations(&layers, request).unwrap();
    let upstream = NeuronIndex::parse(&read(&format!("split/llama.{name}.gpuidx"))).unwrap();
    let found: Vec<_> = upstream.layers.iter().map(|layer| layer.hot.len()).collect();
    assert_eq!(neurons, found, "{name}");

    for ((counts, k), layer) in layers.iter().zip(neurons).zip(&upstream.layers) {
        let ours = LayerIndex { n_ff: counts.as_slice().len(), hot: counts.hottest(k) };
        // Upstream leaves open which of equal neurons it takes: the counts must be the same.
        let taken = |layer: &LayerIndex| {
            let mut taken: Vec<_> = layer.hot.iter().map(|&i| counts.as_slice()[i as usize]).collect();
            taken.sort_by(f64::total_cmp);
            taken
        };
        assert_eq!(taken(&ours), taken(layer), "{name}");
    }
}

#[test]
fn the_solver_takes_as_many_neurons_of_each_layer_as_upstreams() {
    check(256, 0, "capacity-256");
    check(768, 0, "capacity-768");
    check(768, 512, "capacity-768-threshold-512");
    check(2048, 0, "capacity-2048");
}
