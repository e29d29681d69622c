//! The host: every loaded plugin, and its devices.

use super::checklist::{self, Identity, Refusal};
use super::custom::CustomOp;
use super::lifecycle::Module;
use super::loaded::PluginDesc;
use super::open::StartError;
use super::search::{self, DiscoverOptions, Found, Surroundings};
use super::services::{LogSink, Services};
use super::{Query, open};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::knobs;
use crate::pool::PoolKind;
use crate::threads::ThreadPool;
use llmrt_abi::types as c;
use llmrt_gguf::printable_path;
use parking_lot::{Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How to make a host.
#[derive(Clone, Default)]
pub struct HostOptions {
    /// Threads of the pool, the calling one included; `None`: the knob, then one per core.
    pub n_threads: Option<usize>,
    /// Values of the plugins' options; the knob adds to them.
    pub options: BTreeMap<String, String>,
    /// Where log lines go; `None`: standard error, at the knob's level.
    pub log: Option<LogSink>,
    /// Names of plugins not to load, as `LLMRT_PLUGINS_DISABLE`; `None`: the knob.
    pub disabled: Option<String>,
    /// Whether every call of a plugin is checked, as `LLMRT_VALIDATE`; `None`: the knob.
    pub validate: Option<bool>,
    /// How long one call of a device may take to compute or to wait; `None`: the knob.
    pub watchdog: Option<Duration>,
    /// How scratch memory of devices is managed, as `LLMRT_POOL`; `None`: the knob.
    pub pool: Option<PoolKind>,
}

/// The registry of plugins and devices, and the thread pool they share.
pub struct Host {
    services: Arc<Services>,
    disabled: String,
    plugins: Mutex<Vec<Entry>>,
    /// Refused without a line in the log.
    quietly_refused: Mutex<Vec<Candidate>>,
}

struct Entry {
    identity: Identity,
    module: Module,
}

/// A file that was considered, and the outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The file.
    pub path: PathBuf,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is in use.
    Loaded {
        /// The plugin's name.
        name: String,
        /// Its version.
        version: String,
        /// Devices it found.
        n_devices: usize,
    },
    /// Something is wrong with it.
    Rejected(String),
    /// Nothing is wrong with it, but it is not for this machine or run.
    Skipped(String),
}

/// Reads `KEY=VALUE`, as plugin options are given.
pub fn option_pair(text: &str) -> Option<(String, String)> {
    let (key, value) = text.split_once('=')?;
    let key = key.trim();
    (!key.is_empty()).then(|| (key.to_string(), value.to_string()))
}

impl Host {
    /// A host without plugins. What the options leave open comes from the environment; variables with values they
    /// cannot have count as unset and are logged. A program that should end with an error instead calls
    /// [`knobs::settings`] first.
    pub fn new(mut options: HostOptions) -> Arc<Host> {
        let parsed = knobs::settings();
        let settings = parsed.clone().unwrap_or(knobs::Settings::defaults());
        for (key, value) in &settings.options {
            options.options.entry(key.clone()).or_insert(value.clone());
        }
        let disabled = || knobs::PLUGINS_DISABLE.text().map(|text| text.to_string_lossy().into_owned());
        let watchdog = options.watchdog.or(settings.watchdog).filter(|t| !t.is_zero());
        let pool = ThreadPool::new(options.n_threads.unwrap_or(settings.n_threads), settings.spin);
        let validate = options.validate.unwrap_or(settings.validate);
        let host = Host {
            services: Services::new(pool, options.options, options.log, validate, watchdog, options.pool),
            disabled: options.disabled.or_else(disabled).unwrap_or_default(),
            plugins: Mutex::default(),
            quietly_refused: Mutex::default(),
        };
        if let Err(e) = parsed {
            host.services.log_line(1, &e.to_string());
        }
        Arc::new(host)
    }

    /// An error for an option of a plugin that the host itself reads and that has a value it cannot have.
    pub fn check_options(&self) -> Result<()> {
        let check = |plugin: &PluginDesc| PoolKind::of_options(&self.services, &plugin.name).map(drop);
        self.plugins_in_use().iter().try_for_each(check)
    }

    /// What of the settings may be a mistake, once plugins are loaded: folders that are not searched, variables and
    /// options that nothing reads, each with the nearest name.
    pub fn warnings(&self, candidates: &[Candidate]) -> Vec<String> {
        let in_use: Vec<_> = self.plugins_in_use().into_iter().map(|plugin| plugin.name).collect();
        let named = |candidate: &Candidate| {
            let file = candidate.path.file_name()?.to_str()?;
            Some(file.strip_prefix("libllmrt_")?.strip_suffix(".so")?.to_string())
        };
        let plugins: Vec<_> = in_use.iter().cloned().chain(candidates.iter().filter_map(named)).collect();
        let mut read = self.options_read();
        // The host's own option of every plugin, read when a device makes its first stream.
        read.extend(in_use.iter().map(|plugin| format!("{plugin}.pool")));
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let mut warnings = knobs::relative_plugin_paths();
        warnings.extend(self.disabled_but_built_in());
        warnings.extend(knobs::unknown_variables(variables, &read, &plugins));
        warnings.extend(knobs::unread_options(self.services.options_set(), &read, &in_use));
        warnings
    }

