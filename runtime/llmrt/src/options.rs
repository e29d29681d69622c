//! What an [`crate::Llm`] is opened with.

use crate::drafts::Drafts;
use crate::error::{Error, Result};
use crate::present::Present;
use llmrt_engine::EngineOptions;
use llmrt_host::load::{LoadMode, SealCache};
use llmrt_host::{Device, DiscoverOptions, HostOptions};
use std::sync::Arc;

/// Gets the part of the weights that is loaded, from 0 to 1, on the thread that opens the model; `false` cancels.
pub type LoadProgress = Box<dyn FnMut(f32) -> bool + Send>;

/// Devices, sizes, and how the file is read. The default: all devices that run models, a context of 4096 tokens, 8 requests
/// at a time.
pub struct Options {
    /// Threads, plugin options, where messages of plugins go.
    pub host: HostOptions,
    /// Where plugins are searched for.
    pub discover: DiscoverOptions,
    /// Devices by name, first choice first; empty: all but opt-in plugins. The CPU comes last in any case.
    pub devices: Vec<String>,
    /// Context, batch, sequences, KV cache. A model that was trained on a shorter context has that one.
    pub engine: EngineOptions,
    /// How weights come into memory.
    pub load: LoadMode,
    /// Where sealed copies of weights are kept between runs; `None`: nowhere.
    pub seal_cache: Option<SealCache>,
    /// A Jinja chat template in the place of the model's.
    pub chat_template: Option<String>,
    /// What guesses next tokens; `None`: nothing.
    pub drafts: Option<Drafts>,
    /// What watches the loading.
    pub progress: Option<LoadProgress>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            host: HostOptions::default(),
            discover: DiscoverOptions::default(),
            devices: Vec::new(),
            engine: EngineOptions { max_seqs: 8, ..EngineOptions::default() },
            load: LoadMode::default(),
            seal_cache: None,
            chat_template: None,
            drafts: None,
            progress: None,
        }
    }
}

impl Options {
    /// Of the devices that are present those that are used, the CPU last.
    pub(crate) fn choose(&self, present: &Present) -> Result<Vec<Arc<Device>>> {
        let host = &present.host;
        let all = host.devices();
        if self.devices.is_empty() {
            return Ok(all.into_iter().filter(|device| device.priority() >= 0).collect());
        }
        let find = |name: &String| {
            host.device(name).ok_or_else(|| Error::NoDevice {
                name: name.clone(),
                known: all.iter().map(|device| device.name().to_string()).collect(),
            })
        };
        let chosen =
            self.devices.iter().filter(|name| *name != "cpu").map(find).collect::<Result<Vec<_>>>()?;
        Ok(chosen.into_iter().chain(host.device("cpu")).collect())
    }
}
