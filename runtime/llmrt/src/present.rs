//! The plugins and devices of a machine.

use crate::error::Result;
use llmrt_host::{Candidate, DiscoverOptions, Host, HostOptions};
use std::sync::Arc;

/// What a search for plugins found.
pub struct Present {
    /// The plugins in use and their devices, with the CPU's, which is part of this crate.
    pub host: Arc<Host>,
    /// Every file that may be a plugin, and why it is in use or not. Files that are rejected are reported by the host's
    /// log, too.
    pub files: Vec<Candidate>,
}

impl Present {
    /// Searches where the options and the environment state.
    pub fn search(options: HostOptions, places: &DiscoverOptions) -> Result<Present> {
        let host = Host::new(options);
        host.register_builtin(llmrt_cpu::query)?;
        let files = host.discover(places);
        Ok(Present { host, files })
    }
}
