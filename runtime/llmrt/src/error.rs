//! What can be wrong, by the layer where it happened.

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a model cannot be opened or a text not be generated. Messages name the cause and the remedy.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Error {
    /// A device, a plugin or a setting of the host.
    #[error(transparent)]
    Host(#[from] llmrt_host::Error),
    /// A model file.
    #[error("{0}")]
    File(String),
    /// The engine, or a request.
    #[error(transparent)]
    Engine(#[from] llmrt_engine::Error),
    /// The vocabulary, a text or a chat template.
    #[error(transparent)]
    Tokenizer(#[from] llmrt_tokenizer::Error),
    /// A conversation for a model without a chat template.
    #[error("the model has no chat template: give a prompt to `generate`, or set `Options::chat_template`")]
    NoChatTemplate,
    /// A device that does not exist.
    #[error("device {name} is not there: there are {}", known.join(", "))]
    NoDevice {
        /// The name that was given.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
}
