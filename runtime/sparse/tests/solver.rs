//! The solver against every choice there is.

use llmrt_sparse::Counts;
use llmrt_sparse::solve::{
    ActivationRequest, Device, LayerCost, Plan, TimeRequest, least_time, most_activations,
};

/// Numbers that repeat for a seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    /// Counts of a layer; small ones, so that many are equal and some 0.
    fn counts(&mut self, n: usize) -> Counts {
        Counts::new((0..n).map(|_| self.below(5) as f64).collect()).unwrap()
    }
}

/// All lists with a number from 0 to `n` (inclusive) for each of these.
fn all(n: &[usize]) -> Vec<Vec<usize>> {
    n.iter().fold(vec![Vec::new()], |lists, &n| {
        let longer = |list: Vec<usize>| (0..=n).map(move |i| [&list[..], &[i]].concat());
        lists.into_iter().flat_map(longer).collect()
    })
}

fn taken(counts: &Counts, k: usize) -> f64 {
    counts.sorted()[..k].iter().sum()
}

#[test]
fn activations_are_the_most_of_all_choices() {
    let mut rng = Rng(1);
    for (n_layers, n_groups) in all(&[4, 6]).into_iter().map(|n| (n[0], n[1])) {
        for threshold in [0, 0, 1, 2, 3, 7] {
            let layers: Vec<_> = (0..n_layers).map(|_| rng.counts(n_groups)).collect();
            let capacity = rng.below(1 + (n_layers * n_groups) as u64 * 5 / 4);
            let request = ActivationRequest { batch: 1, capacity, threshold };
            let found = most_activations(&layers, request).unwrap();

            let fits = |k: &Vec<usize>| {
                let is_enough = k.iter().all(|&k| k == 0 || k as u64 >= threshold);
                is_enough && k.iter().sum::<usize>() as u64 <= capacity
            };
            let value = |k: &Vec<usize>| k.iter().zip(&layers).map(|(&k, c)| taken(c, k)).sum::<f64>();
            // Most activations, then fewest groups, then most in the lowest layers.
            let rank = |k: &Vec<usize>| (value(k) as u64, usize::MAX - k.iter().sum::<usize>(), k.clone());
            let best = all(&vec![n_groups; n_layers]).into_iter().filter(fits).max_by_key(rank);
            assert_eq!(Some(found), best, "{layers:?} {request:?}");
        }
    }
}

#[test]
fn a_last_group_may_be_short_and_takes_as_much_as_others() {
    let counts = Counts::new((0..300).map(|i| f64::from(i < 280)).collect()).unwrap();
    let check = |capacity, expected: &[usize]| {
        let request = ActivationRequest { batch: 256, capacity, threshold: 0 };
        assert_eq!(most_activations(&[counts.clone(), counts.clone()], request).unwrap(), expected);
    };
    check(255, &[0, 0]);
    check(256, &[256, 0]);
    check(767, &[256, 256]);
    check(768, &[300, 256]);
    check(9999, &[300, 300]);
}

#[test]
fn counts_of_zero_leave_everything_on_the_cpu() {
    let zeros = Counts::new(vec![0.0; 512]).unwrap();
    let request = ActivationRequest { batch: 256, capacity: 1 << 40, threshold: 0 };
    assert_eq!(most_activations(&[zeros.clone(), zeros], request).unwrap(), [0, 0]);
}

/// The time of a layer whose devices have these many neurons.
fn seconds(request: &TimeRequest<'_>, layer: &LayerCost<'_>, neurons: &[usize]) -> f64 {
    let rest: f64 = layer.counts.sorted()[neurons.iter().sum()..].iter().sum();
    let cpu = rest / layer.n_tokens * layer.bytes as f64 / request.cpu_rate;
    let busy = neurons.iter().zip(request.devices).filter(|(n, _)| **n > 0);
    let slowest = busy.clone().map(|(&n, d)| n as f64 * layer.bytes as f64 / d.rate).fold(cpu, f64::max);
    slowest + busy.map(|(_, d)| d.cost).sum::<f64>()
}

fn total(plan: &Plan) -> f64 {
    plan.seconds.iter().sum()
}

