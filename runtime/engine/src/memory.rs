//! What a model needs before anything is loaded: where it would run, and how many bytes of what on which device.

mod units;

pub(crate) use units::gib;
pub use units::in_units;

use crate::error::{Error, Result};
use crate::neurons::{Dividing, Undivided, UndividedCause};
use crate::options::{BLOCK_SIZE, EngineOptions};
use crate::sampler::Candidate;
use crate::scheduler::SchedulerConfig;
use crate::tensor_rules;
use llmrt_abi::DType;
use llmrt_graph::rows::NeuronSplit;
use llmrt_graph::{Graph, Kind, Tensor, TensorDef};
use llmrt_host::Device;
use llmrt_host::load::{ModelFiles, WeightRequest};
use llmrt_host::sched::bind;
use llmrt_host::sched::executor::{arenas, compute_bytes};
use llmrt_host::sched::limits::budget;
use llmrt_host::sched::report::Report;
use llmrt_host::sched::resolve::{PlacementState, Resolved, Sharing, resolve};
use llmrt_host::sched::staged::staging_bytes;
use llmrt_host::sched::{Collectives, SplitMode};
use llmrt_models::{CacheKind, Model, SparseMode, SparseOptions};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// A model and the placement of its largest step.
pub struct PlacementPlan {
    /// The model, for the requested context.
    pub model: Model,
    /// The devices that are used, first choice first, the baseline last.
    pub devices: Vec<Arc<Device>>,
    /// How they share it.
    pub sharing: Sharing,
    /// Bytes of the first device that may be used; `None`: all that is free.
    pub vram_budget: Option<u64>,
    /// Its largest step, placed on them.
    pub resolved: Resolved,
    /// Why neurons are not divided, or the first device has none, if that is so and the model has some.
    pub undivided: Option<Undivided>,
    /// Why requested devices are not used.
    pub warnings: Vec<String>,
    /// What else a user should learn, which is no reason to refuse under `strict`.
    pub notes: Vec<String>,
}

/// Bytes on one device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DevicePlan {
    /// The device's id.
    pub device: String,
    /// Weights.
    pub weights: u64,
    /// Of the weights, bytes that may stay in the files' map: under pressure the system drops them and reads them again.
    pub mappable: u64,
    /// KV cache.
    pub kv: u64,
    /// Compute memory of the largest step.
    pub compute: u64,
    /// Of the host memory below, what is pinned for the device: its inputs and results pass through it.
    pub pinned: u64,
    /// Host memory on the way of inputs, results and the largest copy.
    pub staging: u64,
    /// Free now, if the device reports it.
    pub free: Option<u64>,
}

impl DevicePlan {
    /// All bytes on the device: without the host's.
    pub fn total(&self) -> u64 {
        [self.weights, self.kv, self.compute].into_iter().fold(0, u64::saturating_add)
    }

    /// Bytes that are lacking on the device for what cannot stay in the files; 0 where it does not report what is free.
    pub fn missing(&self) -> u64 {
        let needed = self.total().saturating_sub(self.mappable);
        self.free.map_or(0, |free| needed.saturating_sub(free))
    }
}

/// Bytes per device, first choice first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemoryPlan {
    /// One row per device.
    pub devices: Vec<DevicePlan>,
    /// Bytes of KV cache that one token takes.
    pub kv_bytes_per_token: u64,
    /// Bytes of the states of a sequence, of recurrent models.
    pub state_bytes_per_sequence: u64,
    /// The windows of layers whose caches keep no more, in tokens, each with its blocks.
    pub windows: Vec<(u32, usize)>,
}

impl MemoryPlan {
    /// Adds what another model needs on the same devices.
    pub fn add(&mut self, other: &MemoryPlan) {
        for more in &other.devices {
            let Some(row) = self.devices.iter_mut().find(|row| row.device == more.device) else { continue };
            let sum = |own: &mut u64, more: u64| *own = own.saturating_add(more);
            sum(&mut row.weights, more.weights);
            sum(&mut row.mappable, more.mappable);
            sum(&mut row.kv, more.kv);
            sum(&mut row.compute, more.compute);
            sum(&mut row.pinned, more.pinned);
            sum(&mut row.staging, more.staging);
        }
    }
}

