//! Plugins and devices, as `llmrt plugins` and `llmrt devices` have them.

use super::report::{Level, Report};
use crate::args::Global;
use crate::backend;
use crate::output::{bytes, n_things, note};
use crate::setup::{Plugins, idle_because, log_sink};
use llmrt_gguf::printable_path;
use llmrt_host::{Candidate, LogSink, Outcome, knobs};
use std::sync::Arc;

/// Loads the plugins and reports each, then each device; `None` where none can be loaded.
pub fn check(report: &Report, global: &Global) -> Option<Plugins> {
    // A value that a variable cannot have is reported already.
    knobs::settings().ok()?;
    let plugins = match Plugins::discover(&probing(global), Some(probes_to(report.clone(), global.verbose))) {
        Ok(plugins) => plugins,
        Err(e) => {
            report.problem("plugin", e.message);
            return None;
        }
    };
    plugins.warnings().iter().for_each(|warning| report.warning("environment", warning));
    list_plugins(report, global, &plugins);
    list_devices(report, global, &plugins);
    Some(plugins)
}

/// With the option `NAME.probe` of each plugin that `--backend` names, at which it tries what it assumes of its devices.
fn probing(global: &Global) -> Global {
    let mut probing = global.clone();
    let names = global.backend.iter().filter_map(|name| name.to_str()?.split(':').next());
    probing.plugin_option.splice(0..0, names.map(|name| (format!("{name}.probe"), "1".to_string())));
    probing
}

/// A log that reports the lines of probes, and shows each at once: a library of the vendor may hang at the next one.
fn probes_to(report: Report, verbose: u8) -> LogSink {
    const INFO: u32 = 3;
    let others = log_sink(verbose);
    Arc::new(move |level, target, text| match target.strip_suffix(".probe") {
        Some(plugin) => {
            let is_good = if level >= INFO { Level::Ok } else { Level::Warning };
            note(format_args!("{plugin}: {text}"));
            report.add(is_good, "probe", format_args!("{plugin}: {text}"));
        }
        None => others.iter().for_each(|log| log(level, target, text)),
    })
}

fn list_plugins(report: &Report, global: &Global, plugins: &Plugins) {
    let is_meant = |path: &std::path::Path| {
        global.backend.is_empty() || global.backend.iter().any(|name| backend::names_file(name, path))
    };
    let quiet = plugins.host.quietly_refused();
    for plugin in plugins.host.plugins_in_use().into_iter().filter(|plugin| plugin.path.is_none()) {
        report.ok("plugin", format_args!("(built in): {} {}", plugin.name, plugin.version));
    }
    for candidate in plugins.candidates.iter().filter(|candidate| is_meant(&candidate.path)) {
        let Candidate { path, outcome } = candidate;
        let path = printable_path(path);
        match outcome {
            Outcome::Loaded { name, version, n_devices: 0 } => {
                report.warning(
                    "plugin",
                    format_args!("{path}: {name} {version} has no device on this machine"),
                );
            }
            Outcome::Loaded { name, version, n_devices } => {
                let devices = n_things(*n_devices, "device");
                report.ok("plugin", format_args!("{path}: {name} {version}, {devices}"));
            }
            Outcome::Skipped(why) => {
                report.ok("plugin", format_args!("{path}: not for this machine or run: {why}"));
            }
            Outcome::Rejected(why) if quiet.contains(candidate) => {
                report.warning("plugin", format_args!("{path}: not started: {why}"));
            }
            Outcome::Rejected(why) => report.problem(
                "plugin",
                format_args!(
                    "{path}: rejected: {why}; replace or remove the file, or name it in LLMRT_PLUGINS_DISABLE"
                ),
            ),
        }
    }
}

fn list_devices(report: &Report, global: &Global, plugins: &Plugins) {
    let chosen = match plugins.choose(global) {
        Ok(chosen) => chosen,
        Err(e) => return report.problem("device", e.message),
    };
    for (device, offered) in plugins.offered() {
        let info = device.info();
        let arch = if info.arch.is_empty() { String::new() } else { format!(" ({})", info.arch) };
        let text = format!("{}: {}{arch}", device.name(), info.description);
        let place = chosen.iter().position(|other| Arc::ptr_eq(other, &device));
        let is_meant = global.backend.is_empty() || place.is_some();
        match (place, &offered.unusable) {
            _ if !is_meant => {}
            (_, Some(why)) => report.warning("device", format_args!("{text}: cannot be used: {why}")),
            (None, None) => {
                let why = idle_because(&device).unwrap_or_else(|| "the CPU comes before it".into());
                report.ok("device", format_args!("{text}: not used: {why}"));
            }
            (Some(place), None) => match device.memory() {
                Ok((free, total)) => {
                    let memory = format!("{} of {} free", bytes(free), bytes(total));
                    report.ok("device", format_args!("{text}: choice {}, {memory}", place + 1));
                }
                Err(e) => report.problem(
                    "device",
                    format_args!("{text}: {e}; leave it out with --backend, or see `llmrt -vv devices`"),
                ),
            },
        }
    }
}
