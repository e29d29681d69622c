//! Which neurons of sparse networks are on a device with too little memory for all, and which on the CPU: the hottest ones on
//! the device, as many as there is room for beside the dense parts and the caches (PowerInfer, arXiv 2312.12456).

mod dividing;

pub(crate) use dividing::Dividing;

use crate::error::{Error, Result};
use llmrt_graph::rows::{Network, NeuronSplit};
use llmrt_host::load::ModelFiles;
use llmrt_sparse::index::NeuronIndex;
use llmrt_sparse::solve::{ActivationRequest, UPSTREAM_BATCH, most_activations};
use llmrt_sparse::stats::{SparseFile, path_beside};
use llmrt_sparse::{Counts, ModelId, folder};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How neurons are divided between the first device and the CPU.
#[derive(Clone, Debug, Default)]
pub struct NeuronOptions {
    /// Bytes of the first device that may be used; `None`: what is free but for 256 MiB.
    pub vram_budget: Option<u64>,
    /// What becomes of the index beside the model.
    pub index: IndexUse,
    /// The neurons of each device, by the numbers of the devices, instead of all that.
    pub split: Option<Arc<NeuronSplit>>,
}

/// What becomes of `MODEL.generated.gpuidx`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum IndexUse {
    /// It counts, if it fits.
    #[default]
    Saved,
    /// It does not count: neurons are chosen again.
    Renewed,
    /// Neurons are not divided.
    Off,
}

/// Beside a model: PowerInfer's counts.
const FOLDER: &str = "activation";

/// Left free by default, as PowerInfer leaves it.
const MARGIN: u64 = 256 << 20;

/// Whether there is something beside the model by which neurons can be chosen.
fn has_source(files: &ModelFiles, networks: &[Network], options: &NeuronOptions) -> Result<bool> {
    let Some(model) = files.files().next().map(|file| &file.path) else { return Ok(false) };
    let has_index = options.index == IndexUse::Saved && index_beside(model).exists();
    Ok(has_index || counts(files, model, networks)?.is_some())
}

/// The neurons that a device with room for `room` bytes of them gets, by layer as `networks` are; with a note for the user, if
/// there is one.
struct Hot {
    lists: Vec<Vec<u32>>,
    note: Option<String>,
}

/// Chooses them, by the index beside the model or else by counts of how often each was active.
/// `is_free` leaves out networks that are for one device anyway.
fn hot(
    files: &ModelFiles,
    all: &[Network],
    is_free: &[bool],
    room: u64,
    options: &NeuronOptions,
) -> Result<Hot> {
    let networks = &free(all.to_vec(), is_free)[..];
    let Some(model) = files.files().next().map(|file| file.path.clone()) else { return Ok(none(networks)) };
    let index = index_beside(&model);
    if options.index == IndexUse::Saved && index.exists() {
        let lists = free(of_index(&index, all)?, is_free);
        let used: u64 =
            networks.iter().zip(&lists).map(|(network, list)| bytes_of(network, list.len())).sum();
        if used <= room {
            return Ok(Hot { lists, note: None });
        }
    }
    let Some(counts) = counts(files, &model, all)?.map(|counts| free(counts, is_free)) else {
        let problem = "there are no counts of active neurons beside the model, so all neurons are on the CPU: count with \
                       `llmrt sparse profile`";
        return Ok(Hot { note: Some(problem.into()), ..none(networks) });
    };
    if counts.iter().all(|counts| counts.total() == 0.0) {
        let problem = "all counts of active neurons are 0, so all neurons are on the CPU";
        return Ok(Hot { note: Some(problem.into()), ..none(networks) });
    }
    Ok(Hot { lists: hottest(networks, &counts, room), note: None })
}

fn free<T>(all: Vec<T>, is_free: &[bool]) -> Vec<T> {
    all.into_iter().zip(is_free).filter(|(_, free)| **free).map(|(one, _)| one).collect()
}

fn none(networks: &[Network]) -> Hot {
    Hot { lists: vec![Vec::new(); networks.len()], note: None }
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
        let of_block = |unit: u32| {
            let first = unit * block as u32;
            first..(first + block as u32).min(network.n_neurons as u32)
        };
        sums.hottest(k).into_iter().flat_map(of_block).collect()
    };
    sums.iter().zip(chosen).zip(networks).map(neurons).collect()
}

/// Counts of blocks of neurons.
fn sums(counts: &Counts, block: usize) -> Counts {
    let sums = counts.as_slice().chunks(block).map(|block| block.iter().sum()).collect();
    // Sums of finite numbers of at least 0 are such numbers, but for those that overflow.
    Counts::new(sums).unwrap_or_else(|_| counts.clone())
}