impl PlacementPlan {
    /// Reads the model and places its largest step. Loads nothing.
    ///
    /// How much compute memory a device needs is known only after placing, and it leaves less for weights and states:
    /// so the step is placed again with what is left, and finally without a device that fits neither.
    pub fn new(
        devices: &[Arc<Device>],
        files: &ModelFiles,
        options: &EngineOptions,
    ) -> Result<PlacementPlan> {
        let (mut model, mut notes) = model(devices, files, options)?;
        let step = model.whole_graph(&options.largest_shape(model.spec()))?;
        let shows_firings = options.neurons.adapt.is_some();
        let counted =
            if shows_firings { Some(model.whole_graph(&options.counted_shape(model.spec()))?) } else { None };
        let steps = Steps { largest: &step, counted: counted.as_ref() };

        let (mut devices, mut warnings) = (devices.to_vec(), Vec::new());
        let together = |devices: &[Arc<Device>]| match options.split {
            SplitMode::Rows => Collectives::of(devices),
            SplitMode::Layers => Collectives::default(),
        };
        let assign = |devices: &[Arc<Device>], warnings: &mut Vec<String>| {
            let names =
                step.tensors.iter().filter(|def| def.kind == Kind::Weight).map(|def| def.name.as_str());
            let (assigned, ignored) = tensor_rules::assigned(&options.tensors, names, devices);
            warnings.extend(ignored.into_iter().filter(|w| !warnings.contains(w)).collect::<Vec<_>>());
            Arc::new(assigned)
        };
        let shared = |devices: &[Arc<Device>], warnings: &mut Vec<String>| Sharing {
            split: options.split,
            collectives: together(devices),
            assigned: assign(devices, warnings),
            neurons: Arc::default(),
        };
        let mut sharing = shared(&devices, &mut warnings);
        let mut budget = limited(budget(&devices), options);
        let mut left_out = None;
        let mut dividing = Dividing::new(&step, files, devices.len(), options);
        notes.extend(Dividing::needless_option(&step, devices.len(), options));
        loop {
            let (budget_now, sharing_now) = (budget.clone(), sharing.clone());
            let mut known =
                PlacementState { budget: budget_now, sharing: sharing_now, ..PlacementState::default() };
            let vram_budget = dividing.budget;
            let plan_of = |known: &PlacementState| {
                let resolved = placed(steps, &devices, known)?;
                Ok(device_plans(&devices, &resolved, vram_budget))
            };
            known.sharing.neurons = dividing.split(&mut known, &plan_of, &mut notes)?;
            let resolved = placed(steps, &devices, &known)?;
            sharing = known.sharing;
            let undivided = None;
            let mut placement =
                PlacementPlan { model, devices, sharing, vram_budget, resolved, undivided, warnings, notes };
            let placed: Vec<u64> =
                placement.resolved.report.neurons.iter().map(|(_, bytes)| *bytes).collect();
            let short = placement.first_short_of_memory();
            let is_tried_again = match &short {
                None => dividing.fitted(&placed),
                Some((d, plan)) => dividing.failed_on(*d, plan.missing(), &placed)?,
            };
            if is_tried_again {
                PlacementPlan { model, devices, sharing, warnings, notes, .. } = placement;
                continue;
            }
            let Some((d, plan)) = short else {
                let no_room = dividing.undivided.iter().filter(|why| why.cause == UndividedCause::NoRoom);
                placement.notes.extend(no_room.map(|why| why.reason.clone()));
                placement.undivided = left_out.or(dividing.undivided);
                placement.notes.extend(dividing.skipped_split.into_iter().chain(dividing.skipped_index));
                return Ok(placement);
            };
            // What is placed may be padded, so what was too much is taken off as well.
            let left = plan.free.unwrap_or(0).saturating_sub(plan.compute);
            let left = left.min(budget[d].unwrap_or(left).saturating_sub(plan.missing()));
            PlacementPlan { model, devices, sharing, warnings, notes, .. } = placement;
            if budget[d] > Some(left) {
                budget[d] = Some(left);
            } else {
                devices.remove(d);
                budget.remove(d);
                dividing.leave_out(d);
                // The old group's memory comes back first.
                drop(std::mem::take(&mut sharing));
                sharing = shared(&devices, &mut warnings);
                let (free, compute) = (plan.free.unwrap_or(0), plan.compute);
                let why = format!(
                    "{} is not used: of the {} that may be used, computing takes {}: free more of its memory, or give a larger \
                     --vram-budget, or a smaller -b or -c",
                    plan.device,
                    in_units(free),
                    in_units(compute)
                );
                left_out = Some(Undivided::new(UndividedCause::NoRoom, &why));
                warnings.push(why);
            }
        }
    }