    /// A plugin that is linked into the program and that `LLMRT_PLUGINS_DISABLE` names, not by a pattern.
    fn disabled_but_built_in(&self) -> Option<String> {
        let plugins = self.plugins_in_use();
        let mut built_in = plugins.iter().filter(|plugin| plugin.path.is_none());
        let is_named = |name: &str| self.disabled.split(',').any(|pattern| pattern.trim() == name);
        let name = &built_in.find(|plugin| is_named(&plugin.name))?.name;
        let variable = knobs::PLUGINS_DISABLE.name;
        Some(format!(
            "{variable}={name}: {name} is built in and stays in use, as it computes what no other device can"
        ))
    }

    /// The error for a plugin that did not start since it refuses the value of an option: `reason` names one that is set.
    pub fn option_error(&self, reason: &str) -> Option<Error> {
        let refused = |key: &String| {
            let at = reason.find(key.as_str())?;
            let set = self.services.option_as_set(key)?;
            let named = format!("{key}={}: ", self.services.option(key)?);
            let reason = &reason[at..];
            Some(Error::PluginOption {
                set,
                reason: reason.strip_prefix(&named).unwrap_or(reason).to_string(),
            })
        };
        self.options_read().iter().find_map(refused)
    }

    /// Lets in a plugin that is linked into the program, through the same table that a loaded one has.
    pub fn register_builtin(&self, query: Query) -> Result<()> {
        let built_in = || PathBuf::from("(built in)");
        let failed = |reason| Error::Load { path: built_in(), reason };
        let mut plugins = self.plugins();
        let module = open::start(query, None, None, &self.services).map_err(|e| {
            let reason = e.into_text();
            self.option_error(&reason).unwrap_or_else(|| failed(reason))
        })?;
        let name = &module.0.desc.name;
        if plugins.iter().any(|entry| entry.module.0.desc.name == *name) {
            let reason = format!("a plugin named {name} is loaded already");
            return Err(failed(reason));
        }
        let identity = Identity::built_in(name);
        self.admit(&mut plugins, Entry { identity, module });
        Ok(())
    }

    /// Searches for plugin files and loads the valid ones; reports the outcome of every file.
    pub fn discover(&self, options: &DiscoverOptions) -> Vec<Candidate> {
        let found = search::candidates(options, &Surroundings::of_process());
        let load = |found| match found {
            Found::File(path) => {
                let outcome = self.try_load(&path);
                self.candidate(path, outcome, options.only_extra)
            }
            Found::UnsafeFolder(path, why) => {
                self.candidate(path, Err(Refusal::Rejected(why)), options.only_extra)
            }
        };
        found.into_iter().map(load).collect()
    }

    /// Lets in one file.
    pub fn load(&self, path: PathBuf) -> Candidate {
        let outcome = self.try_load(&path);
        self.candidate(path, outcome, true)
    }

    /// A file and its outcome. A valid plugin that was found by search, not named, and has no device or driver on this
    /// machine causes no warning.
    fn candidate(&self, path: PathBuf, outcome: Result<Outcome, Refusal>, is_named: bool) -> Candidate {
        let is_quiet = !is_named && matches!(outcome, Err(Refusal::NotStarted(_)));
        let outcome = outcome.unwrap_or_else(|refusal| match refusal {
            Refusal::Rejected(reason) | Refusal::NotStarted(reason) => Outcome::Rejected(reason),
            Refusal::Skipped(reason) => Outcome::Skipped(reason),
        });
        if let Outcome::Rejected(reason) = &outcome {
            let level = if is_quiet { 3 } else { 2 };
            self.services.log_line(level, &format!("{}: not loaded: {reason}", printable_path(&path)));
        }
        let candidate = Candidate { path, outcome };
        if is_quiet {
            let mut quiet = self.quietly_refused.lock();
            quiet.push(candidate.clone());
        }
        candidate
    }

