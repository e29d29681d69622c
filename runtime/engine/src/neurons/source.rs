//! What neurons are chosen by, of what is beside a model: PowerInfer's index, and counts of how often each was active. Each is
//! read once, when it is needed.

use super::{IndexUse, NeuronOptions, alike, bytes_of, hottest, neurons_of};
use crate::error::{Error, Result};
use crate::memory::{gib, in_units};
use crate::sparse::stats_of;
use llmrt_graph::rows::Network;
use llmrt_host::load::ModelFiles;
use llmrt_sparse::index::{LayerIndex, NeuronIndex};
use llmrt_sparse::stats::{Split, check_counts, path_beside};
use llmrt_sparse::{Counts, folder};
use std::path::{Path, PathBuf};

/// Neurons by network.
pub(super) type Lists = Vec<Vec<u32>>;

/// What an index has on its device.
struct Indexed {
    /// Whole blocks, where a network requires them.
    lists: Lists,
    /// Whether these are not the neurons of the index.
    is_rounded: bool,
    /// How many the index has.
    n_neurons: usize,
}

/// Neurons of free networks that an index has on its device.
pub(super) struct OfIndex {
    pub lists: Lists,
    /// A note that they are not exactly those of the index.
    pub rounded: Option<String>,
}

/// How often each neuron was active.
pub(super) struct Counted {
    /// By network.
    pub counts: Vec<Counts>,
    /// Tokens that were counted over; 0: not known.
    n_tokens: u64,
}

impl Counted {
    /// By network and neuron, the share of tokens in which it was active; where their number is not known, of as many as the most
    /// active neuron needs.
    pub fn shares(&self) -> Vec<Vec<f32>> {
        let most = self.counts.iter().flat_map(|counts| counts.as_slice()).copied().fold(1.0, f64::max);
        let n_tokens = most.max(self.n_tokens as f64);
        let of_network = |counts: &Counts| counts.as_slice().iter().map(|n| (n / n_tokens) as f32).collect();
        self.counts.iter().map(of_network).collect()
    }
}

/// Neurons without a split or an index.
pub(super) struct Hot {
    pub lists: Lists,
    /// What they are chosen by, as the end of a note.
    pub by: &'static str,
    /// Why there are none, for the user.
    pub problem: Option<&'static str>,
}

/// What is beside a model.
pub(super) struct Source<'a> {
    files: &'a ModelFiles,
    /// Whether any neurons will do where nothing is known of them, since they change places later.
    takes_any: bool,
    /// Whether choices that were saved count: the index, and splits.
    takes_saved: bool,
    /// The index, if it is there and counts.
    index: Option<PathBuf>,
    of_index: Option<Indexed>,
    /// Of the file beside the model, if they count. Read with the counts.
    splits: Vec<Split>,
    /// The outer option: not read yet; the inner one: there are none.
    counts: Option<Option<Counted>>,
}

