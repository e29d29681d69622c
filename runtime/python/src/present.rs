//! Which plugins and devices there are.

use crate::error::Failure;
use crate::settings::{host, places};
use llmrt::Present;
use llmrt::host::device::DeviceState;
use llmrt::host::{Candidate, Outcome};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `(name, kind, description, plugin, memory_total, memory_free, unused)` of a device.
type DeviceRow = (String, &'static str, String, String, u64, Option<u64>, Option<String>);

/// `(file, state, name, version, reason)` of a plugin.
type PluginRow = (Option<PathBuf>, &'static str, Option<String>, Option<String>, Option<String>);

fn search(py: Python<'_>, plugins: Vec<PathBuf>, options: BTreeMap<String, String>) -> PyResult<Present> {
    let found = py.detach(|| Present::search(host(None, options), &places(plugins)));
    Ok(found.map_err(Failure::from)?)
}

/// A row for each device, the preferred ones first.
#[pyfunction]
pub fn devices(
    py: Python<'_>,
    plugins: Vec<PathBuf>,
    plugin_options: BTreeMap<String, String>,
) -> PyResult<Vec<DeviceRow>> {
    let present = search(py, plugins, plugin_options)?;
    let row = |device: &std::sync::Arc<llmrt::host::Device>| {
        let info = device.info();
        let unused = match device.state() {
            DeviceState::Ready | DeviceState::Open if device.priority() < 0 => {
                Some("its plugin is opt-in: it is used where `devices` names it".to_string())
            }
            DeviceState::Ready | DeviceState::Open => None,
            DeviceState::Unused(why) | DeviceState::Quarantined(why) => Some(why),
        };
        let memory = device.memory().ok();
        let total = memory.map_or(info.memory_total, |(_, total)| total);
        let free = memory.map(|(free, _)| free);
        let (name, plugin) = (device.name().to_string(), device.plugin().to_string());
        (name, info.kind_name(), info.description.clone(), plugin, total, free, unused)
    };
    Ok(py.detach(|| present.host.devices().iter().map(row).collect()))
}

/// A row for each plugin: the one that is part of this library, then the files.
#[pyfunction]
pub fn plugins(
    py: Python<'_>,
    plugins: Vec<PathBuf>,
    plugin_options: BTreeMap<String, String>,
) -> PyResult<Vec<PluginRow>> {
    let present = search(py, plugins, plugin_options)?;
    let in_use = present.host.plugins_in_use();
    let built_in = in_use.into_iter().filter(|plugin| plugin.path.is_none());
    let built_in = built_in.map(|plugin| (None, "loaded", Some(plugin.name), Some(plugin.version), None));
    let of_file = |Candidate { path, outcome }: Candidate| match outcome {
        Outcome::Loaded { name, version, .. } => (Some(path), "loaded", Some(name), Some(version), None),
        Outcome::Rejected(why) => (Some(path), "rejected", None, None, Some(why)),
        Outcome::Skipped(why) => (Some(path), "skipped", None, None, Some(why)),
    };
    Ok(built_in.chain(present.files.into_iter().map(of_file)).collect())
}
