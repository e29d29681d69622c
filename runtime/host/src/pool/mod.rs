//! Scratch memory for streams: policy here, once; mechanism in the plugin (`llmrt.devmem`).
//!
//! One pool per stream, used inside `compute` and `plan_*` only. What is freed may be handed out at once: a stream runs
//! in order, so the next user of the bytes runs after the previous one.

mod devmem;
mod legacy;
mod scratch;
mod vmm;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub(crate) use devmem::Devmem;
pub(crate) use scratch::Scratch;

use crate::error::{Error, Result};
use crate::knobs;
use crate::plugin::services::Services;
use std::collections::BTreeSet;
use std::str::FromStr;

/// The mechanism: what a plugin offers to take memory and addresses of one device. Addresses and handles are the
/// plugin's own numbers.
pub(crate) trait Mechanism: Send {
    /// Bytes of a mapping unit; 0: no virtual memory.
    fn granularity(&self) -> u64;
    /// Upper limit of address space in bytes; 0: not specified.
    fn va_limit(&self) -> u64;
    /// Plain memory.
    fn raw_alloc(&self, size: u64) -> Result<u64>;
    /// Frees it after the work that uses it.
    fn raw_free(&self, addr: u64);
    /// Reserves addresses.
    fn va_reserve(&self, size: u64) -> Result<u64>;
    /// Maps memory at these addresses; returns its handle.
    fn va_map(&self, addr: u64, n: u64) -> Result<u64>;
    /// Takes it away after the work that uses it.
    fn va_unmap(&self, addr: u64, n: u64, chunk: u64);
    /// Gives the addresses back.
    fn va_release(&self, addr: u64, size: u64);
}

/// How scratch memory is managed.
pub(crate) trait Pool: Send {
    /// An address that is a multiple of `align`, and how many bytes there are, at least `size`.
    fn alloc(&mut self, size: u64, align: u64) -> Result<(u64, u64)>;
    /// Takes back what `alloc` gave; an error if it did not.
    fn free(&mut self, addr: u64, actual: u64) -> Result<()>;
    /// A computation ended: idle memory may be released.
    fn trim(&mut self);
    /// Whether plans hold addresses of earlier allocations: then no memory is returned to the device.
    fn pin(&mut self, pinned: bool);
    /// What it holds.
    fn stats(&self) -> PoolStats;
    /// Bytes it takes from the device to hand out each of these sizes, one after the other, while memory is pinned.
    fn room(&self, sizes: &BTreeSet<u64>) -> u64;
}

/// Bytes and events of a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PoolStats {
    /// Which policy.
    pub kind: PoolKind,
    /// Bytes of addresses reserved.
    pub reserved: u64,
    /// Bytes of memory taken from the device.
    pub mapped: u64,
    /// Bytes handed out now.
    pub in_use: u64,
    /// Most bytes handed out at one time.
    pub peak: u64,
    /// How often memory was taken from the device.
    pub grows: u64,
    /// Bytes taken and not handed out.
    pub cached: u64,
    /// How often memory went back to the device before the end.
    pub evictions: u64,
    /// How often the plugin was given memory.
    pub allocs: u64,
}

/// Which policy manages scratch memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PoolKind {
    /// VMM where the device has it, else legacy.
    #[default]
    Auto,
    /// Best fit among up to 256 cached blocks.
    Legacy,
    /// One range of addresses, mapped as far as it is used.
    Vmm,
}

impl PoolKind {
    /// The kind that the plugin's option `pool`, or else the environment, sets; an error for an unknown name.
    pub(crate) fn of_options(services: &Services, plugin: &str) -> Result<PoolKind> {
        let key = format!("{plugin}.pool");
        match services.read_option(&key) {
            None => Ok(knobs::settings()?.pool),
            Some(value) => value.parse().map_err(|expected| {
                let set = services.option_as_set(&key).unwrap_or(key);
                Error::PluginOption { set, reason: format!("expected {expected}") }
            }),
        }
    }
}

impl FromStr for PoolKind {
    type Err = &'static str;

    fn from_str(name: &str) -> std::result::Result<PoolKind, &'static str> {
        match name {
            "auto" => Ok(PoolKind::Auto),
            "legacy" => Ok(PoolKind::Legacy),
            "vmm" => Ok(PoolKind::Vmm),
            _ => Err("auto, legacy or vmm"),
        }
    }
}

impl std::fmt::Display for PoolKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PoolKind::Auto => "auto",
            PoolKind::Legacy => "legacy",
            PoolKind::Vmm => "vmm",
        })
    }
}

/// A pool over a mechanism; `total` is the device's memory, 0 if not specified. A device that refuses to reserve
/// addresses gets the legacy pool unless VMM was requested by name.
pub(crate) fn open<M: Mechanism + Clone + 'static>(
    mechanism: M,
    requested: PoolKind,
    total: u64,
) -> Result<Box<dyn Pool>> {
    let legacy = |mechanism| Ok(Box::new(legacy::Legacy::new(mechanism)) as Box<dyn Pool>);
    match (requested, mechanism.granularity()) {
        (PoolKind::Legacy, _) | (PoolKind::Auto, 0) => legacy(mechanism),
        (PoolKind::Vmm, 0) => Err(Error::invalid("pool", "the device has no virtual memory; use `legacy`")),
        (_, _) => match vmm::Vmm::new(mechanism.clone(), total) {
            Ok(vmm) => Ok(Box::new(vmm)),
            Err(e) if requested == PoolKind::Vmm => Err(e),
            Err(_) => legacy(mechanism),
        },
    }
}
