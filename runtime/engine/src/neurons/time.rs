//! The time that neurons take, by measured rates of devices: what it is for a division, and the division with the least.
//!
//! In a layer a device reads all of its neurons, the CPU those that are active, at the same time ([`llmrt_sparse::solve`]), and of all
//! neurons what decides whether they are: gates, or the last matrix of predictors.

use super::rates::Rate;
use super::{bytes_of, neurons_of};
use crate::error::{Error, Result};
use llmrt_graph::rows::{Network, NeuronSplit};
use llmrt_sparse::Counts;
use llmrt_sparse::solve::{Device, LayerCost, TimeRequest, UPSTREAM_BATCH, least_time};

/// What divided neurons take of the time of a token, predicted.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NeuronTimes {
    /// Seconds of each device for its own neurons, of all layers.
    pub by_device: Vec<f64>,
    /// Seconds of all layers, in each of which the slowest device counts, and what it costs to divide them.
    pub all: f64,
    /// The measured rates.
    pub rates: Vec<Rate>,
}

/// What a division takes. Without counts (`shares`: by network and neuron, of tokens), all neurons of the CPU count as active.
pub(super) fn predict(
    networks: &[Network],
    shares: &[Vec<f32>],
    split: &NeuronSplit,
    rates: &[Rate],
) -> NeuronTimes {
    let mut times = NeuronTimes { by_device: vec![0.0; rates.len()], all: 0.0, rates: rates.to_vec() };
    for (i, network) in networks.iter().enumerate() {
        let Some(lists) = split.layers.get(&network.layer) else { continue };
        let (mut slowest, mut cost) = (0.0f64, 0.0);
        for (d, list) in lists.iter().enumerate().filter(|(_, list)| !list.is_empty()) {
            let share = |id: &u32| shares.get(i).and_then(|shares| shares.get(*id as usize)).copied();
            let n = match d + 1 == lists.len() {
                true => list.iter().map(|id| read(network, share(id).unwrap_or(1.0))).sum(),
                false => list.len() as f64,
            };
            let of_one = network.bytes as f64 / network.n_neurons.max(1) as f64;
            let seconds = n * of_one / rates[d].bytes_per_second;
            times.by_device[d] += seconds;
            slowest = slowest.max(seconds);
            cost += rates[d].seconds_per_layer;
        }
        times.all += slowest + cost;
    }
    times
}

/// The neurons of each device but the CPU, by device and network, with which a token takes the least time. `shares` are of tokens in
/// which neurons are active.
pub(super) fn least(
    networks: &[Network],
    shares: &[Vec<f32>],
    room: &[u64],
    rates: &[Rate],
) -> Result<Vec<Vec<Vec<u32>>>> {
    let block = networks.iter().map(|network| network.block).max().unwrap_or(1).max(1) as usize;
    let means = |(network, shares): (&Network, &Vec<f32>)| means(network, shares, block);
    let blocks: Vec<Counts> = networks.iter().zip(shares).map(means).collect::<Result<_>>()?;
    let cost =
        |(network, counts)| LayerCost { counts, n_tokens: 1.0, bytes: bytes_of(network, block).max(1) };
    let layers: Vec<_> = networks.iter().zip(&blocks).map(cost).collect();
    let device = |(rate, &capacity): (&Rate, &u64)| Device {
        rate: rate.bytes_per_second,
        cost: rate.seconds_per_layer,
        capacity,
    };
    let devices: Vec<_> = rates.iter().zip(room).map(device).collect();
    let cpu_rate = rates.last().map_or(1.0, |rate| rate.bytes_per_second);
    let batch = (UPSTREAM_BATCH / block).max(1);
    let plan = least_time(TimeRequest { layers: &layers, cpu_rate, devices: &devices, batch });
    let plan = plan.map_err(failed)?;
    let of_device = |d: usize| {
        let of_network = |(i, blocks): (usize, &Counts)| {
            let before: usize = plan.neurons[i][..d].iter().sum();
            let mut chosen = blocks.order().split_off(before);
            chosen.truncate(plan.neurons[i][d]);
            chosen.sort_unstable();
            neurons_of(&chosen, block as u32, &networks[i])
        };
        blocks.iter().enumerate().map(of_network).collect()
    };
    Ok((0..devices.len()).map(of_device).collect())
}