    /// The first device before the baseline that cannot hold what was placed on it.
    fn first_short_of_memory(&self) -> Option<(usize, DevicePlan)> {
        let rows = self.device_plans().into_iter().enumerate();
        rows.take(self.devices.len() - 1).find(|(_, row)| row.missing() > 0)
    }

    /// The device of each state.
    pub fn states(&self) -> HashMap<String, usize> {
        let g = &self.resolved.graph;
        let homes = self.resolved.placement.home.iter().filter(|(t, _)| g.def(**t).kind == Kind::State);
        homes.map(|(t, &device)| (g.def(*t).name.clone(), device)).collect()
    }

    /// Bytes of the caches on each device if their pool had `n` blocks, without recurrent states.
    fn paged_bytes(&self, options: &EngineOptions) -> impl Fn(usize) -> Vec<u64> {
        let (g, kinds) = (&self.resolved.graph, self.model.spec().states());
        let planned = options.shape(1, 1, 1);
        let mut caches = Vec::new();
        for (t, &device) in &self.resolved.placement.home {
            let def = g.def(*t);
            if let Some(kind @ CacheKind::Paged { .. }) = kinds.get(&def.name) {
                caches.push((device, *kind, def.n_bytes() / kind.n_units(&planned)));
            }
        }
        let (n_devices, options) = (self.devices.len(), options.clone());
        move |n| {
            let shape = EngineOptions { kv_blocks: Some(n), ..options.clone() }.shape(1, 1, 1);
            let mut bytes = vec![0u64; n_devices];
            for (device, kind, of_block) in &caches {
                bytes[*device] = bytes[*device].saturating_add(of_block.saturating_mul(kind.n_units(&shape)));
            }
            bytes
        }
    }

    /// The weights, each on every device with a node that reads it.
    pub fn weight_requests(&self) -> Vec<WeightRequest> {
        let g = &self.resolved.graph;
        let pairs = weights(&self.resolved);
        pairs.into_iter().map(|(row, t)| WeightRequest::new(g, t, row, &self.devices[row])).collect()
    }

    /// The bytes on each device.
    pub fn device_plans(&self) -> Vec<DevicePlan> {
        device_plans(&self.devices, &self.resolved, self.vram_budget)
    }

    /// Fails when the baseline lacks memory for the KV cache and the compute memory. Weights it may map.
    pub fn check_memory(&self) -> Result<()> {
        match self.device_plans().pop().filter(|row| row.missing() > 0) {
            Some(row) => Err(Error::NotEnoughMemory {
                device: row.device,
                kv: row.kv,
                compute: row.compute,
                free: row.free.unwrap_or(0),
            }),
            None => Ok(()),
        }
    }
}

/// The model of these files for the options' context and rule of sparse networks, and what a user should learn of it.
pub(crate) fn model(
    devices: &[Arc<Device>],
    files: &ModelFiles,
    options: &EngineOptions,
) -> Result<(Model, Vec<String>)> {
    let find = |name: &str| files.model.tensor(name).map(|t| (t.dtype, t.ne));
    let mut model = Model::new(&files.model.metadata, find)?;
    let mut notes = Vec::from_iter(unused_note(&model, files)?);
    notes.extend(projector_note(&model));
    let sparse = crate::sparse::options(files, &options.sparse)?;
    if sparse != SparseOptions::default() {
        model = model.with_neurons(sparse)?;
    } else if devices.len() == 1 && crate::sparse::has_few_zeros(files, &model, &mut notes)? {
        model = model.with_neurons(SparseOptions { mode: SparseMode::Off, ..sparse })?;
    }
    model.set_context(options.n_ctx as u64);
    Ok((model, notes))
}

/// Graphs of the steps that take the most memory.
#[derive(Clone, Copy)]
struct Steps<'a> {
    /// All tokens.
    largest: &'a Graph,
    /// The most tokens of which it is read which neurons fire, if it is.
    counted: Option<&'a Graph>,
}