/// Random layers of up to `n_layers` × `n_groups` and these devices: the least time of all divisions.
fn check(n_layers: usize, n_groups: usize, devices: &[(f64, f64)], seed: u64) {
    let mut rng = Rng(seed);
    let counts: Vec<_> = (0..n_layers).map(|_| rng.counts(n_groups)).collect();
    let sizes = [10, 10, 15, 10];
    let layers: Vec<_> =
        counts.iter().zip(sizes).map(|(counts, bytes)| LayerCost { counts, n_tokens: 5.0, bytes }).collect();
    let devices: Vec<_> = devices
        .iter()
        .map(|&(rate, cost)| Device {
            rate,
            cost,
            capacity: rng.below(1 + 12 * (n_layers * n_groups) as u64),
        })
        .collect();
    let request = TimeRequest { layers: &layers, cpu_rate: 7.0, devices: &devices, batch: 1 };
    let plan = least_time(request).unwrap();
    assert_eq!(plan.batch, 1);

    let n_devices = devices.len();
    let is_division = |neurons: &Vec<usize>| {
        let by_layer: Vec<_> = neurons.chunks_exact(n_devices.max(1)).collect();
        let fits = (0..n_devices).all(|d| {
            let bytes = by_layer.iter().zip(&layers).map(|(n, layer)| n[d] as u64 * layer.bytes).sum::<u64>();
            bytes <= devices[d].capacity
        });
        fits && by_layer.iter().all(|n| n.iter().sum::<usize>() <= n_groups)
    };
    let of = |neurons: &Vec<usize>| {
        let by_layer = neurons.chunks_exact(n_devices.max(1));
        by_layer.zip(&layers).map(|(n, layer)| seconds(&request, layer, n)).sum::<f64>()
    };
    let all = all(&vec![n_groups; n_layers * n_devices]).into_iter().filter(is_division);
    let least = all.map(|neurons| of(&neurons)).fold(f64::INFINITY, f64::min);
    if n_devices > 0 && n_layers > 0 {
        assert!((total(&plan) - least).abs() < 1e-9, "{plan:?}: {} for {least}", total(&plan));
    }
    let found: f64 = plan.neurons.iter().zip(&layers).map(|(n, layer)| seconds(&request, layer, n)).sum();
    assert!((total(&plan) - found).abs() < 1e-9, "{plan:?}");
    assert!(is_division(&plan.neurons.concat()));
}

#[test]
fn time_is_the_least_of_all_divisions() {
    for seed in 0..12 {
        for cost in [0.0, 0.7, 3.0] {
            for n_layers in 0..=4 {
                check(n_layers, 6, &[(30.0, cost)], seed);
                check(n_layers, 3, &[(3.0, cost)], seed);
            }
            check(2, 4, &[(30.0, cost), (20.0, 0.1)], seed);
            check(3, 3, &[(8.0, cost), (20.0, cost)], seed);
            check(1, 4, &[(8.0, cost), (20.0, 0.2), (5.0, 0.0)], seed);
            check(2, 6, &[], seed);
        }
    }
}

#[test]
fn more_memory_never_takes_longer() {
    let mut rng = Rng(7);
    let counts: Vec<_> = (0..5).map(|_| rng.counts(2000)).collect();
    let layers: Vec<_> =
        counts.iter().map(|counts| LayerCost { counts, n_tokens: 4.0, bytes: 100 }).collect();
    let at = |capacity| {
        let devices = [Device { rate: 9e9, cost: 1e-6, capacity }];
        let request = TimeRequest { layers: &layers, cpu_rate: 1e9, devices: &devices, batch: 64 };
        total(&least_time(request).unwrap())
    };
    let times: Vec<f64> = (0..=50).map(|i| at(i * 20_000)).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    assert!(times[50] < times[0] / 2.0);
}

#[test]
fn a_large_problem_is_solved_in_larger_groups() {
    let mut rng = Rng(3);
    let counts: Vec<_> = (0..80).map(|_| rng.counts(2048)).collect();
    let layers: Vec<_> = counts.iter().map(|counts| LayerCost { counts, n_tokens: 4.0, bytes: 64 }).collect();
    let device = Device { rate: 1e9, cost: 0.0, capacity: 80 * 1024 * 64 };
    let devices = [device, device];
    let plan =
        least_time(TimeRequest { layers: &layers, cpu_rate: 1e8, devices: &devices, batch: 64 }).unwrap();
    assert!(plan.batch > 64 && plan.batch <= 1024, "{}", plan.batch);
    for d in 0..2 {
        assert!(plan.neurons.iter().map(|n| n[d]).sum::<usize>() <= 80 * 1024);
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let counts = Counts::new(vec![1.0; 8]).unwrap();
    let good = LayerCost { counts: &counts, n_tokens: 1.0, bytes: 8 };
    let device = Device { rate: 1.0, cost: 0.0, capacity: 64 };
    let refused = |layer: LayerCost<'_>, device: Device, cpu_rate, batch, expected: &str| {
        let request = TimeRequest { layers: &[layer], cpu_rate, devices: &[device], batch };
        let e = least_time(request).unwrap_err().to_string();
        assert!(e.contains(expected), "{e}");
    };
    refused(good, device, 0.0, 1, "a rate is 0");
    refused(good, device, f64::NAN, 1, "a rate is NaN");
    refused(good, Device { cost: -1.0, ..device }, 1.0, 1, "cost is -1");
    refused(LayerCost { n_tokens: 0.0, ..good }, device, 1.0, 1, "number of tokens");
    refused(LayerCost { bytes: 0, ..good }, device, 1.0, 1, "size is 0");
    refused(good, device, 1.0, 0, "size of a group");
}