/// How much of a neuron is read by a device that skips those that are not active, which it is in this share of tokens.
fn read(network: &Network, share: f32) -> f64 {
    let dense = network.dense_bytes as f64 / network.bytes.max(1) as f64;
    dense + (1.0 - dense) * f64::from(share)
}

/// How much is read of the neurons of a block, on average.
fn means(network: &Network, shares: &[f32], block: usize) -> Result<Counts> {
    let mean = |block: &[f32]| block.iter().map(|&n| read(network, n)).sum::<f64>() / block.len() as f64;
    Counts::new(shares.chunks(block).map(mean).collect()).map_err(failed)
}

fn failed(e: llmrt_sparse::Error) -> Error {
    Error::SparseFile { path: "division by rates of devices".into(), problem: e.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn network(layer: usize, block: u64) -> Network {
        let (n_neurons, bytes, weights) = (1024, 1024 * 100, Vec::new());
        Network { layer, n_neurons, block, bytes, dense_bytes: 0, weights, is_sparse: true }
    }

    const FAST: Rate = Rate { bytes_per_second: 1e6, seconds_per_layer: 0.001 };
    const CPU: Rate = Rate { bytes_per_second: 1e5, seconds_per_layer: 0.0 };

    #[test]
    fn the_slowest_device_of_a_layer_counts_and_the_cpu_reads_what_is_active() {
        let shares = [vec![0.5; 1024], vec![0.25; 1024]];
        let lists = |k: u32| vec![(0..k).collect::<Arc<[u32]>>(), (k..1024).collect()];
        let split = NeuronSplit { layers: BTreeMap::from([(0, lists(1000)), (1, lists(0))]) };
        let times = predict(&[network(0, 1), network(1, 1)], &shares, &split, &[FAST, CPU]);
        // 100 000 bytes at a tenth of a second, beside 1200; then 25 600 on the CPU alone.
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(times.by_device[0], 0.1) && near(times.by_device[1], 0.012 + 0.256), "{times:?}");
        assert!(near(times.all, 0.1 + 0.001 + 0.256), "{times:?}");
        // A quarter of each neuron is a gate; of the rest half is read of the 24 of the first layer, and a quarter of the others.
        let gated = [0, 1].map(|layer| Network { dense_bytes: 1024 * 100 / 4, ..network(layer, 1) });
        let times = predict(&gated, &shares, &split, &[FAST, CPU]);
        assert!(near(times.by_device[1], 0.024 * 0.625 + 1.024 * 0.4375), "{times:?}");
    }

    #[test]
    fn a_division_by_time_is_no_slower_than_others_and_has_whole_blocks() {
        let networks = [network(0, 32), network(1, 32)];
        let shares: Vec<Vec<f32>> = (0..2)
            .map(|i| (0..1024).map(|id| 1.0 / (1 + (id * 7 + i * 300) % 1024) as f32).collect())
            .collect();
        let rates = [FAST, CPU];
        let time = |hot: &[Vec<u32>]| {
            let split = super::super::split(&networks, &[hot.to_vec()]);
            predict(&networks, &shares, &split, &rates).all
        };
        for room in [0, 20_000, 90_000, 300_000] {
            let hot = least(&networks, &shares, &[room], &rates).unwrap().remove(0);
            let n: usize = hot.iter().map(Vec::len).sum();
            assert!(n as u64 * 100 <= room);
            for list in &hot {
                assert!(list.chunks(32).all(|b| b[0] % 32 == 0 && b.len() == 32 && b[31] == b[0] + 31));
            }
            let counts: Vec<Counts> =
                shares.iter().map(|s| Counts::new(s.iter().map(|&n| n.into()).collect()).unwrap()).collect();
            let most_active = super::super::hottest(&networks, &counts, room);
            assert!(time(&hot) <= time(&most_active) + 1e-9, "{room}");
        }
    }
}
