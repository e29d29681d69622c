//! The plugin under test, opened in this process.

use crate::outcome::{Trouble, Verdict, lacking, wrong};
use crate::problem::Problem;
use llmrt_abi::Op;
use llmrt_graph::ops::{case::Case, rules};
use llmrt_host::{Device, DeviceState, Host, HostOptions, Outcome as Loaded, PoolKind, Stream};
use serde_json::json;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a plugin that loads cannot be tested on a machine without its hardware.
pub const NO_DEVICE: &str = "the plugin found no device";

/// What is tested, and how.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The plugin's file.
    pub plugin: PathBuf,
    /// The device to test, by id or name; `None`: the plugin's first.
    pub device: Option<String>,
    /// The plugin's options.
    pub plugin_options: Vec<(String, String)>,
    /// How scratch memory is managed where a case does not set it; `None`: the knob.
    pub pool: Option<PoolKind>,
    /// Source of all random numbers.
    pub seed: u64,
    /// Threads of the pool that plugins may use.
    pub n_threads: usize,
    /// A model whose nodes become cases.
    pub model: Option<PathBuf>,
    /// A repro file that becomes a case.
    pub repro: Option<PathBuf>,
}

/// The plugin under test. Loaded when the first case needs it.
pub struct Session {
    /// What is tested, and how.
    pub options: Options,
    /// Mask of the signals this process caught before anything was loaded.
    pub signals_at_start: u64,
    host: Option<Arc<Host>>,
    device: Option<Arc<Device>>,
    stream: Option<Stream>,
    pub(crate) cases: HashMap<Op, Vec<Case>>,
    recorded: Option<Result<Vec<Problem>, String>>,
}

impl Session {
    /// Nothing is loaded yet.
    pub fn new(options: Options) -> Session {
        let (cases, signals_at_start) = (HashMap::new(), caught_signals());
        Session { options, signals_at_start, host: None, device: None, stream: None, cases, recorded: None }
    }

    /// The host with the plugin in it, and no other.
    pub fn host(&mut self) -> Verdict<Arc<Host>> {
        if let Some(host) = &self.host {
            return Ok(host.clone());
        }
        let host = fresh_host(&self.options)?;
        self.host = Some(host.clone());
        Ok(host)
    }

    /// The device under test, open.
    pub fn device(&mut self) -> Verdict<Arc<Device>> {
        if let Some(device) = &self.device {
            return Ok(device.clone());
        }
        let host = self.host()?;
        let device = choose(&host, self.options.device.as_deref())?;
        device.open()?;
        self.device = Some(device.clone());
        Ok(device)
    }

    /// The plugin's other devices that can be used.
    pub fn other_devices(&mut self) -> Verdict<Vec<Arc<Device>>> {
        let device = self.device()?;
        let usable = |d: &Arc<Device>| matches!(d.state(), DeviceState::Ready | DeviceState::Open);
        let devices = self.host()?.devices().into_iter();
        Ok(devices.filter(|d| !Arc::ptr_eq(d, &device) && usable(d)).collect())
    }

    /// A stream that cases share.
    pub fn stream(&mut self) -> Verdict<Stream> {
        if let Some(stream) = &self.stream {
            return Ok(stream.clone());
        }
        let stream = self.device()?.stream(0)?;
        self.stream = Some(stream.clone());
        Ok(stream)
    }

    /// Lets go of everything, so that the plugin is shut down.
    pub fn close(&mut self) {
        (self.stream, self.device, self.host) = (None, None, None);
    }

    /// A case of an op, with its operands' values.
    pub fn problem(&mut self, op: Op, row: usize) -> Verdict<Problem> {
        let seed = self.options.seed;
        match self.cases(op).get(row) {
            Some(case) => Problem::of_case(case, seed),
            None => wrong(format!("{op} has no case {row}")),
        }
    }

    /// The cases of an op.
    pub fn cases(&mut self, op: Op) -> &[Case] {
        self.cases.entry(op).or_insert_with(|| rules(op).cases())
    }

    /// Cases made of the model and the repro file, by name.
    pub fn recorded_names(&mut self) -> Vec<(Op, String)> {
        let recorded = self.recorded().as_ref().map(Vec::as_slice).unwrap_or_default();
        recorded.iter().map(|p| (p.node().op, p.name.clone())).collect()
    }

    /// Why the model or the repro file cannot be used.
    pub fn recorded_failure(&mut self) -> Option<String> {
        self.recorded().as_ref().err().cloned()
    }

    /// One of these.
    pub fn recorded_problem(&mut self, row: usize) -> Verdict<Problem> {
        match self.recorded() {
            Ok(problems) => problems.get(row).cloned().ok_or(Trouble::Wrong("no such case".into())),
            Err(why) => wrong(why.clone()),
        }
    }

    fn recorded(&mut self) -> &Result<Vec<Problem>, String> {
        let options = &self.options;
        self.recorded.get_or_insert_with(|| crate::recorded::problems(options))
    }

    /// What is tested, as JSON.
    pub fn describe(&mut self) -> Verdict<String> {
        let device = self.device()?;
        let host = self.host()?;
        let Some(plugin) = host.plugins_in_use().into_iter().next() else {
            return wrong("the plugin is loaded and not in use");
        };
        let info = device.info();
        Ok(json!({
            "plugin": plugin.name, "version": plugin.version, "vendor": plugin.vendor,
            "abi_minor": plugin.abi_minor, "device": device.name(), "description": info.description,
            "arch": info.arch, "memory_total": info.memory_total, "n_devices": host.devices().len(),
        })
        .to_string())
    }
}

/// A host with the plugin alone.
pub fn fresh_host(options: &Options) -> Verdict<Arc<Host>> {
    let host = Host::new(HostOptions {
        n_threads: Some(options.n_threads.max(1)),
        options: options.plugin_options.iter().cloned().collect(),
        pool: options.pool,
        disabled: Some(String::new()),
        ..HostOptions::default()
    });
    match host.load(options.plugin.clone()).outcome {
        Loaded::Loaded { .. } => Ok(host),
        Loaded::Rejected(why) => wrong(format!("rejected: {why}")),
        Loaded::Skipped(why) => wrong(format!("it cannot be tested here: {why}")),
    }
}

/// The selected device, or the first in the host's order.
pub fn choose(host: &Host, name: Option<&str>) -> Verdict<Arc<Device>> {
    let found = match name {
        // A plugin's name, which a host takes for its first device, may be a device's too.
        Some(name) => {
            let own = host.devices().into_iter().find(|d| d.info().name == name);
            own.or_else(|| host.device(name))
        }
        None => host.devices().into_iter().next(),
    };
    match (found, name) {
        (Some(device), _) => Ok(device),
        (None, Some(name)) => wrong(format!("the plugin has no device {name}")),
        (None, None) => lacking(NO_DEVICE),
    }
}

/// Mask of the signals this process has handlers for; 0 where the system does not report it. Without 32 and 33, which the C
/// library keeps for its threads.
pub fn caught_signals() -> u64 {
    let mask = process_status("SigCgt:").and_then(|text| u64::from_str_radix(&text, 16).ok());
    mask.unwrap_or(0) & !(0b11 << 31)
}

/// Bytes of memory this process has in use; `None` where the system does not report it.
pub fn resident_bytes() -> Option<u64> {
    let kib: u64 = process_status("VmRSS:")?.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn process_status(key: &str) -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(key))?.trim().to_string())
}
