//! A model that is loaded, and where it is loaded from.

use llmrt::engine::{AsyncEngine, Pooling};
use llmrt::host::sched::report::Report;
use llmrt::tokenizer::{ChatTemplate, Tokenizer};
use llmrt_store::StoredModel;
use serde_json::Value;
use std::sync::{Arc, Mutex};

/// A loaded model.
pub struct Model {
    /// Its requests.
    pub engine: AsyncEngine,
    /// Text and ids.
    pub tokenizer: Arc<Tokenizer>,
    /// How messages become a prompt; `None`: the model has no chat.
    pub template: Option<Template>,
    /// What a chat without a system message begins with.
    pub system: Option<String>,
    /// What comes after the system message in every chat, in OpenAI's form.
    pub messages: Vec<Value>,
    /// Tokens that a prompt and its text may have.
    pub n_ctx: usize,
    /// How the vectors of a text's tokens become one.
    pub pooling: Pooling,
    /// Where its steps run.
    pub placement: Arc<Placement>,
}

/// The devices of a model, and where its last step ran.
#[derive(Default)]
pub struct Placement {
    /// The devices that compute it, first choice first.
    pub devices: Vec<String>,
    /// The last step's report; `None`: there was no step.
    last: Mutex<Option<Report>>,
}

impl Placement {
    /// On these devices, before the first step.
    pub fn new(devices: Vec<String>) -> Placement {
        Placement { devices, last: Mutex::default() }
    }

    /// Keeps the report of a step.
    pub fn set(&self, report: &Report) {
        let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
        if last.as_ref() != Some(report) {
            *last = Some(report.clone());
        }
    }

    /// The report of the last step.
    pub fn report(&self) -> Option<Report> {
        self.last.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

/// A chat template.
pub struct Template {
    /// What renders.
    pub jinja: ChatTemplate,
    /// Whether the text that `add_generation_prompt` adds is a part of the answer.
    pub shows_opening: bool,
}

/// What a model file contains, by its tables.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ModelInfo {
    /// `general.architecture`.
    pub architecture: String,
    /// Bytes of the file.
    pub size: u64,
    /// Parameters.
    pub n_params: u64,
    /// The type of most of its bytes, such as `Q4_K`.
    pub quantization: String,
    /// Tokens of the longest text that it was trained on.
    pub n_ctx_train: Option<usize>,
    /// Length of an embedding.
    pub n_embd: Option<usize>,
    /// Checksum in hexadecimal digits.
    pub digest: String,
    /// When the file was changed, in seconds since 1970.
    pub modified: u64,
    /// Source of its chat template.
    pub chat_template: Option<String>,
}

type Load<T> = Box<dyn Fn() -> std::result::Result<T, String> + Send + Sync>;

/// A model by name, loaded when it is first used. Both functions may take long: they run on threads for that.
pub struct ModelSource {
    /// What clients call it.
    pub name: String,
    /// The model of the store that it is.
    pub stored: Option<StoredModel>,
    /// Reads the tables.
    pub describe: Load<ModelInfo>,
    /// Loads it; called again after it was unloaded.
    pub load: Load<Model>,
}
