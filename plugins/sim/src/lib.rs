//! Simulated devices: memory that the host cannot touch, queues that really run asynchronously, and the limits of a
//! chip that need not be there. The numbers are the CPU plugin's.
//!
//! `profiles.conf` lists the devices; [`profile`] reads it. Reading order: [`device`] for what is offered, [`memory`]
//! for the two views of each buffer, [`scratch`] for what the host's pools are made of, [`queue`] for when work runs,
//! [`program`] and [`stream`] for what it is, [`group`] for devices together, [`limits`] for what is refused.

pub mod profile;

pub mod device;
pub mod group;

pub mod limits;
pub mod mapping;
pub mod memory;
pub mod scratch;

pub mod event;
pub mod queue;
mod run;

pub mod program;
pub mod stream;

use device::{Shared, SimDevice};
use llmrt_plugin::{Device, DevmemLimits, Driver, Host, PluginInfo, Result};
use std::sync::Arc;

// Negative: a device that is only played is used only when it is named.
llmrt_plugin::export_plugin!(Sim, priority = "-50");

/// The plugin.
pub struct Sim {
    devices: Vec<Arc<SimDevice>>,
}

impl Driver for Sim {
    const INFO: PluginInfo =
        PluginInfo { name: "sim", version: env!("CARGO_PKG_VERSION"), vendor: "llmrt", needs_host: 0 };

    const DEVMEM: Option<DevmemLimits> = Some(DevmemLimits { granularity: scratch::UNIT, va_limit: 0 });

    const COLLECTIVE: bool = true;

    fn init(host: Host) -> Result<Sim> {
        let shared = Arc::new(Shared::new(host));
        let mut devices = Vec::new();
        for profile in profile::load(&host)? {
            let profile = Arc::new(profile);
            let name = |i: usize| match profile.devices {
                1 => profile.name.clone(),
                _ => format!("{}.{i}", profile.name),
            };
            for i in 0..profile.devices {
                devices.push(Arc::new(SimDevice::new(name(i), profile.clone(), shared.clone())));
            }
        }
        Ok(Sim { devices })
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }
}
