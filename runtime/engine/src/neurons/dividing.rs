//! How much room devices have for neurons, found by placing: first with all neurons on the CPU, then with as many as fit.

use super::limit::Limit;
use super::source::{OfIndex, Source, free};
use super::{IndexUse, NeuronOptions, Undivided, UndividedCause, bytes_of, sparse_networks, split, time};
use crate::error::{Error, Result};
use crate::memory::{DevicePlan, gib, in_units};
use crate::options::EngineOptions;
use llmrt_graph::Graph;
use llmrt_graph::rows::{Network, NeuronSplit};
use llmrt_host::load::ModelFiles;
use llmrt_host::sched::SplitMode;
use llmrt_host::sched::resolve::PlacementState;
use llmrt_models::SparseMode;
use std::collections::HashSet;
use std::sync::Arc;

/// Left free by default, as PowerInfer leaves it.
const MARGIN: u64 = 256 << 20;

/// The bytes on each device that a placement takes.
type PlanOf<'a> = dyn Fn(&PlacementState) -> Result<Vec<DevicePlan>> + 'a;

/// What is placed besides neurons.
#[derive(Clone)]
struct Rest {
    rows: Vec<DevicePlan>,
    /// Bytes that it needs of the first device, whatever is given for it: of a limited device no more is placed than fits.
    needed: u64,
}

/// A search for the neurons of each device.
pub(crate) struct Dividing<'a> {
    networks: Vec<Network>,
    options: &'a NeuronOptions,
    source: Source<'a>,
    /// Bytes of the first device that may be used, as long as it is that one.
    pub budget: Option<u64>,
    /// Most bytes of neurons, by device.
    limits: Vec<Limit>,
    /// Whether neurons stay together where all seem to fit.
    takes_all: bool,
    /// What is placed without neurons, of these budgets.
    without_neurons: Option<(Vec<Option<u64>>, Rest)>,
    /// Why the last division is none, or has no neurons on the first device.
    pub undivided: Option<Undivided>,
    /// Why the last division is not that of a split beside the model, if there is one.
    pub skipped_split: Option<String>,
    /// The same of an index, or why it is not exactly that.
    pub skipped_index: Option<String>,
}

