//! `llmrt sparse solve`: which neurons go to a device, as an index that PowerInfer reads too.

use super::ffn::{self, Layer};
use super::inputs::{self, Counted, CountsArgs};
use super::split;
use crate::args::{ContextArgs, Global, OpenArgs};
use crate::context::{self, Defaults, Placing};
use crate::error::{Error, Result};
use crate::model::{self, OpenModel};
use crate::new_file::{self, NewFile};
use crate::output::{bytes, n_things, note};
use crate::values::Budget;
use clap::Args;
use llmrt_abi::DType;
use llmrt_engine::neurons::index_beside;
use llmrt_sparse::index::{LayerIndex, NeuronIndex};
use llmrt_sparse::solve::{
    ActivationRequest, Device, LayerCost, TimeRequest, UPSTREAM_BATCH, least_time, most_activations,
    upstream_capacity,
};
use std::io::Write;
use std::path::PathBuf;

/// Choose the neurons of a device, and write PowerInfer's index of them.
///
/// The budget holds attention, predictors and the output matrix first, then keys and values, then neurons. Those are chosen for the
/// most activations, or, with --device-rate, for the least time of a token; of a quantised file in whole blocks of its
/// last matrices. Memory to compute in comes on top, so give a budget
/// below that of `run`. Without --ctx there are no keys and values; --ctx 0 is the length that the model was trained on. Flags that only
/// --measure needs are refused without it.
///
/// With --measure the devices of --backend are measured, and the split with the least time is written to MODEL.sparse.gguf,
/// where `run` finds it. Give it the flags that `run` gets: all of them count, and the budget holds memory to compute in, too.
#[derive(Args, Debug)]
#[command(
    override_usage = "llmrt sparse solve [OPTIONS] --vram-budget <GiB> <MODEL>\n       llmrt sparse solve [OPTIONS] --measure <MODEL>"
)]
#[command(mut_arg("batch", |arg| arg.requires("measure")))]
#[command(mut_arg("reset_gpu_index", |arg| arg.requires("measure")))]
#[command(mut_arg("sparse_adapt", |arg| arg.requires("measure")))]
pub struct Solve {
    /// Model.
    #[arg(value_name = "MODEL")]
    pub model: PathBuf,
    #[command(flatten)]
    pub counts: CountsArgs,
    /// The fewest neurons of a layer that has any on the device.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "device_rate")]
    pub threshold: u64,
    /// Count a neuron's bytes as PowerInfer does, which is too many for some models.
    #[arg(long, conflicts_with = "device_rate")]
    pub upstream_bytes: bool,
    /// Bytes that the device reads in a second, in GB: choose for the least time.
    #[arg(long, value_name = "GB/s", requires = "cpu_rate")]
    pub device_rate: Option<f64>,
    /// Bytes that the CPU reads in a second, in GB.
    #[arg(long, value_name = "GB/s", requires = "device_rate")]
    pub cpu_rate: Option<f64>,
    /// What a layer takes longer when it is divided, in microseconds.
    #[arg(long, value_name = "µs", default_value_t = 0.0, requires = "device_rate")]
    pub device_cost: f64,
    /// Measure how fast the devices of --backend read this model's weights, choose for the least time on them, and write the split to
    /// MODEL.sparse.gguf.
    #[arg(long, conflicts_with_all = ["device_rate", "threshold", "upstream_bytes", "activation", "out"])]
    pub measure: bool,
    /// Index to write [default: MODEL.generated.gpuidx].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Overwrite it.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub context: ContextArgs,
    #[command(flatten)]
    pub open: OpenArgs,
}

impl Solve {
    /// Writes the index; it appears under its name only when it is whole.
    pub fn run(&self, global: &Global) -> Result<()> {
        if self.context.sparse.disable_gpu_index {
            return Err(Error::usage(
                "--disable-gpu-index does not divide neurons: leave it out to choose some",
            ));
        }
        let given = if self.measure { None } else { Some(self.given_budget()?) };
        let model = OpenModel::open(Some(&self.model), &model::table_options(&self.open))?;
        let Some(given) = given else { return split::write(global, &model, &self.context) };
        let layers = ffn::layers(&model)?;
        let n_ff: Vec<_> = layers.iter().map(Layer::n_ff).collect();
        let counted = inputs::counts(&self.counts, &model, &n_ff)?.by_blocks(&layers);
        let out = self.out.clone().unwrap_or_else(|| index_beside(&self.model));
        new_file::check_output(&out, self.force, model.files.files().map(|file| file.path.as_path()))?;

        let budget = self.neuron_budget(&model, given)?;
        let neurons = match (self.device_rate, self.cpu_rate) {
            (Some(device), Some(cpu)) => self.for_time(&layers, &counted, budget, device, cpu)?,
            _ => self.for_activations(&layers, &counted, budget)?,
        };
        if counted.layers.iter().all(|counts| counts.total() == 0.0) {
            note(format_args!("{}: all counts are 0: an empty split", self.model.display()));
        } else if budget > 0 && neurons.iter().all(|&k| k == 0) {
            let why = match self.device_rate {
                Some(_) => "the device is too slow, or has room for less than a group of neurons".to_string(),
                None if self.threshold > 0 => {
                    format!(
                        "there is room for less than a group of neurons, or no layer has {}",
                        self.threshold
                    )
                }
                None => "there is room for less than a group of neurons".to_string(),
            };
            let group = UPSTREAM_BATCH;
            note(format_args!("{}: {why} (a group is {group}): an empty split", self.model.display()));
        }
        let chosen = counted.layers.iter().zip(&neurons);
        let index = NeuronIndex {
            vram_capacity: budget,
            layers: chosen
                .map(|(counts, &k)| LayerIndex { n_ff: counts.as_slice().len(), hot: counts.hottest(k) })
                .collect(),
        };
        let bytes = index.to_vec().map_err(|e| model.error(e))?;
        let mut file = NewFile::create(&out)?;
        file.out().write_all(&bytes).map_err(|e| Error::unwritable(&out, &e))?;
        file.finish()?;
        note(format_args!("{}: {}", out.display(), summary(&layers, &counted, &neurons)));
        Ok(())
    }

