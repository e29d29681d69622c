//! Logits of given tokens, computed in steps of given sizes.

use llmrt_engine::{DeviceRunner, EngineCore, EngineEvent, EngineOptions, Error, Request};
use llmrt_host::load::{LoadMode, LoadOptions, ModelFiles};
use llmrt_host::sched::report::Report;
use llmrt_host::{Device, Host};
use std::sync::Arc;

/// Requests on devices.
pub type Core = EngineCore<DeviceRunner>;

/// A model on devices, without a tokenizer.
pub fn core(
    host: &Arc<Host>,
    devices: Vec<Arc<Device>>,
    files: ModelFiles,
    options: EngineOptions,
) -> Result<Core, Error> {
    core_in(LoadMode::Mmap, host, devices, files, options)
}

/// The same, with the weights loaded in this way.
pub fn core_in(
    mode: LoadMode,
    host: &Arc<Host>,
    devices: Vec<Arc<Device>>,
    files: ModelFiles,
    options: EngineOptions,
) -> Result<Core, Error> {
    let load = LoadOptions { mode, check_tensors: true, ..LoadOptions::default() };
    DeviceRunner::new(host, devices, files, load, options)?.into_core(None)
}

/// Tokens of a vocabulary of 300, and the sizes of steps that compute them: a prompt in chunks, then single tokens.
pub fn usual() -> (Vec<u32>, [usize; 4]) {
    ((0..20).map(|i| 3 + i * 7).chain([5, 250, 17]).collect(), [7, 5, 8, 1])
}

/// A request for the logits after all of these tokens, and for nothing after them.
pub fn all_logits(tokens: &[u32]) -> Request {
    Request::logits(tokens.to_vec(), 0)
}

/// What steps led to.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// `[n_tokens, n_vocab]`.
    pub logits: Vec<f32>,
    /// Where each step ran.
    pub reports: Vec<Report>,
}

impl Steps {
    /// The bits of all logits.
    pub fn bits(&self) -> Vec<u32> {
        self.logits.iter().map(|x| x.to_bits()).collect()
    }

    /// Where the last step ran.
    pub fn last_report(&self) -> &Report {
        self.reports.last().expect("there was a step")
    }
}

/// Computes tokens in steps of these sizes, the last repeating.
pub fn run(core: &mut Core, tokens: &[u32], sizes: &[usize]) -> Steps {
    let mut steps = Steps::default();
    core.add(all_logits(tokens)).unwrap();
    let mut size = 1;
    let mut sizes = sizes.iter();
    while !core.is_idle() {
        size = sizes.next().copied().unwrap_or(size);
        core.set_max_num_batched_tokens(size).unwrap();
        steps.logits.extend(logits(core.step().unwrap()));
        steps.reports.push(core.runner().report().unwrap().clone());
    }
    steps
}

/// The logits of a step's events, one row after the other.
pub fn logits(events: Vec<EngineEvent>) -> Vec<f32> {
    let rows = events.into_iter().filter_map(|event| match event {
        EngineEvent::Logits { logits, .. } => Some(logits),
        EngineEvent::Failed { error, .. } => panic!("{error}"),
        _ => None,
    });
    rows.flatten().collect()
}
