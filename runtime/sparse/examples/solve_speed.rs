//! How long the solver takes for 80 layers of 28 672 neurons: `cargo run --release -p llmrt-sparse --example solve_speed`.

use llmrt_sparse::Counts;
use llmrt_sparse::solve::{ActivationRequest, Device, LayerCost, TimeRequest, least_time, most_activations};
use std::time::Instant;

const N_LAYERS: usize = 80;
const N_FF: usize = 28_672;

/// Counts of 10 000 tokens by a power law, in random order.
fn counts(seed: u64) -> Counts {
    let mut state = seed | 1;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / (1u64 << 31) as f64
    };
    let law = |share: f64| (1e4 * 0.02 * share.max(1e-6).powf(-0.8)).min(1e4).floor();
    Counts::new((0..N_FF).map(|_| law(random())).collect()).expect("numbers of at least 0")
}

fn main() {
    let counts: Vec<_> = (0..N_LAYERS as u64).map(|i| counts(i * 77 + 5)).collect();
    for (share, threshold) in [(4, 0), (2, 0), (1, 0), (2, 2048)] {
        let start = Instant::now();
        let capacity = (N_LAYERS * N_FF / share) as u64;
        let request = ActivationRequest { batch: 256, capacity, threshold };
        let neurons = most_activations(&counts, request).expect("a good request");
        let n: usize = neurons.iter().sum();
        println!("activations, 1/{share} fits, threshold {threshold}: {:.3?}, {n} neurons", start.elapsed());
    }
    let bytes = 13_824;
    let layers: Vec<_> = counts.iter().map(|counts| LayerCost { counts, n_tokens: 1e4, bytes }).collect();
    for (n_devices, cost) in [(1, 0.0), (1, 2e-5), (2, 2e-5)] {
        let capacity = bytes * (N_LAYERS * N_FF) as u64 / 4;
        let devices = vec![Device { rate: 8e11, cost, capacity }; n_devices];
        let start = Instant::now();
        let request = TimeRequest { layers: &layers, cpu_rate: 5e10, devices: &devices, batch: 256 };
        let plan = least_time(request).expect("a good request");
        let ms = plan.seconds.iter().sum::<f64>() * 1e3;
        println!(
            "time, {n_devices} devices, cost {cost}: {:.3?}, {ms:.2} ms a token, groups of {}",
            start.elapsed(),
            plan.batch
        );
    }
}
