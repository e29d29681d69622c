//! A model on its devices, ready to step: placed, loaded, its memory allocated. A device that fails is left out,
//! and loading starts again on the rest.

use crate::error::{Error, Result};
use crate::memory::PlacementPlan;
use crate::neurons;
use crate::options::EngineOptions;
use crate::program::{Counting, StepShape};
use crate::programs::Programs;
use crate::runner::Adapting;
use llmrt_host::load::{self, LoadOptions, ModelFiles};
use llmrt_host::sched::executor::Executor;
use llmrt_host::sched::limits::strict;
use llmrt_host::{Device, DeviceState};
use llmrt_models::Model;
use std::sync::Arc;

/// What an engine computes with.
pub(crate) struct Deployment {
    pub model: Model,
    /// First choice first, the baseline last.
    pub devices: Vec<Arc<Device>>,
    pub executor: Executor,
    /// Graphs made so far.
    pub programs: Programs,
    /// Shape of the last of them.
    pub last: Option<StepShape>,
    /// Neurons that change places between steps.
    pub adapting: Option<Adapting>,
    /// Requests that were fulfilled in part: memory not locked, devices left out.
    pub warnings: Vec<String>,
}

impl Deployment {
    /// Assembles on as many of `devices` as work. Strict placement requires all of them.
    pub fn new(
        mut devices: Vec<Arc<Device>>,
        files: &Arc<ModelFiles>,
        mut load: LoadOptions<'_>,
        options: &EngineOptions,
    ) -> Result<Deployment> {
        let mut left_out = Vec::new();
        let mut most = 0.0;
        loop {
            // Progress never decreases, on a second try neither.
            let mut progress = |part: f32| {
                let is_more = part > most || (part == 0.0 && most == 0.0);
                most = part.max(most);
                !is_more || load.progress.as_mut().is_none_or(|progress| progress(part))
            };
            let load = LoadOptions { progress: Some(&mut progress), ..load };
            match Deployment::attempt(&devices, files, load, options) {
                Ok(mut deployment) => {
                    deployment.warnings.splice(0..0, left_out);
                    return Ok(deployment);
                }
                Err(e) => {
                    let Some(d) = lost(&devices, &e).filter(|_| !options.strict) else { return Err(e) };
                    left_out.push(format!("{} is not used: {e}", devices.remove(d).name()));
                }
            }
        }
    }

    fn attempt(
        devices: &[Arc<Device>],
        files: &Arc<ModelFiles>,
        load: LoadOptions<'_>,
        options: &EngineOptions,
    ) -> Result<Deployment> {
        let placement = PlacementPlan::new(devices, files, options)?;
        if options.strict {
            strict(&placement.resolved.report)?;
            if let Some(warning) = placement.warnings.first() {
                return Err(Error::Strict { problem: warning.clone() });
            }
        }
        placement.check_memory()?;
        // Files of the cache are mapped, and not written.
        let seal_cache = load.seal_cache.filter(|_| options.neurons.adapt.is_none());
        let requests = placement.weight_requests();
        let weights = load::load(files, &requests, LoadOptions { seal_cache, ..load })?;
        let mut warnings = [&placement.notes[..], &placement.warnings].concat();
        warnings.extend_from_slice(weights.warnings());
        let states = placement.states();
        let PlacementPlan { model, devices, sharing, .. } = placement;
        let swap_limit = options.neurons.adapt.filter(|_| !sharing.neurons.layers.is_empty());
        let counting = Counting { needed: options.count_needed, firings: swap_limit.is_some() };
        let neurons = sharing.neurons.clone();
        let mut executor = Executor::new(
            devices.clone(),
            files.clone(),
            weights,
            states,
            options.n_threads,
            (options.strict, sharing),
        )?;
        let (programs, last) = Programs::prepare(&model, &mut executor, options, counting)?;
        let adapting = swap_limit.map(|limit| {
            let adaptation = neurons::adaptation(&model, files, options, &neurons, limit)?;
            Adapting::new(adaptation, requests, &executor)
        });
        let adapting = adapting.transpose()?;
        Ok(Deployment { model, devices, executor, programs, last, adapting, warnings })
    }
}

/// The device in front of the baseline that a failure has cost: one that can no longer be used, or one whose memory
/// turned out too small.
pub(crate) fn lost(devices: &[Arc<Device>], e: &Error) -> Option<usize> {
    let others = &devices[..devices.len().saturating_sub(1)];
    let is_gone = |d: &Arc<Device>| matches!(d.state(), DeviceState::Unused(_) | DeviceState::Quarantined(_));
    others.iter().position(is_gone).or_else(|| {
        let call = e.device_call().filter(|_| e.is_out_of_device_memory())?;
        others.iter().position(|d| d.name() == call.who)
    })
}