/// The largest step on devices, with the bytes that computing takes, whichever step it is.
fn placed(steps: Steps<'_>, devices: &[Arc<Device>], known: &PlacementState) -> Result<Resolved> {
    let sized = |g: &Graph| -> Result<Resolved> {
        let mut resolved = resolve(g, devices, known)?;
        let arenas = arenas(&resolved, devices)?;
        resolved.report.compute_bytes = compute_bytes(&resolved, devices, &arenas)?;
        resolved.report.staging_bytes = staging_bytes(&resolved, devices, &arenas);
        Ok(resolved)
    };
    let mut resolved = sized(steps.largest)?;
    if let Some(counted) = steps.counted.filter(|_| !known.sharing.neurons.layers.is_empty()) {
        let mut counted = counted.split_neurons(&known.sharing.neurons);
        counted.firings();
        let report = sized(&counted)?.report;
        let most =
            |own: &mut Vec<u64>, more: &[u64]| own.iter_mut().zip(more).for_each(|(a, b)| *a = *b.max(a));
        most(&mut resolved.report.compute_bytes, &report.compute_bytes);
        most(&mut resolved.report.staging_bytes, &report.staging_bytes);
    }
    Ok(resolved)
}

/// The bytes that weights and states may take, no more than the user gives of the first device.
fn limited(mut budget: Vec<Option<u64>>, options: &EngineOptions) -> Vec<Option<u64>> {
    if let (Some(limit), Some((Some(first), _))) = (options.neurons.vram_budget, budget.split_first_mut()) {
        *first = limit.min(*first);
    }
    budget
}

fn device_plans(devices: &[Arc<Device>], resolved: &Resolved, vram_budget: Option<u64>) -> Vec<DevicePlan> {
    let (g, baseline) = (&resolved.graph, devices.len() - 1);
    let row = |(device, &compute): (&Arc<Device>, &u64)| DevicePlan {
        device: device.name().to_string(),
        compute,
        free: device.memory().ok().map(|(free, _)| free),
        ..DevicePlan::default()
    };
    let mut rows: Vec<_> = devices.iter().zip(&resolved.report.compute_bytes).map(row).collect();
    for (device, def) in weights(resolved).into_iter().map(|(device, t)| (device, g.def(t))) {
        let n = if device == baseline { def.n_bytes() } else { stored_bytes(&devices[device], def) };
        rows[device].weights += n;
        // Parts by lists are copies.
        if device == baseline && def.listed.is_none() {
            rows[device].mappable += n;
        }
    }
    for (t, &device) in resolved.placement.home.iter().filter(|(t, _)| g.def(**t).kind == Kind::State) {
        rows[device].kv += g.def(*t).n_bytes();
    }
    for split in &resolved.splits {
        let largest = split.copies.iter().map(|copied| g.def(copied.tensor).n_bytes()).max().unwrap_or(0);
        rows[split.device].staging = rows[split.device].staging.max(largest);
    }
    for (row, &pinned) in rows.iter_mut().zip(&resolved.report.staging_bytes) {
        row.pinned = pinned;
        row.staging += pinned;
    }
    if let Some(limit) = vram_budget.filter(|_| baseline > 0) {
        rows[0].free = Some(rows[0].free.map_or(limit, |free| free.min(limit)));
    }
    rows
}

/// The weights, each with every device that has a node which reads it.
fn weights(resolved: &Resolved) -> BTreeSet<(usize, Tensor)> {
    let g = &resolved.graph;
    let mut pairs = BTreeSet::new();
    for (node, &device) in g.nodes.iter().zip(&resolved.placement.node) {
        let owners = node.src.iter().flatten().map(|&t| g.owner(t));
        pairs.extend(owners.filter(|t| g.def(*t).kind == Kind::Weight).map(|t| (device, t)));
    }
    pairs
}

/// That a file has more than the model computes with: layers that predict ahead, or parts for images.
fn unused_note(model: &Model, files: &ModelFiles) -> Result<Option<String>> {
    let unused = model.unused_tensors(files.model.tensors.iter().map(|t| t.name.as_str()))?;
    Ok(match &unused[..] {
        [] => None,
        [name] => Some(format!("tensor `{name}` of the file is not used")),
        [first, .., last] => {
            Some(format!("{} tensors of the file are not used, from `{first}` to `{last}`", unused.len()))
        }
    })
}