impl<'a> Source<'a> {
    /// Of these files. Reads nothing.
    pub fn new(files: &'a ModelFiles, options: &NeuronOptions) -> Source<'a> {
        let takes_saved = options.index == IndexUse::Saved && options.rates.is_none();
        let beside = files.files().next().map(|file| index_beside(&file.path));
        let index = beside.filter(|path| takes_saved && path.exists());
        let (takes_any, splits) = (options.adapt.is_some(), Vec::new());
        Source { files, takes_any, takes_saved, index, of_index: None, splits, counts: None }
    }

    /// Whether there is an index, a split or counts, or any neurons will do.
    pub fn is_there(&mut self, networks: &[Network]) -> Result<bool> {
        let is_there = self.takes_any || self.index.is_some();
        Ok(is_there || self.counts(networks)?.is_some() || !self.splits.is_empty())
    }

    /// The neurons of each of the named devices by free network, as a split of the file beside the model has them that was made for
    /// these devices; else, if there are splits, a note why none that fits into so many bytes of each is there.
    pub fn split(
        &mut self,
        networks: &[Network],
        is_free: &[bool],
        devices: &[&str],
        room: &[u64],
    ) -> Result<std::result::Result<Vec<Lists>, Option<String>>> {
        self.counts(networks)?;
        let Some(split) = self.splits.iter().find(|split| split.devices == devices) else {
            let others: Vec<_> = self.splits.iter().map(|split| split.devices.join(", ")).collect();
            let note = format!(
                "{}: it has no split for {}, only for {}: `llmrt sparse solve --measure` makes one",
                self.stats_path().display(),
                devices.join(", "),
                others.join("; for ")
            );
            return Ok(Err((!others.is_empty()).then_some(note)));
        };
        check_split(split, networks).map_err(|problem| self.failed_stats(problem))?;
        let of_device = |d: usize| -> Lists {
            let list = |of_layer: &Vec<u8>| {
                let ids = (0..).zip(of_layer);
                ids.filter(|(_, device)| usize::from(**device) == d + 1).map(|(id, _)| id).collect()
            };
            free(&split.device_of.iter().map(list).collect::<Lists>(), is_free)
        };
        let lists: Vec<Lists> = (0..devices.len()).map(of_device).collect();
        let free_networks = free(networks, is_free);
        let bytes = |lists: &Lists| -> u64 {
            free_networks.iter().zip(lists).map(|(network, list)| bytes_of(network, list.len())).sum()
        };
        let mut needs = devices.iter().zip(lists.iter().map(bytes)).zip(room);
        let Some(((device, bytes), room)) = needs.find(|((_, bytes), room)| bytes > room) else {
            return Ok(Ok(lists));
        };
        let why = format!(
            "its neurons take {} of {device}, which has room for {}: make another with `llmrt sparse solve --measure`",
            in_units(bytes),
            in_units(*room)
        );
        Ok(Err(Some(self.unused_note(devices, &why))))
    }

    /// A note that a split for these devices is not used, if there is one.
    pub fn unused(&mut self, networks: &[Network], devices: &[&str], why: &str) -> Option<String> {
        // Nothing depends on the file, so neither does a problem of it count.
        self.counts(networks).ok()?;
        let is_there = self.splits.iter().any(|split| split.devices == devices);
        is_there.then(|| self.unused_note(devices, why))
    }

    fn unused_note(&self, devices: &[&str], why: &str) -> String {
        let path = self.stats_path();
        format!("{}: the split for {} is not used: {why}", path.display(), devices.join(", "))
    }

    fn stats_path(&self) -> PathBuf {
        self.files.files().next().map(|file| path_beside(&file.path)).unwrap_or_default()
    }

    fn failed_stats(&self, problem: String) -> Error {
        failed(&self.stats_path())(problem)
    }

    /// The neurons of the index by free network, with a note if they are not exactly those, if they fit into so many bytes of its
    /// device; else, if there is an index, a note why it is not used.
    pub fn index(
        &mut self,
        networks: &[Network],
        is_free: &[bool],
        device: &str,
        room: u64,
    ) -> Result<std::result::Result<OfIndex, Option<String>>> {
        let Some(path) = &self.index else { return Ok(Err(None)) };
        let all = match &mut self.of_index {
            Some(all) => all,
            unread => unread.insert(of_index(path, networks)?),
        };
        let lists = free(&all.lists, is_free);
        let free_networks = free(networks, is_free);
        let used = free_networks.iter().zip(&lists).map(|(network, list)| bytes_of(network, list.len()));
        let used: u64 = used.sum();
        if used <= room {
            let rounded = all.is_rounded.then(|| {
                format!(
                    "{}: of the {} neurons of this index {} are on {device}, in whole blocks, which this model's last matrices require: \
                     `llmrt sparse solve --vram-budget GiB --force` chooses whole blocks",
                    path.display(),
                    all.n_neurons,
                    lists.iter().map(Vec::len).sum::<usize>()
                )
            });
            return Ok(Ok(OfIndex { lists, rounded }));
        }
        Ok(Err(Some(format!(
            "{}: this index is not used: its neurons take {} of {device}, which has room for {} beside what is not neurons: make it \
             again with `llmrt sparse solve --force` and a --vram-budget that is {} GiB less than what it was made for",
            path.display(),
            in_units(used),
            in_units(room),
            gib(used - room)
        ))))
    }

    /// The neurons of the free networks that devices with room for `room` bytes of them get: the most active.
    pub fn hot(&mut self, networks: &[Network], is_free: &[bool], room: u64) -> Result<Hot> {
        let free_networks: Vec<Network> = free(networks, is_free);
        let takes_any = self.takes_any;
        let problem = match self.counts(networks)? {
            Some(counted) => {
                let counts = free(&counted.counts, is_free);
                if counts.iter().any(|counts| counts.total() > 0.0) {
                    let lists = hottest(&free_networks, &counts, room);
                    return Ok(Hot { lists, by: "neurons are chosen by counts", problem: None });
                }
                "all counts of active neurons are 0, so all neurons are on the CPU"
            }
            None => {
                "there are no counts of active neurons beside the model, so all neurons are on the CPU: count with \
                 `llmrt sparse profile`"
            }
        };
        if takes_any {
            let (lists, by) = (alike(&free_networks, room), "devices have the same share of each layer");
            return Ok(Hot { lists, by, problem: None });
        }
        let lists = vec![Vec::new(); free_networks.len()];
        Ok(Hot { lists, by: "all neurons are on the CPU", problem: Some(problem) })
    }

    /// The counts, if there are some.
    pub fn counts(&mut self, networks: &[Network]) -> Result<Option<&Counted>> {
        if self.counts.is_none() {
            let (counts, splits) = counts(self.files, networks)?;
            self.splits = if self.takes_saved { splits } else { Vec::new() };
            self.counts = Some(counts);
        }
        Ok(self.counts.as_ref().and_then(Option::as_ref))
    }
}

/// Where PowerInfer's counts of a model are: the folder `activation` beside it.
pub fn counts_folder(model: &Path) -> PathBuf {
    model.with_file_name("activation")
}

/// Where PowerInfer's index of a model is: `x.gguf.generated.gpuidx` beside `x.gguf`.
pub fn index_beside(model: &Path) -> PathBuf {
    let mut name = model.as_os_str().to_os_string();
    name.push(".generated.gpuidx");
    name.into()
}

/// What is of free networks.
pub(super) fn free<T: Clone>(all: &[T], is_free: &[bool]) -> Vec<T> {
    all.iter().zip(is_free).filter(|(_, free)| **free).map(|(one, _)| one.clone()).collect()
}

fn n_ff(networks: &[Network]) -> Vec<usize> {
    networks.iter().map(|network| network.n_neurons as usize).collect()
}

fn failed(path: &Path) -> impl Fn(String) -> Error {
    move |problem| Error::SparseFile { path: path.display().to_string(), problem }
}

/// The neurons that an index has on the device.
fn of_index(path: &Path, networks: &[Network]) -> Result<Indexed> {
    let failed = failed(path);
    let bytes = std::fs::read(path).map_err(|e| failed(e.to_string()))?;
    let index = NeuronIndex::parse(&bytes).map_err(|e| failed(e.to_string()))?;
    index.check_model(&n_ff(networks)).map_err(|e| failed(e.to_string()))?;
    let of_layers = index.layers.iter().zip(networks);
    let lists: Lists = of_layers.map(|(layer, network)| whole_blocks(layer, network)).collect();
    let is_rounded = index.layers.iter().zip(&lists).any(|(layer, list)| layer.hot != *list);
    let n_neurons = index.layers.iter().map(|layer| layer.hot.len()).sum();
    Ok(Indexed { lists, is_rounded, n_neurons })
}

/// Whole blocks of a network's neurons, those of which its index has the most, no more neurons than it has.
fn whole_blocks(layer: &LayerIndex, network: &Network) -> Vec<u32> {
    let block = network.block.max(1) as u32;
    let mut in_block: Vec<(usize, u32)> = (0..(layer.n_ff as u32).div_ceil(block)).map(|i| (0, i)).collect();
    layer.hot.iter().for_each(|&id| in_block[(id / block) as usize].0 += 1);
    in_block.sort_by_key(|&(n, i)| (std::cmp::Reverse(n), i));
    let mut list = Vec::new();
    for (_, i) in in_block.into_iter().filter(|(n, _)| *n > 0) {
        let of_block = neurons_of(&[i], block, network);
        // The last block of a layer may be shorter than those before.
        if list.len() + of_block.len() <= layer.hot.len() {
            list.extend(of_block);
        }
    }
    list.sort_unstable();
    list
}

/// Refuses a split of other layers or neurons, or of parts of blocks.
fn check_split(split: &Split, networks: &[Network]) -> std::result::Result<(), String> {
    let (found, expected) = (split.device_of.len(), networks.len());
    if found != expected {
        return Err(format!(
            "a split of {found} layers, expected {expected}: make it again with `llmrt sparse solve`"
        ));
    }
    for (of_layer, network) in split.device_of.iter().zip(networks) {
        let is_whole = |block: &[u8]| block.iter().all(|d| *d == block[0]);
        let fits = of_layer.len() as u64 == network.n_neurons
            && of_layer.chunks(network.block.max(1) as usize).all(is_whole);
        if !fits {
            let (layer, found, expected) = (network.layer, of_layer.len(), network.n_neurons);
            return Err(format!(
                "a split of {found} neurons in layer {layer}, expected {expected} in blocks of {}: make it again with \
                 `llmrt sparse solve`",
                network.block
            ));
        }
    }
    Ok(())
}

/// Counts beside a model: of its file of statistics, or of PowerInfer's folder; and the splits of that file.
fn counts(files: &ModelFiles, networks: &[Network]) -> Result<(Option<Counted>, Vec<Split>)> {
    let none = (None, Vec::new());
    let Some(model) = files.files().next().map(|file| &file.path) else { return Ok(none) };
    let (stats, folder) = (path_beside(model), counts_folder(model));
    let (source, counts, n_tokens, splits) = match (stats.exists(), folder.is_dir()) {
        (true, _) => {
            let found = stats_of(files, model)?;
            (stats, found.counts, found.n_tokens, found.splits)
        }
        (false, true) => (folder.clone(), of_folder(&folder)?, 0, Vec::new()),
        (false, false) => return Ok(none),
    };
    if counts.is_empty() {
        return Ok((None, splits));
    }
    check_counts(&counts, &n_ff(networks)).map_err(|e| failed(&source)(e.to_string()))?;
    Ok((Some(Counted { counts, n_tokens }), splits))
}

/// The files `activation_N.pt` of a folder, by number.
fn of_folder(dir: &Path) -> Result<Vec<Counts>> {
    let entries = std::fs::read_dir(dir).map_err(|e| failed(dir)(e.to_string()))?;
    let names: Vec<_> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    let found = folder::by_number(names.iter().map(String::as_str), "activation_", ".pt");
    let read = |name: &str| {
        let path = dir.join(name);
        let bytes = std::fs::read(&path).map_err(|e| failed(&path)(e.to_string()))?;
        Counts::from_pt(&bytes).map_err(|e| failed(&path)(e.to_string()))
    };
    found.map_err(|e| failed(dir)(e.to_string()))?.into_iter().map(read).collect()
}