    fn try_load(&self, path: &Path) -> Result<Outcome, Refusal> {
        let mut plugins = self.plugins();
        let loaded: Vec<_> = plugins.iter().map(|entry| entry.identity.clone()).collect();
        let checked = checklist::check_file(path, &loaded, &self.disabled)?;
        let manifest = &checked.manifest;
        for key in &manifest.unknown {
            let key = key.escape_debug();
            self.services.log_line(2, &format!("plugin {}: manifest key `{key}` is unknown", manifest.name));
        }
        let query = open::open_file(&checked).map_err(|e| Refusal::Rejected(manifest.with_hint(e)))?;
        let module = open::start(query, Some(checked.path.clone()), Some(manifest), &self.services);
        let module = module.map_err(|e| match e {
            StartError::Rejected(e) => Refusal::Rejected(manifest.with_hint(e)),
            StartError::InitFailed(e) => Refusal::NotStarted(manifest.with_hint(e)),
        })?;
        let desc = &module.0.desc;
        let n_devices = module.1.len();
        let outcome = Outcome::Loaded { name: desc.name.clone(), version: desc.version.clone(), n_devices };
        self.admit(&mut plugins, Entry { identity: checked.identity, module });
        Ok(outcome)
    }

    /// Steps 16 and 18: hardware that two plugins offer is used through the first; one log line.
    fn admit(&self, plugins: &mut Vec<Entry>, entry: Entry) {
        for device in &entry.module.1 {
            let others = plugins.iter().flat_map(|other| &other.module.1);
            if let Some(same) = others.into_iter().find(|other| other.info().is_same_hardware(device.info()))
            {
                device.set_unused(format!("the same hardware as {}", same.name()));
            }
        }
        let desc = &entry.module.0.desc;
        let (n, time) = (entry.module.1.len(), desc.init_time);
        self.services
            .log_line(3, &format!("plugin {} {}: {n} devices, init took {time:?}", desc.name, desc.version));
        plugins.push(entry);
    }

    /// Plugins that were found, not named, and whose `init` failed: no card, no driver. The log has them at level info
    /// only.
    pub fn quietly_refused(&self) -> Vec<Candidate> {
        self.quietly_refused.lock().clone()
    }

    /// All devices, the most capable first: by kind (CPUs last), then the plugin's priority, then name.
    pub fn devices(&self) -> Vec<Arc<Device>> {
        let mut devices: Vec<_> = self.plugins().iter().flat_map(|entry| entry.module.1.clone()).collect();
        devices.sort_by_key(|device| {
            let is_cpu = device.info().kind == c::DEVICE_CPU;
            (is_cpu, Reverse(device.plugin.desc.priority), device.info().kind, device.name().to_string())
        });
        devices
    }

    /// The device with this id, or the first one of the plugin with this name.
    pub fn device(&self, id: &str) -> Option<Arc<Device>> {
        let devices = self.devices();
        let is_named = |d: &Arc<Device>| d.name() == id || format!("{}:{}", d.plugin(), d.info().name) == id;
        devices.iter().find(|d| is_named(d)).or_else(|| devices.iter().find(|d| d.plugin() == id)).cloned()
    }

    /// The plugins in use, in load order.
    pub fn plugins_in_use(&self) -> Vec<PluginDesc> {
        self.plugins().iter().map(|entry| entry.module.0.desc.clone()).collect()
    }

    /// The custom op of a loaded plugin, for graph builders; the error names the versions that are loaded.
    pub fn find_op(&self, name: &str, version: u32) -> Result<CustomOp> {
        let ops = self.custom_ops();
        let found = ops.iter().find(|op| (op.name(), op.version()) == (name, version));
        found.cloned().ok_or_else(|| Error::NoOp {
            op: name.into(),
            version,
            versions: ops.iter().filter(|op| op.name() == name).map(CustomOp::version).collect(),
        })
    }

    /// All custom ops of loaded plugins.
    pub fn custom_ops(&self) -> Vec<CustomOp> {
        let mut ops = self.services.custom_ops();
        for entry in self.plugins().iter() {
            let theirs = &entry.module.0.services;
            // A plugin that another host of this process started registered there.
            if !Arc::ptr_eq(theirs, &self.services) {
                ops.extend(theirs.custom_ops());
            }
        }
        ops
    }

    /// The one thread pool.
    pub fn threads(&self) -> &Arc<ThreadPool> {
        &self.services.pool
    }

    /// Requests plugins to stop working on a run.
    pub fn cancel(&self, run_id: u64) {
        self.set_cancelled(run_id, true);
    }

    /// Forgets a cancelled run, so that its number may be used again.
    pub fn forget_run(&self, run_id: u64) {
        self.set_cancelled(run_id, false);
    }

    /// For tests of plugins: the options that this host's plugins read, set or not.
    pub fn options_read(&self) -> Vec<String> {
        self.services.options_read()
    }

    fn set_cancelled(&self, run_id: u64, yes: bool) {
        self.services.set_cancelled(run_id, yes);
        for entry in self.plugins().iter() {
            // A plugin that another host of this process started calls that host's services.
            entry.module.0.services.set_cancelled(run_id, yes);
        }
    }

    fn plugins(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.plugins.lock()
    }
}