/// That a model is made for more than text.
fn projector_note(model: &Model) -> Option<String> {
    let arch = &model.config.arch;
    let note = || {
        format!(
            "{arch} models get images from a projector (mmproj), a file of its own that llmrt does not run: text alone works"
        )
    };
    llmrt_models::has_projector(arch).then(note)
}

/// Bytes that a weight takes among others on a device.
fn stored_bytes(device: &Device, def: &TensorDef) -> u64 {
    let n = device.alloc_size(0, &bind::describe(def, None)).unwrap_or_else(|_| def.n_bytes());
    n.checked_next_multiple_of(device.alignment()).unwrap_or(n)
}

/// Where a model would run.
pub struct Placed {
    /// Of a decode step.
    pub report: Report,
    /// That step's graph, as text.
    pub graph: String,
    /// The devices that are used.
    pub devices: Vec<Arc<Device>>,
    /// The neurons of each, where they are divided.
    pub neurons: Arc<NeuronSplit>,
    /// What a user should learn.
    pub notes: Vec<String>,
}

/// Where a model would run.
pub fn placement(devices: &[Arc<Device>], files: &ModelFiles, options: &EngineOptions) -> Result<Placed> {
    let mut decode = EngineOptions { n_batch: 1, ..options.clone() };
    let mut notes = Vec::new();
    if devices.len() > 1 {
        // The neurons are those that the largest step leaves room for.
        let plan = PlacementPlan::new(devices, files, options)?;
        notes.extend(plan.warnings.into_iter().chain(plan.notes));
        let PlacementPlan { sharing, devices: used, .. } = plan;
        let is_used = |neurons: &Arc<NeuronSplit>| !neurons.layers.is_empty() && used.len() == devices.len();
        decode.neurons.split = Some(sharing.neurons).filter(is_used).or(decode.neurons.split);
    }
    let PlacementPlan { devices, sharing, resolved, .. } = PlacementPlan::new(devices, files, &decode)?;
    let graph = resolved.graph.to_string();
    Ok(Placed { report: resolved.report, graph, devices, neurons: sharing.neurons, notes })
}

/// The bytes a model needs on each device.
pub fn memory_plan(
    devices: &[Arc<Device>],
    files: &ModelFiles,
    options: &EngineOptions,
) -> Result<MemoryPlan> {
    let placement = PlacementPlan::new(devices, files, options)?;
    let spec = placement.model.spec();
    Ok(MemoryPlan {
        devices: placement.device_plans(),
        kv_bytes_per_token: spec.bytes_per_token(options.k_type, options.v_type),
        state_bytes_per_sequence: spec.bytes_per_sequence(),
        windows: options.windows(spec),
    })
}

/// Tokens in a block of the KV cache: the most that one of the devices prefers. All are powers of two, so that those who prefer
/// less get whole multiples of it; devices without a preference, the CPU among them, walk a block table of any size, and larger
/// blocks are fewer steps for them.
pub fn block_size(devices: &[Arc<Device>]) -> usize {
    largest_preference(devices.iter().map(|device| device.info().kv_block_size))
}

fn largest_preference(sizes: impl Iterator<Item = u32>) -> usize {
    sizes.max().filter(|&n| n > 0).map_or(BLOCK_SIZE, |n| n as usize)
}

/// How much memory the KV cache may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KvLimit {
    /// Bytes, on all devices together.
    Bytes(u64),
    /// A share of each device's memory, 0 to 1, together with what is in use there: with weights and compute memory, and what
    /// other programs have.
    Share(f64),
}

