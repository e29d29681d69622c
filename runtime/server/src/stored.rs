//! Models of a store as models of the server: each becomes an entry when it is first requested or listed, and another one
//! when the store has another model of its name.

use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::ModelSource;
use crate::registry::{Entry, Registry};
use llmrt_store::{Client, Error, Name, Params, Store, StoredModel};
use serde_json::Value;
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

/// Parameters as they are stored, and as requests of OpenAI's and Anthropic's routes name them.
const NAMES: [(&str, &[&str]); 10] = [
    ("temperature", &["temperature"]),
    ("top_k", &["top_k"]),
    ("top_p", &["top_p"]),
    ("min_p", &["min_p"]),
    ("repeat_penalty", &["repetition_penalty"]),
    ("frequency_penalty", &["frequency_penalty"]),
    ("presence_penalty", &["presence_penalty"]),
    ("seed", &["seed"]),
    ("stop", &["stop", "stop_sequences"]),
    ("num_predict", &["max_completion_tokens", "max_output_tokens"]),
];

/// Adds stored parameters to a request that has no such fields. Beams are not sampled: they have no defaults.
pub fn add_defaults(fields: &mut Fields, params: &Params) {
    if fields.value("use_beam_search").is_some_and(|value| *value == Value::Bool(true)) {
        return;
    }
    for (stored, names) in NAMES {
        let has_length = stored == "num_predict" && fields.value("max_tokens").is_some();
        let Some(value) = params.get(stored).filter(|_| !has_length) else { continue };
        for name in names.iter().filter(|name| fields.value(name).is_none()).collect::<Vec<_>>() {
            fields.0.insert((*name).into(), value.clone());
        }
    }
}

/// These functions read files: they may take long.
impl Registry {
    /// The models of the command line, then those of the store that can be read.
    pub fn listed(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.named().to_vec();
        let Some(store) = &self.store else { return entries };
        let (rows, _) = store.store.list().unwrap_or_default();
        let is_named = |name: String| self.named().iter().any(|entry| entry.name() == name);
        let rows = rows.into_iter().filter(|row| !is_named(row.name.to_string()));
        entries.extend(rows.filter_map(|row| self.entry_of(store, row).ok()));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_parameters_are_added_where_a_request_has_none() {
        let params =
            serde_json::from_str(r#"{"temperature": 0.2, "stop": ["x"], "num_predict": 7, "num_ctx": 9}"#);
        let with = |text: &str| {
            let mut fields = Fields::parse(text.as_bytes()).unwrap();
            add_defaults(&mut fields, params.as_ref().unwrap());
            Value::Object(fields.0).to_string()
        };
        let expected = r#"{"stop":"y","temperature":0.2,"stop_sequences":["x"],"max_completion_tokens":7,"max_output_tokens":7}"#;
        assert_eq!(with(r#"{"stop": "y"}"#), expected);
        let expected = r#"{"max_tokens":3,"temperature":0,"stop":["x"],"stop_sequences":["x"]}"#;
        assert_eq!(with(r#"{"max_tokens": 3, "temperature": 0}"#), expected);
        assert_eq!(with(r#"{"use_beam_search": true}"#), r#"{"use_beam_search":true}"#);
    }
}
