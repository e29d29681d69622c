//! A model of the server: its source, what is loaded of it, and the requests that keep it loaded.

use super::Registry;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::{Model, ModelInfo, ModelSource};
use crate::receipt::Receipt;
use crate::stored::Forgotten;
use axum::http::StatusCode;
use llmrt_store::StoredModel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

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
    pub(super) fn new(model: Arc<Model>, load: Duration, place: Place) -> Lease {
        Lease { model, load, receipt: None, place }
    }

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

/// A place in the queue of a model, which is not unloaded while it is held.
pub(super) struct Place {
    entry: Arc<Entry>,
    registry: Arc<Registry>,
}

impl Place {
    pub(super) fn take(registry: &Arc<Registry>, entry: &Arc<Entry>) -> Result<Place, ApiError> {
        let mut state = entry.state();
        if state.n_in_flight >= registry.max_in_flight {
            return Err(busy(entry.name(), state.n_in_flight));
        }
        state.n_in_flight += 1;
        Ok(Place { entry: entry.clone(), registry: registry.clone() })
    }
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

    /// Loads the model. May take long.
    pub(super) fn load(&self) -> Result<Model, String> {
        (self.source.load)()
    }

    pub(super) fn set_loaded(&self, model: Arc<Model>) {
        self.state().model = Some(model);
    }

    pub(super) fn last_used(&self) -> Instant {
        self.state().last_used
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Takes the model out, if it is loaded and has no request. The time that requests set ends with it.
    pub(super) fn take_idle(&self) -> Option<Arc<Model>> {
        let mut state = self.state();
        if state.n_in_flight > 0 {
            return None;
        }
        state.keep_alive = self.keep_alive;
        state.model.take()
    }

    pub(super) fn is_expired(&self) -> bool {
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

fn busy(name: &str, n: usize) -> ApiError {
    let message = format!("the model `{name}` has {n} requests: try again later, or raise --max-queue");
    ApiError { retry_after: Some(1), ..ApiError::new(StatusCode::SERVICE_UNAVAILABLE, message) }
}
