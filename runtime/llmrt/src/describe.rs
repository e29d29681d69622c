//! Errors for programs that handle them by kind: what failed, a name that stays the same between versions, and the remedy in
//! the words of this crate's and the Python package's options.

use crate::error::Error;
use llmrt_engine::Error as Engine;
use llmrt_host::Error as Host;
use llmrt_tokenizer::Error as Text;

/// Which part failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The model's file.
    Model,
    /// A device, a plugin, or their settings.
    Device,
    /// Memory of a device or of the host.
    Memory,
    /// The request: its prompt, its parameters.
    Request,
    /// The engine was closed.
    Closed,
    /// llmrt itself.
    Defect,
}

/// An error, for programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Description {
    /// Which part failed.
    pub kind: Kind,
    /// The error's name: lower case, with underscores.
    pub code: &'static str,
    /// What helps.
    pub remedy: &'static str,
}

const fn row(kind: Kind, code: &'static str, remedy: &'static str) -> Description {
    Description { kind, code, remedy }
}

const MODEL_FILE: Description = row(
    Kind::Model,
    "model_file",
    "give the path of a GGUF file of a supported architecture; `llmrt show FILE` describes a file",
);
const NO_DEVICE: Description =
    row(Kind::Device, "no_device", "name a device of `llmrt devices`, or leave devices out");
const DEVICE: Description = row(
    Kind::Device,
    "device",
    "`llmrt doctor` checks devices and plugins; the device cpu is always present",
);
const SETTING: Description =
    row(Kind::Device, "setting", "correct the variable or the option that the message names");
const MEMORY: Description = row(
    Kind::Memory,
    "out_of_memory",
    "lower max_model_len, max_num_seqs or max_num_batched_tokens, or use kv_cache_dtype q8_0",
);
const PARAM: Description =
    row(Kind::Request, "bad_param", "give the parameter a value of the range in the message");
const PROMPT_TOO_LONG: Description =
    row(Kind::Request, "prompt_too_long", "shorten the prompt, or raise max_model_len");
const BAD_PROMPT: Description =
    row(Kind::Request, "bad_prompt", "give a text, or at least one token id of the vocabulary");
const TOO_LARGE: Description = row(
    Kind::Request,
    "too_large",
    "lower n or best_of, shorten the prompt, or raise max_num_seqs, max_num_batched_tokens or max_model_len",
);
const CHAT: Description =
    row(Kind::Request, "chat_template", "change the messages, or give a chat_template that takes them");
const ABILITY: Description = row(
    Kind::Request,
    "not_supported_by_model",
    "use a model that was trained for this: one that generates text, or one that gives vectors",
);
const TOKENIZER: Description =
    row(Kind::Model, "tokenizer", "convert the model again with a complete vocabulary");
const CANCELLED: Description = row(Kind::Request, "cancelled", "send the request again");
const CLOSED: Description = row(Kind::Closed, "closed", "open the model again");
const NUMBERS: Description =
    row(Kind::Device, "non_finite", "compute on another device to compare; `llmrt diff` does so");
const DEFECT: Description = row(Kind::Defect, "defect", "report it with the message");

impl Error {
    /// The error for programs.
    pub fn describe(&self) -> Description {
        match self {
            Error::File(_) => MODEL_FILE,
            Error::NoDevice { .. } => NO_DEVICE,
            Error::NoChatTemplate => CHAT,
            Error::Host(e) => of_host(e),
            Error::Engine(e) => of_engine(e),
            Error::Tokenizer(e) => of_text(e),
        }
    }
}

fn of_host(e: &Host) -> Description {
    match e {
        Host::Knob { .. } | Host::PluginOption { .. } => SETTING,
        Host::ModelFile { .. } => MODEL_FILE,
        Host::Cancelled => CANCELLED,
        e if e.is_oom() => MEMORY,
        _ => DEVICE,
    }
}

fn of_engine(e: &Engine) -> Description {
    match e {
        Engine::Host(e) => of_host(e),
        Engine::Tokenizer(e) => of_text(e),
        Engine::Load { out_of_memory: true, .. }
        | Engine::NotEnoughMemory { .. }
        | Engine::KvTooSmall { .. } => MEMORY,
        Engine::Load { cancelled: true, .. } | Engine::Cancelled => CANCELLED,
        Engine::Load { device: Some(_), .. } | Engine::Strict { .. } | Engine::NoThread { .. } => DEVICE,
        Engine::Load { .. } | Engine::Model(_) | Engine::SparseFile { .. } => MODEL_FILE,
        Engine::BadParam { .. } | Engine::BadBias { .. } | Engine::BiasOutOfVocab { .. } => PARAM,
        Engine::EmptyStop | Engine::EmptyBadWord | Engine::NoTokenizer | Engine::AllForbidden => PARAM,
        Engine::BadPool { .. } => PARAM,
        Engine::NoTokens { .. } | Engine::TokenOutOfVocab { .. } | Engine::BadToken { .. } => BAD_PROMPT,
        Engine::PromptTooLong { .. } => PROMPT_TOO_LONG,
        Engine::NeverFits(_) => TOO_LARGE,
        Engine::NoText | Engine::NotCausal | Engine::NoVectors | Engine::NotLoaded { .. } => ABILITY,
        Engine::BadLogit { .. } | Engine::BadEmbedding { .. } => NUMBERS,
        Engine::EngineGone => CLOSED,
        _ => DEFECT,
    }
}

fn of_text(e: &Text) -> Description {
    match e {
        Text::TooManyTokens { .. } | Text::LongPrompt { .. } => PROMPT_TOO_LONG,
        Text::LongWord { .. } | Text::NoSuchToken { .. } | Text::NoTokenFor { .. } => BAD_PROMPT,
        Text::OutOfMemory { .. } => MEMORY,
        Text::Cancelled => CANCELLED,
        Text::Template { .. } | Text::NoMessages | Text::TemplateEngine | Text::EmptyPrompt => CHAT,
        Text::ControlInMessage { .. } | Text::Refused { .. } | Text::BadTime { .. } => CHAT,
        _ => TOKENIZER,
    }
}