    /// The budget, which must be a number where no device is there to have a default.
    fn given_budget(&self) -> Result<u64> {
        let remedy = "give the memory of the device in GiB, or --measure";
        match self.context.sparse.vram_budget {
            Some(Budget(Some(budget))) => Ok(budget),
            Some(Budget(None)) => {
                Err(Error::usage(format_args!("--vram-budget -1: there is no default here: {remedy}")))
            }
            None => Err(Error::usage(format_args!("--vram-budget is missing: {remedy}"))),
        }
    }

    /// Bytes that are left for neurons.
    fn neuron_budget(&self, model: &OpenModel, budget: u64) -> Result<u64> {
        let defaults = Defaults { n_ctx: Some(1), kv_type: DType::F16 };
        let options =
            context::engine_options(&self.context, model.n_ctx_train(), defaults, Placing::default())?;
        let kv = match self.context.ctx {
            Some(_) => ffn::kv_bytes(model, options.n_ctx as u64, options.k_type),
            None => 0,
        };
        let dense = ffn::dense_bytes(model);
        let left = budget.checked_sub(dense.saturating_add(kv));
        if left.is_none() {
            note(format_args!(
                "{}: the budget of {} is below the {} of what is not neurons: an empty split, all neurons stay on the CPU; give a \
                 larger --vram-budget, or a smaller --ctx or --kv-type q8_0",
                model.name,
                bytes(budget),
                bytes(dense.saturating_add(kv))
            ));
        }
        Ok(left.unwrap_or(0))
    }

    fn for_activations(&self, layers: &[Layer<'_>], counted: &Counted, budget: u64) -> Result<Vec<usize>> {
        let neuron = layers.iter().map(Layer::neuron_bytes).max().unwrap_or(1).max(1);
        let capacity = match layers.first().filter(|_| self.upstream_bytes) {
            None => budget / neuron,
            Some(layer) => {
                let column = layer.up.dtype.row_bytes(layer.up.ne[1]).unwrap_or(u64::MAX / 8);
                upstream_capacity(budget, column, layer.gate.is_some())
            }
        };
        let request = ActivationRequest { batch: UPSTREAM_BATCH, capacity, threshold: self.threshold };
        most_activations(&counted.layers, request).map_err(Error::usage)
    }

    fn for_time(
        &self,
        layers: &[Layer<'_>],
        counted: &Counted,
        budget: u64,
        device: f64,
        cpu: f64,
    ) -> Result<Vec<usize>> {
        let cost = |(layer, counts)| LayerCost {
            counts,
            n_tokens: counted.n_tokens() as f64,
            bytes: Layer::neuron_bytes(layer),
        };
        let costs: Vec<_> = layers.iter().zip(&counted.layers).map(cost).collect();
        let devices = [Device { rate: device * 1e9, cost: self.device_cost * 1e-6, capacity: budget }];
        let request =
            TimeRequest { layers: &costs, cpu_rate: cpu * 1e9, devices: &devices, batch: UPSTREAM_BATCH };
        let plan = least_time(request).map_err(Error::usage)?;
        let seconds: f64 = plan.seconds.iter().sum();
        note(format_args!(
            "neurons take {:.3} ms a token, decided in groups of {}",
            seconds * 1e3,
            plan.batch
        ));
        Ok(plan.neurons.into_iter().map(|by_device| by_device.iter().sum()).collect())
    }
}

/// `2 layers, 768 of 2048 neurons (37.5 %), 12.0 MiB, 91.0 % of activations`
fn summary(layers: &[Layer<'_>], counted: &Counted, neurons: &[usize]) -> String {
    let all: usize = layers.iter().map(Layer::n_ff).sum();
    let n: usize = neurons.iter().sum();
    let size: u64 = layers.iter().zip(neurons).map(|(layer, &k)| layer.neuron_bytes() * k as u64).sum();
    let covered = counted.layers.iter().zip(neurons).map(|(c, &k)| c.sorted()[..k].iter().sum::<f64>());
    // From 0 on, since the sum of nothing is -0.
    let covered = covered.fold(0.0, |sum, n| sum + n);
    let total: f64 = counted.layers.iter().map(|counts| counts.total()).sum();
    let share = |part: f64, of: f64| if of > 0.0 { 100.0 * part / of } else { 0.0 };
    format!(
        "{}, {n} of {all} neurons ({:.1} %), {}, {:.1} % of activations",
        n_things(layers.len(), "layer"),
        share(n as f64, all as f64),
        bytes(size),
        share(covered, total)
    )
}
