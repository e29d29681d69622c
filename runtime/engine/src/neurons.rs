//! Which neurons of sparse networks are on a device with too little memory for all, and which on the CPU: the hottest ones on
//! the device, as many as there is room for beside all that is not neurons (PowerInfer, arXiv 2312.12456).

mod adaptation;
mod dividing;
mod limit;
mod rates;
mod source;
mod time;

use adaptation::Sizes;
pub(crate) use adaptation::{Adaptation, Swap};
pub(crate) use dividing::Dividing;
pub use rates::Rate;
pub use source::{counts_folder, index_beside};
pub use time::NeuronTimes;

use crate::error::Result;
use crate::memory;
use crate::options::EngineOptions;
use llmrt_graph::Graph;
use llmrt_graph::rows::{Network, NeuronSplit};
use llmrt_host::Device;
use llmrt_host::load::ModelFiles;
use llmrt_models::Model;
use llmrt_sparse::Counts;
use llmrt_sparse::solve::{ActivationRequest, UPSTREAM_BATCH, most_activations};
use source::Source;
use std::sync::Arc;

/// How neurons are divided between the first device and the CPU.
#[derive(Clone, Debug, Default)]
pub struct NeuronOptions {
    /// Bytes of the first device that may be used; `None`: what is free but for 256 MiB.
    pub vram_budget: Option<u64>,
    /// What becomes of the index beside the model.
    pub index: IndexUse,
    /// Choose the neurons with which a token takes the least time, by these rates of the devices, the CPU's last ([`rates`]).
    pub rates: Option<Arc<[Rate]>>,
    /// The neurons of each device, by the numbers of the devices, instead of all that.
    pub split: Option<Arc<NeuronSplit>>,
    /// Lets neurons change places between steps, so that devices have those that are active: bytes of weights that a step may
    /// write, on average.
    pub adapt: Option<u64>,
}

/// What becomes of the splits of `MODEL.sparse.gguf` and of `MODEL.generated.gpuidx`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexUse {
    /// One for these devices counts, if it fits.
    #[default]
    Saved,
    /// None counts: neurons are chosen again.
    Renewed,
    /// Neurons are not divided.
    Off,
}

/// Why neurons are not divided, or the first device has none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Undivided {
    /// The kind of reason.
    pub cause: UndividedCause,
    /// The reason in words.
    pub reason: String,
}

/// Kinds of reasons that neurons are not divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndividedCause {
    /// The model or an option rules it out.
    Whole,
    /// All fit into the first device.
    AllFit,
    /// The first device has no room for any, or is not used for lack of memory. Others may have some.
    NoRoom,
    /// A file beside the model cannot be used.
    File,
}

impl Undivided {
    pub(crate) fn new(cause: UndividedCause, reason: impl Into<String>) -> Undivided {
        Undivided { cause, reason: reason.into() }
    }
}

/// How fast devices are, the CPU last, measured on matrices of a model, which are loaded for it.
pub fn rates(devices: &[Arc<Device>], files: &Arc<ModelFiles>, options: &EngineOptions) -> Result<Vec<Rate>> {
    let (model, _) = memory::model(devices, files, options)?;
    let step = model.whole_graph(&options.largest_shape(model.spec()))?;
    rates::measure(&step, devices, files, options.n_threads)
}

/// What divided neurons are predicted to take of the time of a token, by the rates of the devices, which are those of the division.
pub fn times(
    devices: &[Arc<Device>],
    files: &ModelFiles,
    options: &EngineOptions,
    neurons: &NeuronSplit,
    rates: &[Rate],
) -> Result<NeuronTimes> {
    let (model, _) = memory::model(devices, files, options)?;
    let (networks, shares) = known(&model, files, options)?;
    Ok(time::predict(&networks, &shares, neurons, rates))
}

/// The sparse networks of a model, and by neuron the share of tokens in which it is active, if counts are beside the model.
fn known(
    model: &Model,
    files: &ModelFiles,
    options: &EngineOptions,
) -> Result<(Vec<Network>, Vec<Vec<f32>>)> {
    let graph = model.whole_graph(&options.largest_shape(model.spec()))?;
    let networks = sparse_networks(&graph);
    let mut source = Source::new(files, &options.neurons);
    // Where the counts are not usable, a note has the reason already.
    let shares = source.counts(&networks).ok().flatten().map(source::Counted::shares).unwrap_or_default();
    Ok((networks, shares))
}

/// How active the neurons of a model are at first, by the counts beside it, and where.
pub(crate) fn adaptation(
    model: &Model,
    files: &ModelFiles,
    options: &EngineOptions,
    neurons: &NeuronSplit,
    limit: u64,
) -> Result<Adaptation> {
    let (networks, shares) = known(model, files, options)?;
    let layers = || networks.iter().map(|network| network.layer);
    let sizes = |network: &Network| Sizes {
        block: network.block.max(1) as usize,
        skipped_bytes: (network.bytes - network.dense_bytes) as f32 / network.n_neurons.max(1) as f32,
    };
    let sizes = layers().zip(networks.iter().map(sizes)).collect();
    Ok(Adaptation::new(neurons, &sizes, &layers().zip(shares).collect(), limit))
}

/// Bytes of so many neurons of a network, rounded up.
fn bytes_of(network: &Network, n: usize) -> u64 {
    (u128::from(network.bytes) * n as u128).div_ceil(u128::from(network.n_neurons.max(1))) as u64
}

