//! What a request took: with `"receipt": true` it is beside the tokens in `usage`, in Ollama's routes in the last object.

use crate::error::ApiError;
use crate::fields::Fields;
use llmrt::engine::Work;
use llmrt::engine::core::Usage;
use serde_json::{Value, json};

/// A receipt that is requested.
pub struct Receipt {
    /// What the engine had executed before the request.
    before: Work,
}

impl Receipt {
    /// Whether a request has the field `receipt`.
    pub fn is_requested(fields: &Fields) -> Result<bool, ApiError> {
        fields.get_or("receipt", false)
    }

    /// From now on.
    pub fn begin(before: Work) -> Receipt {
        Receipt { before }
    }

    /// The steps that were executed since, which other requests may share, and what the request took of its own.
    pub fn json(&self, now: &Work, usage: Usage) -> Value {
        let work = now.since(&self.before);
        let devices = work.devices.iter().map(|d| json!({ "device": &*d.device, "n_nodes": d.n_nodes }));
        let fallbacks = work.fallbacks.iter().map(|f| {
            json!({ "op": f.op, "device": &*f.device, "reason": f.reason.to_string(), "n_nodes": f.n_nodes })
        });
        json!({
            "n_steps": work.n_steps,
            "devices": devices.collect::<Vec<_>>(),
            "fallbacks": fallbacks.collect::<Vec<_>>(),
            "n_splits": work.n_splits,
            "copied_bytes": work.copied_bytes,
            "n_preemptions": usage.n_preemptions,
            "cached_tokens": usage.n_cached,
        })
    }
}
