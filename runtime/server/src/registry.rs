//! Models by name: loaded when they are first used, unloaded when others need their place or their time is over, never while
//! one answers.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::{Model, ModelInfo, ModelSource};
use crate::receipt::Receipt;
use crate::stored::{Forgotten, ModelStore};
use axum::http::StatusCode;
use llmrt_store::StoredModel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
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

/// A model, whether it is loaded or not.
pub struct Entry {
    source: ModelSource,
    /// How long it stays loaded where no request sets another time.
    keep_alive: Option<Duration>,
    info: OnceLock<ModelInfo>,
    state: Mutex<State>,
}

struct State {
    model: Option<Arc<Model>>,
    n_in_flight: usize,
    last_used: Instant,
    keep_alive: Option<Duration>,
    /// Whether the store has another model of the name now, or none.
    is_forgotten: bool,
}

/// A loaded model with a request: it stays loaded until this is dropped.
pub struct Lease {
    pub model: Arc<Model>,
    /// How long loading it took, for this request.
    pub load: Duration,
    /// What the request took, where it is requested.
    pub receipt: Option<Receipt>,
    place: Place,
}

impl Lease {
    pub fn entry(&self) -> &Arc<Entry> {
        &self.place.entry
    }

    /// With a receipt from now on, if the request has the field for it.
    pub fn with_receipt(self, fields: &Fields) -> Result<Lease, ApiError> {
        let is_requested = Receipt::is_requested(fields)?;
        let receipt = is_requested.then(|| Receipt::begin(self.model.engine.work()));
        Ok(Lease { receipt, ..self })
    }
}

/// A place in the queue of a model.
struct Place {
    entry: Arc<Entry>,
    registry: Arc<Registry>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.entry.state();
        state.n_in_flight -= 1;
        state.last_used = Instant::now();
        drop(state);
        self.registry.is_idle.notify_waiters();
    }
}

impl Entry {
    pub(crate) fn new(source: ModelSource, keep_alive: Option<Duration>) -> Entry {
        let state =
            State { model: None, n_in_flight: 0, last_used: Instant::now(), keep_alive, is_forgotten: false };
        Entry { source, keep_alive, info: OnceLock::new(), state: Mutex::new(state) }
    }

    pub fn name(&self) -> &str {
        &self.source.name
    }

    /// The model of the store that it is.
    pub fn stored(&self) -> Option<&StoredModel> {
        self.source.stored.as_ref()
    }

    /// Its tables, read once. May take long.
    pub fn info(&self) -> Result<&ModelInfo, ApiError> {
        if self.info.get().is_none() {
            let info = (self.source.describe)().map_err(ApiError::internal)?;
            let _ = self.info.set(info);
        }
        self.info.get().ok_or_else(|| ApiError::internal("no description"))
    }

    /// The model, if it is loaded.
    pub fn loaded(&self) -> Option<Arc<Model>> {
        self.state().model.clone()
    }

    /// When it will be unloaded, in time from now, if no request comes; `None`: it stays.
    pub fn expires_in(&self) -> Option<Duration> {
        let state = self.state();
        Some(state.keep_alive?.saturating_sub(state.last_used.elapsed()))
    }

    /// How long it stays loaded from its last request on.
    pub fn set_keep_alive(&self, keep_alive: Option<Duration>) {
        self.state().keep_alive = keep_alive;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the model out, if it is loaded and has no request. The time that requests set ends with it.
    fn take_idle(&self) -> Option<Arc<Model>> {
        let mut state = self.state();
        if state.n_in_flight > 0 {
            return None;
        }
        state.keep_alive = self.keep_alive;
        state.model.take()
    }

    fn is_expired(&self) -> bool {
        let state = self.state();
        let is_over = state.keep_alive.is_some_and(|time| state.last_used.elapsed() >= time);
        state.model.is_some() && (is_over || state.is_forgotten)
    }

    /// It is not found any more, and is unloaded when its requests end.
    pub(crate) fn forget(&self) {
        self.state().is_forgotten = true;
    }

    /// Whether it is to be found, is still of use to requests, or neither.
    pub(crate) fn forgotten(&self) -> Forgotten {
        let state = self.state();
        match (state.is_forgotten, state.model.is_some() || state.n_in_flight > 0) {
            (false, _) => Forgotten::No,
            (true, true) => Forgotten::InUse,
            (true, false) => Forgotten::Yes,
        }
    }
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
        let bare = name.strip_suffix(":latest").unwrap_or(name);
        let is_it = |entry: &&Arc<Entry>| entry.name() == name || entry.name() == bare;
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
        let place = self.place(entry)?;
        let started = Instant::now();
        let model = match entry.loaded() {
            Some(model) => model,
            None => self.load(entry).await?,
        };
        Ok(Lease { model, load: started.elapsed(), receipt: None, place })
    }

    /// While a place is held, the model is not unloaded.
    fn place(self: &Arc<Self>, entry: &Arc<Entry>) -> Result<Place, ApiError> {
        let mut state = entry.state();
        if state.n_in_flight >= self.max_in_flight {
            return Err(busy(entry.name(), state.n_in_flight));
        }
        state.n_in_flight += 1;
        Ok(Place { entry: entry.clone(), registry: self.clone() })
    }

    async fn load(&self, entry: &Arc<Entry>) -> Result<Arc<Model>, ApiError> {
        let _loading = self.loading.lock().await;
        if let Some(model) = entry.loaded() {
            return Ok(model);
        }
        self.make_room().await;
        let loading = entry.clone();
        let model = on_thread(move || (loading.source.load)()).await?.map_err(|message| {
            ApiError::internal(format!("the model `{}` cannot be loaded: {message}", entry.name()))
        })?;
        let model = Arc::new(model);
        entry.state().model = Some(model.clone());
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
            loaded.sort_by_key(|entry| entry.state().last_used);
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

fn busy(name: &str, n: usize) -> ApiError {
    let message = format!("the model `{name}` has {n} requests: try again later, or raise --max-queue");
    ApiError { retry_after: Some(1), ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message) }
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
