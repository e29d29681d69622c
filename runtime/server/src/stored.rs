//! Models of a store as models of the server: each becomes an entry when it is first requested or listed, and another one
//! when the store has another model of its name.

use crate::error::ApiError;
use crate::model::ModelSource;
use crate::registry::{Entry, Registry};
use llmrt_store::{Client, Error, Name, Store, StoredModel};
use std::sync::{Arc, MutexGuard};

/// A store of models, and how its models are loaded, pulled and pushed.
pub struct ModelStore {
    /// The store.
    pub store: Store,
    /// How a model of it is described and loaded; the second is its row of the list.
    pub source: Box<dyn Fn(StoredModel, llmrt_store::Entry) -> ModelSource + Send + Sync>,
    /// A client of registries; the argument permits plain HTTP.
    pub client: Box<dyn Fn(bool) -> Client + Send + Sync>,
}

/// Whether the store still has the model of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgotten {
    /// It has.
    No,
    /// It has not, and requests use the entry, or it is loaded.
    InUse,
    /// It has not, and nothing uses the entry.
    Yes,
}

/// These functions read files: they may take long.
impl Registry {
    /// The models of the command line, then those of the store that can be read.
    pub fn listed(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.named().to_vec();
        let Some(store) = &self.store else { return entries };
        let (rows, _) = store.store.list().unwrap_or_default();
        entries.extend(rows.into_iter().filter_map(|row| self.entry_of(store, row).ok()));
        entries
    }

    /// The model of the store that a text names.
    pub fn find_stored(&self, text: &str) -> Result<Option<Arc<Entry>>, ApiError> {
        let (Some(store), Ok(name)) = (&self.store, text.parse::<Name>()) else { return Ok(None) };
        match store.store.entry(&name) {
            Ok(row) => self.entry_of(store, row).map(Some),
            Err(Error::NotFound { .. }) => {
                self.forget(&name);
                Ok(None)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The store has no model of this name any more.
    pub fn forget(&self, name: &Name) {
        let name = name.to_string();
        self.seen().iter().filter(|entry| entry.name() == name).for_each(|entry| entry.forget());
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Vec<Arc<Entry>>> {
        self.stored.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn entry_of(&self, store: &ModelStore, row: llmrt_store::Entry) -> Result<Arc<Entry>, ApiError> {
        let (name, id) = (row.name.clone(), row.id);
        if let Some(entry) = self.seen_as(&name, &id) {
            return Ok(entry);
        }
        let model = store.store.model(&name)?;
        let made = Arc::new(Entry::new((store.source)(model, row), self.keep_alive));
        if let Some(entry) = self.seen_as(&name, &id) {
            return Ok(entry); // another request was faster
        }
        self.forget(&name);
        self.seen().push(made.clone());
        Ok(made)
    }

    fn seen_as(&self, name: &Name, id: &llmrt_store::Digest) -> Option<Arc<Entry>> {
        let name = name.to_string();
        let is_it = |entry: &&Arc<Entry>| {
            entry.name() == name
                && entry.stored().is_some_and(|model| model.id == *id)
                && entry.forgotten() == Forgotten::No
        };
        self.seen().iter().find(is_it).cloned()
    }
}