impl<'a> Dividing<'a> {
    /// Of the sparse networks of a graph; of none where one device has all or the options rule it out: matrices by rows, small
    /// inputs as zeros, no index, and strict placement of a model that was given no budget.
    pub fn new(
        g: &Graph,
        files: &'a ModelFiles,
        n_devices: usize,
        options: &'a EngineOptions,
    ) -> Dividing<'a> {
        let budget = options.neurons.vram_budget;
        let whole = whole_networks(g, options);
        let is_possible = n_devices > 1
            && whole.is_none()
            && options.neurons.index != IndexUse::Off
            && (!options.strict || budget.is_some());
        let networks = if is_possible { sparse_networks(g) } else { Vec::new() };
        Dividing {
            networks,
            options: &options.neurons,
            source: Source::new(files, &options.neurons),
            budget,
            limits: vec![Limit::default(); n_devices],
            takes_all: true,
            without_neurons: None,
            undivided: whole.map(|why| Undivided::new(UndividedCause::Whole, why)),
            skipped_split: None,
            skipped_index: None,
        }
    }

    /// That an option is for neurons which are divided, and they are not.
    pub fn needless_option(g: &Graph, n_devices: usize, options: &EngineOptions) -> Option<String> {
        let option = match (options.neurons.vram_budget, options.neurons.adapt) {
            (Some(_), _) => "--vram-budget",
            (None, Some(_)) => "--sparse-adapt",
            (None, None) => return None,
        };
        let alone = (n_devices < 2).then_some("no device besides the CPU is used");
        let why = whole_networks(g, options).or(alone)?;
        Some(format!("{option}: neurons are not divided between devices, since {why}"))
    }

    /// The neurons of each device; none are divided where all fit, and where nothing is given to choose them by. `known` is
    /// used for trial placements.
    pub fn split(
        &mut self,
        known: &mut PlacementState,
        plan_of: &PlanOf<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Arc<NeuronSplit>> {
        let n_devices = known.budget.len();
        (self.skipped_split, self.skipped_index) = (None, None);
        if let (Some(split), true) = (&self.options.split, n_devices > 1) {
            return Ok(split.clone());
        }
        // What is for one device stays whole there.
        let is_free =
            |network: &Network| !network.weights.iter().any(|w| known.sharing.assigned.contains_key(w));
        let is_free: Vec<bool> = self.networks.iter().map(is_free).collect();
        let networks = free(&self.networks, &is_free);
        if n_devices < 2 || networks.is_empty() {
            return Ok(Arc::default());
        }
        self.undivided = None;
        if self.budget.is_none() {
            match self.source.is_there(&self.networks) {
                Ok(true) => {}
                Ok(false) => return Ok(Arc::default()),
                Err(e) => return self.failed(e, notes),
            }
        }
        let none = vec![vec![Vec::new(); networks.len()]; n_devices - 1];
        known.sharing.neurons = Arc::new(split(&networks, &none));
        let Rest { rows, needed } = self.rest(known, plan_of)?;
        let free_bytes = rows[0].free.unwrap_or(0);
        let names: Vec<&str> = rows[..n_devices - 1].iter().map(|row| row.device.as_str()).collect();

        let all: u64 = networks.iter().map(|network| network.bytes).sum();
        if self.takes_all && free_bytes.saturating_sub(needed) >= all {
            let why = format!("all neurons fit into {}", names[0]);
            self.skipped_split = self.source.unused(&self.networks, &names, &why);
            self.undivided = Some(Undivided::new(UndividedCause::AllFit, why));
            return Ok(Arc::default());
        }
        let room = rows[..n_devices - 1].iter().enumerate().map(|(d, row)| {
            let margin = if d == 0 && self.budget.is_some() { 0 } else { MARGIN };
            let taken = if d == 0 { needed } else { used(row) };
            self.limits[d].of(row.free.unwrap_or(0).saturating_sub(taken.saturating_add(margin)))
        });
        let room: Vec<u64> = room.collect();
        if room[0] == 0 {
            // The least that neurons need, too, is more than there is.
            let needed = if self.limits[0].is_none() { needed.max(free_bytes) } else { needed };
            let why = self.no_room(names[0], free_bytes, needed);
            self.undivided = Some(Undivided::new(UndividedCause::NoRoom, why));
        }
        if room.iter().all(|&bytes| bytes == 0) {
            self.skipped_split = self.source.unused(&self.networks, &names, "there is no room for neurons");
            let is_whole = self.budget.is_none() && used(&rows[0]) > free_bytes;
            return Ok(if is_whole { Arc::default() } else { known.sharing.neurons.clone() });
        }
        match self.lists(&is_free, &names, &room, notes) {
            Ok(lists) => Ok(Arc::new(split(&networks, &lists))),
            Err(e) => self.failed(e, notes),
        }
    }

    /// What is placed besides neurons, where `known` has all of these on the CPU.
    fn rest(&mut self, known: &mut PlacementState, plan_of: &PlanOf<'_>) -> Result<Rest> {
        if let Some((budget, rest)) = &self.without_neurons
            && *budget == known.budget
        {
            return Ok(rest.clone());
        }
        let rows = plan_of(known)?;
        let limited = std::mem::take(&mut known.budget[0]);
        let unlimited = plan_of(known);
        known.budget[0] = limited;
        let rest = Rest { rows, needed: used(&unlimited?[0]) };
        self.without_neurons = Some((known.budget.clone(), rest.clone()));
        Ok(rest)
    }

    /// That the first device has no room for neurons, whether for its memory or the budget, and what to do.
    fn no_room(&self, name: &str, free: u64, needed: u64) -> String {
        let (limit, remedy) = match self.budget {
            Some(budget) if budget <= free => {
                let limit = format!("the budget of {}", in_units(budget));
                (limit, format!("give more than --vram-budget {}", gib(needed)))
            }
            Some(_) => (format!("its free memory of {}", in_units(free)), "free more".into()),
            None => {
                let limit = format!("its free memory of {}, less {}", in_units(free), in_units(MARGIN));
                (limit, "free more, or give --vram-budget to use all".into())
            }
        };
        format!(
            "{name}: {limit} has no room for neurons beside {} of what is not neurons (attention, predictors, KV cache and \
             compute memory), so no neuron is on it: {remedy}, or a smaller -c, -b or --kv-type q8_0",
            in_units(needed)
        )
    }

    /// The neurons of each device with this room, by free network: those of a split, or with which a token takes the least time, or
    /// the most active; what the devices before have is theirs.
    fn lists(
        &mut self,
        is_free: &[bool],
        names: &[&str],
        room: &[u64],
        notes: &mut Vec<String>,
    ) -> Result<Vec<Vec<Vec<u32>>>> {
        match self.source.split(&self.networks, is_free, names, room)? {
            Ok(lists) => return Ok(lists),
            Err(why) => self.skipped_split = why,
        }
        let rates = self.options.rates.as_deref().filter(|rates| rates.len() == room.len() + 1);
        if let Some(rates) = rates
            && let Some(counted) = self.source.counts(&self.networks)?
        {
            let shares = free(&counted.shares(), is_free);
            return time::least(&free(&self.networks, is_free), &shares, room, rates);
        }
        // An index is of one device.
        match self.source.index(&self.networks, is_free, names[0], room[0])? {
            Ok(OfIndex { lists, rounded }) => {
                self.chosen_by("the index beside the model is used");
                self.skipped_index = rounded;
                let none = vec![Vec::new(); lists.len()];
                return Ok(std::iter::once(lists).chain(room.iter().skip(1).map(|_| none.clone())).collect());
            }
            Err(why) => self.skipped_index = why,
        }
        let (mut sum, mut taken) = (0, vec![HashSet::new(); is_free.len()]);
        let mut by = "";
        let of_device = |room: &u64| {
            sum += room;
            let hot = self.source.hot(&self.networks, is_free, sum)?;
            by = hot.by;
            hot.problem.into_iter().for_each(|note| add(notes, note.into()));
            let rest = hot.lists.into_iter().zip(&mut taken);
            Ok(rest.map(|(list, taken)| list.into_iter().filter(|&id| taken.insert(id)).collect()).collect())
        };
        let lists = room.iter().map(of_device).collect();
        self.chosen_by(by);
        lists
    }

    /// Notes on what is skipped end with what is used instead.
    fn chosen_by(&mut self, by: &str) {
        for skipped in [&mut self.skipped_split, &mut self.skipped_index].into_iter().flatten() {
            *skipped = format!("{skipped}; {by}");
        }
    }

    /// Without a budget, what is wrong with files beside the model is a note.
    fn failed(&mut self, e: Error, notes: &mut Vec<String>) -> Result<Arc<NeuronSplit>> {
        let Error::SparseFile { path, problem } = e else { return Err(e) };
        if self.budget.is_some() {
            return Err(Error::SparseFile { path, problem });
        }
        let why = format!("{path}: {problem}; neurons are not divided among devices");
        self.undivided = Some(Undivided::new(UndividedCause::File, &why));
        add(notes, why);
        Ok(Arc::default())
    }

    /// A device lacks so many bytes with so many bytes of neurons on each: whether another division may fit.
    pub fn failed_on(&mut self, device: usize, missing: u64, placed: &[u64]) -> Result<bool> {
        let took_all = self.undivided.as_ref().is_some_and(|why| why.cause == UndividedCause::AllFit);
        if took_all {
            // Without anything to choose by, layers fall back.
            let is_divided = device == 0 && self.source.is_there(&self.networks)?;
            self.takes_all = !is_divided;
            return Ok(is_divided);
        }
        if self.options.split.is_some() {
            return Ok(false);
        }
        let (placed, step) = (placed.get(device).copied().unwrap_or(0), self.step());
        Ok(self.limits.get_mut(device).is_some_and(|limit| limit.failed(placed, missing, step)))
    }

    /// All fits with so many bytes of neurons on each device: whether there may be room for more.
    pub fn fitted(&mut self, placed: &[u64]) -> bool {
        let step = self.step();
        let mut limits = self.limits.iter_mut().zip(placed);
        limits.any(|(limit, placed)| limit.fitted(*placed, step))
    }

    /// Bytes of the largest block of neurons: fewer make no difference.
    fn step(&self) -> u64 {
        let blocks = self.networks.iter().map(|network| bytes_of(network, network.block as usize));
        blocks.max().unwrap_or(1)
    }

    /// A device is not used any more: the others take its number on, and begin again.
    pub fn leave_out(&mut self, device: usize) {
        self.limits.remove(device);
        self.limits.fill_with(Limit::default);
        (self.takes_all, self.without_neurons) = (true, None);
        if device == 0 {
            self.budget = None;
        }
    }
}

/// Bytes of a device that a placement takes.
fn used(row: &DevicePlan) -> u64 {
    row.weights + row.kv + row.compute
}

/// Why no network of a graph can be divided; `None`: some can.
fn whole_networks(g: &Graph, options: &EngineOptions) -> Option<&'static str> {
    match () {
        () if options.split != SplitMode::Layers => Some("--split row divides matrices by rows"),
        () if options.sparse.mode == SparseMode::Magnitude => Some("--sparse magnitude computes all of them"),
        () if !g.is_sparse() => Some("all of this model's are computed"),
        () => None,
    }
}

/// Adds a note once.
fn add(notes: &mut Vec<String>, note: String) {
    if !notes.contains(&note) {
        notes.push(note);
    }
}