/// The neurons that an index has on the device.
fn of_index(path: &Path, networks: &[Network]) -> Result<Vec<Vec<u32>>> {
    let failed = |problem: String| Error::SparseFile { path: path.display().to_string(), problem };
    let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let index = NeuronIndex::parse(&bytes).map_err(|e| failed(e.to_string()))?;
    let n_ff: Vec<usize> = networks.iter().map(|network| network.n_neurons as usize).collect();
    index.check_model(&n_ff).map_err(|e| failed(e.to_string()))?;
    let lists = index.layers.into_iter().zip(networks).map(|(layer, network)| {
        let block = network.block.max(1) as usize;
        // Whole blocks, where a block is needed: those of which most are in the index.
        let mut in_block = vec![0usize; layer.n_ff.div_ceil(block)];
        layer.hot.iter().for_each(|&id| in_block[id as usize / block] += 1);
        let most = in_block.iter().enumerate().filter(|(_, n)| **n * 2 > block);
        most.flat_map(|(i, _)| (i * block) as u32..((i + 1) * block).min(layer.n_ff) as u32).collect()
    });
    Ok(lists.collect())
}

/// Counts beside a model: of its file of statistics, or of PowerInfer's folder `activation`.
fn counts(files: &ModelFiles, model: &Path, networks: &[Network]) -> Result<Option<Vec<Counts>>> {
    let (stats, folder) = (path_beside(model), model.with_file_name(FOLDER));
    let (source, counts) = if stats.exists() {
        let counts = stats_of(files, model)?.counts;
        if counts.is_empty() {
            return Ok(None);
        }
        (stats, counts)
    } else if folder.is_dir() {
        (folder.clone(), of_folder(&folder)?)
    } else {
        return Ok(None);
    };
    let failed = |problem: String| Error::SparseFile { path: source.display().to_string(), problem };
    let n_ff: Vec<usize> = networks.iter().map(|network| network.n_neurons as usize).collect();
    llmrt_sparse::stats::check_counts(&counts, &n_ff).map_err(|e| failed(e.to_string()))?;
    Ok(Some(counts))
}

/// The files `activation_N.pt` of a folder, by number.
fn of_folder(dir: &Path) -> Result<Vec<Counts>> {
    let failed =
        |path: &Path, problem: String| Error::SparseFile { path: path.display().to_string(), problem };
    let entries = std::fs::read_dir(dir).map_err(|e| failed(dir, e.to_string()))?;
    let names: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let found = folder::by_number(names.iter().map(String::as_str), "activation_", ".pt");
    let read = |name: &str| {
        let path = dir.join(name);
        let bytes = std::fs::read(&path).map_err(|e| failed(&path, e.to_string()))?;
        Counts::from_pt(&bytes).map_err(|e| failed(&path, e.to_string()))
    };
    found.map_err(|e| failed(dir, e.to_string()))?.into_iter().map(read).collect()
}

/// The statistics beside a model, which must be of this model.
pub(crate) fn stats_of(files: &ModelFiles, model: &Path) -> Result<SparseFile> {
    let path = path_beside(model);
    let failed = |problem: String| Error::SparseFile { path: path.display().to_string(), problem };
    let bytes = std::fs::read(&path).map_err(|e| failed(e.to_string()))?;
    let file = SparseFile::parse(&bytes).map_err(|e| failed(e.to_string()))?;
    let name = model.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let checksum = llmrt_sparse::digest(&files.model.metadata, &files.model.tensors, |t, at, bytes| {
        files.read(t, at, bytes)
    })?;
    file.check_model(&ModelId { name, checksum }).map_err(|e| failed(e.to_string()))?;
    Ok(file)
}

/// Where PowerInfer's index of a model is: `x.gguf.generated.gpuidx` beside `x.gguf`.
pub fn index_beside(model: &Path) -> PathBuf {
    let mut name = model.as_os_str().to_os_string();
    name.push(".generated.gpuidx");
    name.into()
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
        Network { layer: 0, n_neurons, block, bytes, weights: Vec::new(), is_sparse: true }
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
    fn the_last_device_has_what_no_other_has() {
        let networks = [network(6, 1, 60), Network { layer: 4, ..network(3, 1, 60) }];
        let hot = [vec![vec![1, 4], vec![]], vec![vec![0], vec![]]];
        let split = split(&networks, &hot);
        let lists = |layer| split.layers[&layer].iter().map(|list| list.to_vec()).collect::<Vec<_>>();
        assert_eq!(lists(0), [vec![1, 4], vec![0], vec![2, 3, 5]]);
        assert_eq!(lists(4), [vec![], vec![], vec![0, 1, 2]]);
    }
}
