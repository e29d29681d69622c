//! The local model store, and the registries that its models are from.
//!
//! A [`Store`] is a folder in the shape that Ollama uses: `manifests/HOST/NAMESPACE/NAME/TAG` are JSON files that name
//! `blobs/sha256-HEX` by digest and size. Blobs are shared between tags. A blob or manifest has its final name only when it
//! is whole, verified and on the disk; until then its name ends in `.partial`. Several processes may use one store.
//!
//! ```
//! use llmrt_store::{Modelfile, Name, Store};
//!
//! let folder = tempfile::tempdir()?;
//! let store = Store::at(folder.path());
//! let modelfile = Modelfile::parse("FROM ../../cli/assets/stories.gguf\nPARAMETER temperature 0.5\n")?;
//! let name: Name = "tiny".parse()?;
//! store.create(&name, &modelfile, &llmrt_store::CreateOptions::default(), &mut llmrt_store::Watch::none())?;
//!
//! let model = store.model(&name)?;
//! assert_eq!(model.params["temperature"], 0.5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Client`] pulls models into a store and pushes them: from registries of version 2 of the distribution protocol, and
//! GGUF files from model hubs (`hf.co/USER/REPO:QUANT`). The crate reads no environment variable and never prints: the caller
//! passes folders, hosts and a [`Watch`] that gets the progress and can cancel.
#![forbid(unsafe_code)]

mod name;

mod store;

mod health;

mod blobs;
mod digest;
mod manifest;

mod model;

mod create;
mod modelfile;
mod params;

mod registry;

mod files;

mod error;
mod watch;

pub use create::CreateOptions;
pub use digest::Digest;
pub use error::{Error, Result};
pub use health::{Files, Health};
pub use manifest::{Layer, Manifest, media};
pub use model::{ChatMessage, StoredModel};
pub use modelfile::{Instruction, Modelfile};
pub use name::{DEFAULT_HOST, Name};
pub use params::{Kind as ParamKind, PARAMS, Params};
pub use registry::{Client, ClientOptions, Retry, Source};
pub use store::{Entry, Removed, Store};
pub use watch::{Event, Watch};
