//! The host with its plugins, and the devices a command works with.

use crate::args::Global;
use crate::backend::{self, Offered};
use crate::context::Placing;
use crate::error::{Error, Exit, Result};
use crate::interrupt;
use crate::output::{note, note_at};
use llmrt_abi::Op;
use llmrt_engine::tensor_rules::TensorRule;
use llmrt_gguf::printable_path;
use llmrt_host::sched::{SplitMode, bind};
use llmrt_host::threads::MAX_THREADS;
use llmrt_host::{Candidate, Device, DeviceState, DiscoverOptions, Host, HostOptions, Outcome, knobs};
use std::path::Path;
use std::sync::Arc;

/// The plugin that is linked in, and whose device is the baseline that runs what no other can.
const BASELINE: &str = "cpu";

/// Plugins, and what became of every file.
pub struct Plugins {
    /// The host.
    pub host: Arc<Host>,
    /// Every plugin file that was looked at, in the order it was.
    pub candidates: Vec<Candidate>,
    /// How many of them, the first ones, `--plugin` names.
    n_named: usize,
}

/// What a command computes on.
pub struct Setup {
    /// The host.
    pub host: Arc<Host>,
    /// First choice first, the CPU baseline last.
    pub devices: Vec<Arc<Device>>,
    /// Whether work that falls back to another device is an error.
    pub strict: bool,
    /// How devices share a model.
    pub split: SplitMode,
    /// Weights that are for one device.
    pub tensors: Arc<[TensorRule]>,
    /// 0, 1 or 2 times `-v`.
    pub verbose: u8,
}

impl Plugins {
    /// Loads what `--plugin` names, then the built-in CPU, then the files of the plugin folders.
    ///
    /// Names are unique: of two plugins called `cpu` the one named first is used, so a file given by `--plugin`
    /// takes the place of the built-in one, and a file that is merely found does not.
    ///
    /// A file of `--plugin` that is rejected is an error, since it was named to be used.
    pub fn load(global: &Global) -> Result<Plugins> {
        let plugins = Plugins::look(global)?;
        plugins.check_named()?;
        Ok(plugins)
    }

    /// An error if a file that `--plugin` names was rejected.
    pub fn check_named(&self) -> Result<()> {
        let named = self.candidates.iter().take(self.n_named);
        for Candidate { path, outcome } in named {
            if let Outcome::Rejected(why) = outcome {
                if let Some(e) = self.host.option_error(why) {
                    return Err(e.into());
                }
                let message = format!("--plugin {}: rejected: {why}", printable_path(path));
                return Err(Error::new(Exit::Device, message));
            }
        }
        Ok(())
    }

    /// The same, with whatever was rejected among the candidates, and notes of what may be a mistake.
    pub fn look(global: &Global) -> Result<Plugins> {
        let plugins = Plugins::discover(global, log_sink(global.verbose))?;
        for Candidate { path, outcome } in plugins.candidates.iter().take(plugins.n_named) {
            if let Outcome::Skipped(why) = outcome {
                note(format_args!("{}: not loaded: {why}", printable_path(path)));
            }
        }
        for warning in plugins.warnings() {
            note(format_args!("warning: {warning}"));
        }
        Ok(plugins)
    }

    /// The same without notes.
    pub fn discover(global: &Global, log: Option<llmrt_host::LogSink>) -> Result<Plugins> {
        check_threads(global.threads)?;
        knobs::settings()?;
        let host = Host::new(HostOptions {
            n_threads: global.threads,
            log,
            options: global.plugin_option.iter().cloned().collect(),
            pool: global.pool,
            ..HostOptions::default()
        });
        let named = DiscoverOptions { extra: global.plugins.clone(), only_extra: true };
        let discover = |options: &DiscoverOptions| interrupt::ending_at_once(|| host.discover(options));
        let mut candidates = discover(&named);
        let n_named = candidates.len();
        if !host.plugins_in_use().iter().any(|plugin| plugin.name == BASELINE) {
            host.register_builtin(llmrt_cpu::query)?;
        }
        let found = discover(&DiscoverOptions::default());
        let is_named =
            |path: &Path| candidates.iter().any(|c| c.path.canonicalize().ok() == path.canonicalize().ok());
        let found: Vec<_> = found.into_iter().filter(|c| !is_named(&c.path)).collect();
        candidates.extend(found);
        host.check_options()?;
        Ok(Plugins { host, candidates, n_named })
    }

    /// Settings that may be mistakes.
    pub fn warnings(&self) -> Vec<String> {
        self.host.warnings(&self.candidates)
    }

    /// The error, with why the plugins that `--backend` names are not in use.
    fn with_refusals(&self, mut error: Error, global: &Global) -> Error {
        for Candidate { path, outcome } in &self.candidates {
            let is_named = global.backend.iter().any(|name| backend::names_file(name, path));
            if let (true, Outcome::Rejected(why) | Outcome::Skipped(why)) = (is_named, outcome) {
                error.message.push_str(&format!("\n{}: not loaded: {why}", printable_path(path)));
            }
        }
        error
    }

