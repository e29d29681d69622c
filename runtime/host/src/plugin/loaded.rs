//! A plugin that passed `init`: what is called, whether it may still be called, and its end.

use super::lifecycle;
use super::services::Services;
use crate::error::{CallError, Error, Result};
use crate::validate::live;
use llmrt_abi::{Scope, types as c};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// A plugin in use. Shut down when its last device, buffer and stream are gone.
pub(crate) struct Loaded {
    pub(crate) desc: PluginDesc,
    /// Address of the plugin's own table: what makes it this plugin.
    pub(crate) key: usize,
    pub(crate) table: c::Plugin,
    /// The host's side; the plugin calls into it until `shutdown` ends.
    pub(crate) services: Arc<Services>,
    pub(crate) quarantined: OnceLock<String>,
}

/// A plugin's description of itself, and how it was loaded.
#[derive(Clone, Debug, PartialEq)]
pub struct PluginDesc {
    /// Name.
    pub name: String,
    /// Version.
    pub version: String,
    /// Who made it.
    pub vendor: String,
    /// The file; `None` for a plugin linked into the program.
    pub path: Option<PathBuf>,
    /// From the manifest; higher is preferred. 0 if not set.
    pub priority: i32,
    /// How long `init` took.
    pub init_time: Duration,
    /// `abi::types::BUILD_*` bits.
    pub build_flags: u32,
    /// Minor version of the ABI it was built with.
    pub abi_minor: u16,
}

// SAFETY: the table is data and functions that may be called from any thread; `init` and `shutdown` are serialised by
// `lifecycle`.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Loaded {
    /// Refuses when the plugin broke.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.quarantined.get() {
            None => Ok(()),
            Some(reason) => Err(Error::Quarantined { what: self.desc.name.clone(), reason: reason.clone() }),
        }
    }

    /// Turns an answer into a result; a failure of plugin scope is the last call ever made.
    pub(crate) fn check(&self, who: &str, call: &'static str, status: i32, err: &c::Error) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let error = CallError::read(who, call, status, err);
        if error.scope == Scope::Plugin {
            let _ = self.quarantined.set(error.to_string());
        }
        Err(error.into())
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let broken = self.quarantined.get();
        lifecycle::end(self.key, broken, || {
            let Some(shutdown) = self.table.shutdown else { return };
            if self.services.validate
                && let Some(text) = live::left_over(self.key)
            {
                self.services.log_line(1, &format!("LLMRT_VALIDATE: {}: shutdown: {text}", self.desc.name));
            }
            // SAFETY: `init` succeeded, all objects are destroyed (each holds this struct), and `lifecycle` lets no
            // other init or shutdown of this plugin run.
            unsafe { shutdown() }
        });
        if broken.is_some() {
            // What is left of the plugin may still call the host.
            std::mem::forget(self.services.clone());
        }
    }
}
