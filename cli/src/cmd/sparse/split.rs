//! `llmrt sparse solve --measure`: the split of the least time on the devices that are here, kept beside the model.

use super::inputs;
use super::times::times_line;
use crate::args::{ContextArgs, Global};
use crate::context::{self, Defaults};
use crate::error::{Error, Result};
use crate::model::OpenModel;
use crate::output::{bytes, note};
use crate::setup::Setup;
use llmrt_abi::DType;
use llmrt_engine::memory::PlacementPlan;
use llmrt_engine::neurons;
use llmrt_sparse::stats::Split;
use std::sync::Arc;

/// Measures the devices and writes a split for them; one of the same devices is replaced.
pub fn write(global: &Global, model: &OpenModel, context: &ContextArgs) -> Result<()> {
    let failed = |e: llmrt_engine::Error| Error::from(e).of_model(&model.name);
    let setup = Setup::new(global)?;
    let [devices @ .., _cpu] = &setup.devices[..] else { return Err(no_device()) };
    if devices.is_empty() {
        return Err(no_device());
    }
    let (mut file, known) = inputs::stats_to_write(model, false)?;
    if file.counts.is_empty() {
        return Err(inputs::no_counts(model));
    }
    let defaults = Defaults { n_ctx: None, kv_type: DType::F16 };
    let mut options = context::engine_options(context, model.n_ctx_train(), defaults, setup.placing())?;
    let files = &model.files;
    let rates = neurons::rates(&setup.devices, files, &options).map_err(failed)?;
    options.neurons.rates = Some(rates.clone().into());
    let plan = PlacementPlan::new(&setup.devices, files, &options).map_err(failed)?;
    let divided = &plan.sharing.neurons.layers;
    // A split without neurons on the first device would stay where there is memory for some later.
    if let Some(undivided) = &plan.undivided {
        return Err(model.error(format_args!("no split is written: {}", undivided.reason)));
    }
    if divided.is_empty() || plan.devices.len() != setup.devices.len() {
        let why = "no split is written: neurons are not divided, since none is sparse, --tensor-placement has all on one device, or \
                   --strict-device forbids it without --vram-budget";
        return Err(model.error(why));
    }
    let times =
        neurons::times(&plan.devices, files, &options, &plan.sharing.neurons, &rates).map_err(failed)?;
    let split = Split {
        devices: devices.iter().map(|device| device.name().to_string()).collect(),
        bytes: plan.resolved.report.neurons.iter().take(devices.len()).map(|(_, bytes)| *bytes).collect(),
        device_of: divided.values().map(|lists| device_of(lists)).collect(),
    };
    let on_devices = split.bytes.iter().sum();
    file.splits.retain(|other| other.devices != split.devices);
    file.splits.push(split);
    let path = inputs::stats_path(model);
    inputs::save(&path, &file, &known)?;
    note(format_args!(
        "{}: {} of neurons on devices; {}",
        path.display(),
        bytes(on_devices),
        times_line(&plan.devices, &times)
    ));
    Ok(())
}

/// By neuron: 0 the CPU, else a device, counted from 1.
fn device_of(lists: &[Arc<[u32]>]) -> Vec<u8> {
    let n = lists.iter().map(|list| list.len()).sum();
    let mut of = vec![0; n];
    for (d, list) in lists.split_last().map_or(&[][..], |(_cpu, rest)| rest).iter().enumerate() {
        list.iter().for_each(|&id| of[id as usize] = (d + 1) as u8);
    }
    of
}

fn no_device() -> Error {
    Error::usage("--measure: no device besides the CPU is used; name one with --backend")
}