    /// All devices, as `--backend` names them.
    pub fn offered(&self) -> Vec<(Arc<Device>, Offered)> {
        let plugins = self.host.plugins_in_use();
        let path = |name: &str| plugins.iter().find(|p| p.name == name)?.path.clone();
        let offered = |device: Arc<Device>| {
            let row = Offered {
                id: device.name().into(),
                plugin: device.plugin().into(),
                device: device.info().name.clone(),
                path: path(device.plugin()),
                unusable: unusable(&device),
            };
            (device, row)
        };
        self.host.devices().into_iter().map(offered).collect()
    }

    /// The devices that `--backend` names, or all that are worth using; the CPU baseline comes last.
    pub fn choose(&self, global: &Global) -> Result<Vec<Arc<Device>>> {
        let (all, offered): (Vec<_>, Vec<_>) = self.offered().into_iter().unzip();
        let baseline = self.host.device(BASELINE).ok_or_else(|| {
            Error::new(Exit::Device, "there is no CPU device: leave the --plugin away that is named cpu")
        })?;
        let mut chosen: Vec<Arc<Device>> = match global.backend.is_empty() {
            true => all.into_iter().filter(|device| idle_because(device).is_none()).collect(),
            false => {
                let rows =
                    backend::choose(&global.backend, &offered).map_err(|e| self.with_refusals(e, global))?;
                rows.into_iter().map(|row| all[row].clone()).collect()
            }
        };
        // The baseline runs everything, so a device after it would never get any work.
        let before = chosen.iter().position(|d| Arc::ptr_eq(d, &baseline)).unwrap_or(chosen.len());
        chosen.truncate(before);
        chosen.push(baseline);
        Ok(chosen)
    }
}

impl Setup {
    /// Loads plugins and chooses devices.
    pub fn new(global: &Global) -> Result<Setup> {
        Setup::of(Plugins::load(global)?, global)
    }

    /// Chooses devices of these plugins.
    pub fn of(plugins: Plugins, global: &Global) -> Result<Setup> {
        let devices = plugins.choose(global)?;
        check_rules(global, &devices)?;
        let (strict, split, verbose) = (global.strict_device, global.split, global.verbose);
        let tensors = global.tensor_placement.clone().into();
        Ok(Setup { host: plugins.host, devices, strict, split, tensors, verbose })
    }

    /// The options of the engine about how work is placed.
    pub fn placing(&self) -> Placing {
        let block_size = Some(llmrt_engine::memory::block_size(&self.devices));
        Placing { strict: self.strict, split: self.split, tensors: self.tensors.clone(), block_size }
    }

    /// The devices' ids.
    pub fn device_names(&self) -> Vec<String> {
        self.devices.iter().map(|device| device.name().to_string()).collect()
    }
}

/// Rules of `--tensor-placement` name devices that are used.
fn check_rules(global: &Global, devices: &[Arc<Device>]) -> Result<()> {
    let rules = &global.tensor_placement;
    if !rules.is_empty() && global.split == SplitMode::Rows {
        return Err(Error::usage(
            "--tensor-placement is for whole matrices, and --split row divides them: leave one out",
        ));
    }
    match rules.iter().find(|rule| rule.find(devices).is_none()) {
        Some(rule) => Err(Error::usage(format!(
            "--tensor-placement: {} is not among the devices in use, {}: name it with --backend",
            rule.device(),
            devices.iter().map(|device| device.name()).collect::<Vec<_>>().join(", ")
        ))),
        None => Ok(()),
    }
}

/// Why a device is not used unless `--backend` names it.
pub fn idle_because(device: &Device) -> Option<String> {
    let is_baseline = device.plugin() == BASELINE;
    let modest = (device.priority() < 0)
        .then(|| "its plugin is opt-in: it is used only when named; name it with --backend".into());
    unusable(device).or(modest).or_else(|| {
        (!is_baseline && !runs_matrix_products(device))
            .then(|| "it runs no matrix product; name it with --backend to use it".into())
    })
}

/// Why a device cannot be used at all.
fn unusable(device: &Device) -> Option<String> {
    match device.state() {
        DeviceState::Ready | DeviceState::Open => None,
        DeviceState::Unused(why) | DeviceState::Quarantined(why) => Some(why),
    }
}

fn runs_matrix_products(device: &Device) -> bool {
    llmrt_graph::ops::rules(Op::MulMat).cases().iter().any(|case| {
        let Ok(graph) = bind::unbound(&case.graph) else { return false };
        device.supports(&graph, 0..graph.n_nodes()).is_ok_and(|v| v.last().is_some_and(|v| v.support != 0))
    })
}

pub fn check_threads(n: Option<usize>) -> Result<()> {
    match n {
        None | Some(1..=MAX_THREADS) => Ok(()),
        Some(n) => Err(Error::usage(format!(
            "--threads {n}: expected 1 to {MAX_THREADS}; leave it out for one thread per core"
        ))),
    }
}

/// Without `-v` the knob decides which messages of plugins are shown.
pub fn log_sink(verbose: u8) -> Option<llmrt_host::LogSink> {
    let most = match verbose {
        0 => return None,
        1 => 3,
        _ => 5,
    };
    Some(Arc::new(move |level, target, text| {
        if level <= most {
            note_at(level, format_args!("{target}: {text}"));
        }
    }))
}
