//! Models by name: loaded when they are first used, unloaded when others need their place or their time is over, never while
//! one answers.

mod entry;

pub use self::entry::{Entry, Lease};

use self::entry::Place;
use crate::error::ApiError;
use crate::model::{Model, ModelSource};
use crate::stored::{Forgotten, ModelStore};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The models of a server.
pub struct Registry {
    named: Vec<Arc<Entry>>,
    /// The models of a store, and those of them that were requested or listed.
    pub(crate) store: Option<ModelStore>,
    pub(crate) stored: Mutex<Vec<Arc<Entry>>>,
    /// Held while a model is loaded.
    loading: tokio::sync::Mutex<()>,
    /// A model has no requests any more.
    is_idle: Notify,
    max_loaded: usize,
    pub(crate) keep_alive: Option<Duration>,
    /// Requests of a model, running or waiting.
    max_in_flight: usize,
}

impl Registry {
    pub fn new(
        sources: Vec<ModelSource>,
        store: Option<ModelStore>,
        options: &crate::ServerOptions,
    ) -> Registry {
        let keep_alive = options.keep_alive;
        Registry {
            store,
            stored: Mutex::default(),
            keep_alive,
            named: sources.into_iter().map(|source| Arc::new(Entry::new(source, keep_alive))).collect(),
            loading: tokio::sync::Mutex::new(()),
            is_idle: Notify::new(),
            max_loaded: options.max_loaded_models.max(1),
            max_in_flight: options.parallel.saturating_add(options.max_queue),
        }
    }

    /// The models that have names on the command line.
    pub fn named(&self) -> &[Arc<Entry>] {
        &self.named
    }

    /// The models of the command line, and those of the store that were requested or listed.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.named.iter().chain(self.seen().iter()).cloned().collect()
    }

    /// A model by name, with or without Ollama's `:latest`; without a name the first.
    pub async fn find(self: &Arc<Self>, name: Option<&str>) -> Result<Arc<Entry>, ApiError> {
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return self.named.first().cloned().ok_or_else(|| ApiError::unknown_model("", &[]));
        };
        let is_it = |entry: &&Arc<Entry>| bare(entry.name()) == bare(name);
        if let Some(entry) = self.named.iter().find(is_it) {
            return Ok(entry.clone());
        }
        let (registry, text) = (self.clone(), name.to_string());
        on_thread(move || {
            registry.find_stored(&text)?.ok_or_else(|| {
                let known = registry.listed();
                let known: Vec<&str> = known.iter().map(|entry| entry.name()).collect();
                ApiError::unknown_model(&text, &known)
            })
        })
        .await?
    }

    /// The model for a request, loaded if it is not yet.
    pub async fn lease(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Lease, ApiError> {
        let place = Place::take(self, entry)?;
        let started = Instant::now();
        let model = match entry.loaded() {
            Some(model) => model,
            None => self.load(entry).await?,
        };
        Ok(Lease::new(model, started.elapsed(), place))
    }

    async fn load(&self, entry: &Arc<Entry>) -> Result<Arc<Model>, ApiError> {
        let _loading = self.loading.lock().await;
        if let Some(model) = entry.loaded() {
            return Ok(model);
        }
        self.make_room().await;
        let loading = entry.clone();
        let model = on_thread(move || loading.load()).await?.map_err(|message| {
            ApiError::internal(format!("the model `{}` cannot be loaded: {message}", entry.name()))
        })?;
        let model = Arc::new(model);
        entry.set_loaded(model.clone());
        Ok(model)
    }

    /// Unloads models until one more may be loaded. Where all have requests, waits for one that has none.
    async fn make_room(&self) {
        loop {
            let idle = self.is_idle.notified();
            let mut loaded: Vec<_> =
                self.entries().into_iter().filter(|entry| entry.loaded().is_some()).collect();
            if loaded.len() < self.max_loaded {
                return;
            }
            loaded.sort_by_key(|entry| entry.last_used());
            match loaded.into_iter().find_map(|entry| entry.take_idle()) {
                Some(model) => end(model).await,
                None => idle.await,
            }
        }
    }

    /// Unloads a model that has no request.
    pub async fn unload(&self, entry: &Entry) {
        if let Some(model) = entry.take_idle() {
            end(model).await;
        }
    }

    /// Unloads models whose time is over, until the server ends.
    pub async fn unload_expired(self: Arc<Self>) {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            for entry in self.entries().iter().filter(|entry| entry.is_expired()) {
                self.unload(entry).await;
            }
            self.seen().retain(|entry| entry.forgotten() != Forgotten::Yes);
        }
    }
}

/// A name without Ollama's `:latest`.
fn bare(name: &str) -> &str {
    name.strip_suffix(":latest").unwrap_or(name)
}

/// Frees the memory of a model.
async fn end(model: Arc<Model>) {
    let _ = on_thread(move || {
        model.engine.drain();
        drop(model);
    })
    .await;
}

/// Work that takes long, on a thread for that.
pub async fn on_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(|_| {
        ApiError::internal("a request panicked; others go on: this is a defect of llmrt, please report it")
    })
}