/// The most activations that there is room for; whole blocks where a network's last matrix requires them.
fn hottest(networks: &[Network], counts: &[Counts], room: u64) -> Vec<Vec<u32>> {
    let largest = networks.iter().map(|network| bytes_of(network, 1)).max().unwrap_or(1).max(1);
    // As units: blocks of neurons, counted as one.
    let block = networks.iter().map(|network| network.block).max().unwrap_or(1).max(1);
    let sums: Vec<Counts> = counts.iter().map(|counts| sums(counts, block as usize)).collect();
    let request = ActivationRequest {
        batch: (UPSTREAM_BATCH as u64 / block).max(1) as usize,
        capacity: room / largest / block,
        threshold: 0,
    };
    let mut chosen = most_activations(&sums, request).unwrap_or_else(|_| vec![0; sums.len()]);
    // Where there is room left, what never fired goes along, so that the CPU has no part in those layers.
    let mut left = (request.capacity as usize).saturating_sub(chosen.iter().sum());
    for (k, sums) in chosen.iter_mut().zip(&sums) {
        let more = left.min(sums.as_slice().len() - *k);
        (*k, left) = (*k + more, left - more);
    }
    let neurons = |((sums, k), network): ((&Counts, usize), &Network)| {
        neurons_of(&sums.hottest(k), block as u32, network)
    };
    sums.iter().zip(chosen).zip(networks).map(neurons).collect()
}

/// The neurons of some blocks of a network, whose last block may be shorter.
fn neurons_of(blocks: &[u32], block: u32, network: &Network) -> Vec<u32> {
    let of_block = |i: &u32| i * block..((i + 1) * block).min(network.n_neurons as u32);
    blocks.iter().flat_map(of_block).collect()
}

/// The networks of a graph most of whose neurons give zeros.
fn sparse_networks(g: &Graph) -> Vec<Network> {
    g.networks().into_iter().filter(|network| network.is_sparse).collect()
}

/// The same share of each network: its first neurons, in whole blocks.
fn alike(networks: &[Network], room: u64) -> Vec<Vec<u32>> {
    let all: u64 = networks.iter().map(|network| network.bytes).sum();
    let first = |network: &Network| {
        let share = u128::from(network.n_neurons) * u128::from(room.min(all)) / u128::from(all.max(1));
        let n = share as u64 / network.block.max(1) * network.block.max(1);
        (0..n as u32).collect()
    };
    networks.iter().map(first).collect()
}

/// Counts of blocks of neurons.
fn sums(counts: &Counts, block: usize) -> Counts {
    let sums = counts.as_slice().chunks(block).map(|block| block.iter().sum()).collect();
    // Sums of finite numbers of at least 0 are such numbers, but for those that overflow.
    Counts::new(sums).unwrap_or_else(|_| counts.clone())
}

/// The split that gives each device but the last its neurons, by network, and the last one all others.
fn split(networks: &[Network], hot: &[Vec<Vec<u32>>]) -> NeuronSplit {
    let of_layer = |(i, network): (usize, &Network)| {
        let mut is_cold = vec![true; network.n_neurons as usize];
        hot.iter().flat_map(|of_device| &of_device[i]).for_each(|&id| is_cold[id as usize] = false);
        let cold: Arc<[u32]> = (0..network.n_neurons as u32).filter(|&id| is_cold[id as usize]).collect();
        let lists = hot.iter().map(|of_device| Arc::from(&of_device[i][..]));
        (network.layer, lists.chain([cold]).collect())
    };
    NeuronSplit { layers: networks.iter().enumerate().map(of_layer).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(n_neurons: u64, block: u64, bytes: u64) -> Network {
        Network { layer: 0, n_neurons, block, bytes, dense_bytes: 0, weights: Vec::new(), is_sparse: true }
    }

    fn counts(counts: &[u32]) -> Counts {
        Counts::new(counts.iter().map(|&n| n.into()).collect()).unwrap()
    }

    #[test]
    fn what_is_most_active_goes_to_the_device_in_whole_blocks() {
        let of = |block, room| {
            let networks = [network(1024, block, 10 * 1024)];
            let active: Vec<u32> =
                (0..1024).map(|i| if i / 256 == 2 || i % 4 == 1 { 9 } else { 1 }).collect();
            hottest(&networks, &[counts(&active)], room).remove(0)
        };
        assert!(of(256, 2559).is_empty(), "room for less than a block");
        assert_eq!(of(1, 2559).len(), 255, "less than a group fills what is left");
        let third = 512..768;
        assert_eq!(of(256, 2560), third.clone().collect::<Vec<_>>());
        assert!(of(1, 2560).iter().all(|&i| third.contains(&i) || i % 4 == 1));
        assert_eq!(of(1, 1 << 20).len(), 1024);
    }

    #[test]
    fn without_counts_each_network_gives_the_same_share() {
        let networks = [network(1024, 256, 10_240), network(64, 1, 640)];
        let of = |room| alike(&networks, room).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!([of(0), of(5440), of(8000), of(1 << 40)], [[0, 0], [512, 32], [512, 47], [1024, 64]]);
    }

    #[test]
    fn the_last_device_has_what_no_other_has() {
        let networks = [network(6, 1, 60), Network { layer: 4, ..network(3, 1, 60) }];
        let hot = [vec![vec![1, 4], vec![]], vec![vec![0], vec![]]];
        let split = split(&networks, &hot);
        let lists = |layer| split.layers[&layer].iter().map(|list| list.to_vec()).collect::<Vec<_>>();
        assert_eq!(lists(0), [vec![1, 4], vec![0], vec![2, 3, 5]]);
        assert_eq!(lists(4), [vec![], vec![], vec![0, 1, 2]]);
    }
}