/// Blocks of the KV cache that a limit leaves room for, beside weights and the compute memory of the largest step, at most
/// those that all sequences take at full length (vLLM's `determine_num_available_blocks`, with a plan instead of a profiling
/// run). Too few for one sequence of `n_ctx` tokens and the watermark is an error. All of them for models without a KV cache.
pub fn kv_blocks(
    devices: &[Arc<Device>],
    files: &ModelFiles,
    options: &EngineOptions,
    limit: KvLimit,
) -> Result<usize> {
    let needed = options.max_blocks();
    let mut one = EngineOptions { kv_blocks: Some(needed), ..options.clone() };
    let mut placement = PlacementPlan::new(devices, files, &one)?;
    let all = options.n_blocks_of_all();
    if devices.len() > 1 && one.neurons.split.is_none() && placement.model.skips_zeros()? {
        // The cache comes before neurons on devices, whether it leaves room for all of them or not.
        let whole = EngineOptions { kv_blocks: Some(all), ..options.clone() };
        let whole = PlacementPlan::new(devices, files, &whole)?.sharing.neurons;
        let divided = [&placement.sharing.neurons, &whole].into_iter().find(|split| !split.layers.is_empty());
        if let Some(divided) = divided {
            one.neurons.split = Some(Arc::new(divided.all_on_last()));
            placement = PlacementPlan::new(devices, files, &one)?;
        }
    }
    let paged_bytes = placement.paged_bytes(&one);
    let found = match limit {
        KvLimit::Bytes(limit) => largest(all, |n| paged_bytes(n).iter().sum::<u64>() <= limit),
        KvLimit::Share(share) => {
            let room = |((row, device), paged): ((DevicePlan, &Arc<Device>), u64)| {
                let Ok((free, total)) = device.memory() else { return u64::MAX };
                let used = total.saturating_sub(free) + row.weights + row.compute + row.staging - row.pinned;
                // Without what a budget leaves out.
                let total = total.saturating_sub(free.saturating_sub(row.free.unwrap_or(free)));
                ((total as f64 * share) as u64).saturating_sub(used + row.kv - paged)
            };
            let rows = placement.device_plans().into_iter().zip(&placement.devices);
            let room: Vec<u64> = rows.zip(paged_bytes(needed)).map(room).collect();
            largest(all, |n| paged_bytes(n).iter().zip(&room).all(|(n, room)| n <= room))
        }
    };
    let watermark = options.watermark(found);
    let usable = found - SchedulerConfig { watermark, ..SchedulerConfig::default() }.watermark_blocks(found);
    match usable < needed {
        true => Err(Error::KvTooSmall { n_tokens: usable * options.block_size(), n_ctx: options.n_ctx }),
        false => Ok(found),
    }
}

/// The largest number up to `max` that fits, if all smaller ones do; 0 if none does.
fn largest(max: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, max);
    while low < high {
        let middle = high - (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

/// Bytes of host memory that a step of one sequence takes besides the devices': its tokens and arrays, the row of logits
/// as it is read and as floats, and the candidates that a sampler makes of it.
pub fn step_buffers(model: &Model, options: &EngineOptions) -> u64 {
    let n_vocab = model.config.n_vocab;
    let arrays = 2 * 4 * (4 * options.n_batch + options.max_blocks());
    let logits = n_vocab * (4 + 4 + size_of::<Candidate>() as u64);
    (arrays + 4 * options.n_ctx) as u64 + logits
}

/// The KV cache types that attention takes.
pub const KV_TYPES: [DType; 3] = [DType::F16, DType::F32, DType::Q8_0];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_large_as_one_of_the_devices_prefers() {
        for (sizes, expected) in [
            (&[][..], 16),
            (&[0], 16),
            (&[0, 0], 16),
            (&[128, 0], 128),
            (&[64, 128, 0], 128),
            (&[256, 32], 256),
            (&[8, 0], 8),
        ] {
            assert_eq!(largest_preference(sizes.iter().copied()), expected, "{sizes:?}");
        }
    }

    #[test]
    fn a_context_smaller_than_a_block_takes_a_whole_one() {
        let of = |n_ctx, block_size| {
            let options = EngineOptions {
                n_ctx,
                block_size: Some(block_size),
                max_seqs: 3,
                ..EngineOptions::default()
            };
            (options.max_blocks(), options.n_blocks(), options.n_device_blocks())
        };
        // Steps of up to three sequences are not padded.
        assert_eq!((of(64, 16), of(64, 128), of(65, 64)), ((4, 12, 12), (1, 3, 3), (2, 6, 6)));
        assert_eq!(EngineOptions::default().block_size(), BLOCK_SIZE);
    }

    #[test]
    fn mapped_weights_and_host_memory_need_no_free_memory_and_all_else_does() {
        let row = DevicePlan {
            weights: 100,
            kv: 10,
            compute: 5,
            staging: 3,
            free: Some(20),
            ..DevicePlan::default()
        };
        assert_eq!((row.total(), row.missing()), (115, 95));
        assert_eq!(DevicePlan { mappable: 100, ..row.clone() }.missing(), 0);
        assert_eq!(DevicePlan { mappable: 100, kv: 20, ..row.clone() }.missing(), 5);
        assert_eq!(DevicePlan { free: None, ..row }.missing(), 0);
    }
}
