//! What can be wrong with a request or a step: what was found, what was expected and the remedy.

use crate::kv::pool::BlockId;
use crate::request::RequestId;
use crate::scheduler::{Limit, Refusal};
use crate::sequence::{SequenceId, TokenId};
use llmrt_abi::Status;

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a request is refused or a step cannot be made. No variant is fatal for the sequences it does not name.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[allow(missing_docs)] // each field is named in its variant's message
pub enum Error {
    // Requests.
    #[error("{name} is {found}: expected {expected}")]
    BadParam { name: &'static str, found: f64, expected: &'static str },
    #[error("logit bias of token {token} is {found}: expected a number, or -inf to forbid the token")]
    BadBias { token: TokenId, found: f32 },
    #[error("logit bias names token {token}: the vocabulary has the ids 0 to {last}", last = n_vocab.saturating_sub(1))]
    BiasOutOfVocab { token: TokenId, n_vocab: usize },
    #[error("a stop string is empty: it would stop before the first character; leave it out")]
    EmptyStop,
    #[error("a bad word is empty: give at least one character, or leave it out")]
    EmptyBadWord,
    #[error(
        "stop strings or bad words are given and the engine has no tokenizer: give it one, or use tokens (stop_token_ids, logit_bias)"
    )]
    NoTokenizer,
    #[error("{id} has no tokens: give a prompt, or the beginning-of-text token")]
    NoTokens { id: SequenceId },

    #[error(
        "{id} has a prompt of {n_tokens} tokens and the context holds {n_ctx}: raise the context size (-c), or shorten the prompt"
    )]
    PromptTooLong { id: RequestId, n_tokens: usize, n_ctx: usize },
    #[error("{}", never_fits(.0))]
    NeverFits(Refusal),
    #[error(
        "{id} panicked while its next token was picked; other requests go on: this is a defect of llmrt, please report it"
    )]
    RequestPanicked { id: RequestId },
    #[error("{id} exists already: give each request a name of its own")]
    DuplicateRequest { id: RequestId },
    #[error("{id} does not exist: it has ended, or was never added")]
    UnknownRequest { id: RequestId },
    #[error("{id} is given {found} sequences: expected at most {width}, its width")]
    TooManySequences { id: RequestId, found: usize, width: usize },
    #[error(
        "a step has {n_tokens} tokens and {n_seqs} sequences: expected at least one sequence, and as many tokens"
    )]
    BadBudgets { n_tokens: usize, n_seqs: usize },
    #[error("{path}: {problem}")]
    SparseFile { path: String, problem: String },
    #[error("the engine has ended, so it takes no requests: start another")]
    EngineGone,
    #[error("no thread for the engine: {problem}")]
    NoThread { problem: String },
    #[error("a step panicked; its requests ended: this is a defect of llmrt, please report it")]
    StepPanicked,
    #[error("a step is in flight: complete it, or let it fail, before the next is planned")]
    StepInFlight,

    #[error(
        "the model gives vectors of text and no logits, so it generates no text: `llmrt embed` gives the vectors, as \
         /v1/embeddings of a server does"
    )]
    NoText,
    #[error(
        "tokens of this model see those after them, so no text is generated token by token (diffusion language models fill \
         masked tokens of a whole text in many steps, which llmrt does not): `llmrt eval` gives the logits of a text, `llmrt \
         embed` its vectors"
    )]
    NotCausal,
    #[error(
        "an encoder of this model reads texts and a decoder writes others, so it gives no vectors of texts: use a file of the \
         encoder alone (t5encoder)"
    )]
    NoVectors,
    #[error(
        "the model is loaded for {found}, and {needed} are requested: load it without EngineOptions::output for text, with StepOutput::Scores for scores"
    )]
    NotLoaded { found: &'static str, needed: &'static str },
    #[error(
        "the vector of the token at position {position} has {found} in it: the model or a device computed non-finite numbers; \
         run `llmrt eval` on another device to compare"
    )]
    BadEmbedding { position: usize, found: f32 },

    // Sampling.
    #[error("there are no logits to pick a token from: the vocabulary is empty")]
    NoLogits,
    #[error(
        "the logit of token {token} is {found}: the model or a device computed non-finite logits; run `llmrt eval` on another device to compare"
    )]
    BadLogit { token: TokenId, found: f32 },
    #[error(
        "the {found} largest logits are given: the sampler needs {}; state what `Sampler::required_top_k` returns before the step",
        needed.map_or("all".to_string(), |n| n.to_string())
    )]
    TooFewLogits { found: usize, needed: Option<usize> },
    #[error("every token is forbidden (all logits are -inf): remove some of the logit biases")]
    AllForbidden,

    #[error(
        "token {token} of {n_found} is `{found}` here, and `{expected}` of {n_expected} in the model whose tokens it is to guess: \
         use a draft model with the same vocabulary, such as a smaller one of its family"
    )]
    OtherVocabulary { token: TokenId, found: String, n_found: usize, expected: String, n_expected: usize },

    #[error(
        "its layers predict ahead for {expected} models, and this one is {found}: use the file that was made for this model"
    )]
    OtherLayers { expected: &'static str, found: String },

    #[error(
        "an encoder of this model reads prompts, so it guesses no next tokens: use a draft model without an encoder"
    )]
    NoDrafts,

    // Blocks.
    #[error(
        "a pool of {n_blocks} blocks of {block_size} tokens: expected at least one token per block and at most {most} tokens in all",
        most = i32::MAX
    )]
    BadPool { n_blocks: usize, block_size: usize },
    #[error("{block} does not exist: the pool has {n_blocks} blocks")]
    NoSuchBlock { block: BlockId, n_blocks: usize },
    #[error("{id} has no block to write to: reserve blocks before a step")]
    OutOfBlocks { id: SequenceId },
    #[error("{block} is not in use, so it cannot be {action}")]
    BlockNotInUse { block: BlockId, action: &'static str },

    // Batches.
    #[error("the plan names {id}, which is not in the queue")]
    UnknownSequence { id: SequenceId },
    #[error(
        "{id} goes on after {n_accepted} drafted tokens: expected at most {n_drafted}, and none where it is forked"
    )]
    TooManyAccepted { id: SequenceId, n_accepted: usize, n_drafted: usize },
    #[error("the plan gives {id} {n_new} tokens: expected 1 to {n_missing}, what the sequence still lacks")]
    BadShare { id: SequenceId, n_new: usize, n_missing: usize },
    #[error("{id} needs {needed} blocks in this step and has {found}: schedule it before making a batch")]
    TooFewBlocks { id: SequenceId, needed: usize, found: usize },
    #[error(
        "{id} needs {needed} blocks and a row of the block table has {max_blocks}: raise the context size (-c)"
    )]
    TableTooNarrow { id: SequenceId, needed: usize, max_blocks: usize },
    #[error("{id} has no slot for position {position}: its blocks belong to another pool")]
    NoSlot { id: SequenceId, position: usize },
    #[error("{id} has token {token} at position {position}: expected an id up to {most}", most = i32::MAX)]
    BadToken { id: SequenceId, token: TokenId, position: usize },

    // Errors of the layers below.
    #[error(transparent)]
    Tokenizer(#[from] llmrt_tokenizer::Error),
    #[error(transparent)]
    Host(llmrt_host::Error),
    /// The engine's [`llmrt_host::CancelToken`] was set. Sequences keep their tokens; the next step goes on.
    #[error("the step was cancelled")]
    Cancelled,
    #[error("{message}")]
    Load {
        message: String,
        cancelled: bool,
        out_of_memory: bool,
        /// The device's error, if it was one.
        device: Option<Box<llmrt_host::Error>>,
    },
    #[error(transparent)]
    Model(#[from] llmrt_models::Error),
    #[error(
        "device {device} has {free} bytes free: the KV cache takes {kv} and compute memory {compute}; lower the context \
         size (-c), the batch (-b) or the cache type (--kv-type q8_0)"
    )]
    NotEnoughMemory { device: String, kv: u64, compute: u64, free: u64 },
    #[error(
        "the memory for the KV cache holds {n_tokens} tokens and one sequence may have {n_ctx}: raise --kv-memory or \
         --memory-utilization, or lower the context size (-c) or the cache type (--kv-type q8_0)"
    )]
    KvTooSmall { n_tokens: usize, n_ctx: usize },
    #[error("strict placement forbids going on without a device: {problem}")]
    Strict { problem: String },
    #[error("saved keys and values cannot be used: {problem}")]
    BadState { problem: String },
    #[error("token {token} does not exist: the vocabulary has the ids 0 to {last}", last = n_vocab.saturating_sub(1))]
    TokenOutOfVocab { token: TokenId, n_vocab: u64 },
}

fn never_fits(refusal: &Refusal) -> String {
    let Refusal { request, limit, needed, available } = refusal;
    let (what, remedy) = match limit {
        Limit::Blocks => ("blocks of the KV cache", "raise the context size (-c), or shorten the prompt"),
        Limit::Sequences => {
            ("sequences in a step", "lower n or best_of, or raise max_num_seqs (--parallel of `llmrt serve`)")
        }
        Limit::EncoderTokens => {
            ("tokens for the encoder in a step", "raise the batch size (-b), or shorten the prompt")
        }
        Limit::BatchedTokens => (
            "tokens in a step",
            "raise max_num_batched_tokens (-b), or let prompts be computed in chunks (--scheduling chunked), which models whose \
             tokens see later ones do not allow",
        ),
    };
    format!("{request} requires {needed} {what} and there are {available}: {remedy}")
}

impl From<llmrt_host::Error> for Error {
    fn from(e: llmrt_host::Error) -> Error {
        match e {
            llmrt_host::Error::Cancelled => Error::Cancelled,
            e => Error::Host(e),
        }
    }
}

impl From<llmrt_host::load::Error> for Error {
    fn from(e: llmrt_host::load::Error) -> Error {
        use llmrt_host::load::Error as Load;
        let cancelled = matches!(e, Load::Cancelled);
        let device = e.of_device().cloned().map(Box::new);
        Error::Load { message: e.to_string(), cancelled, out_of_memory: e.is_oom(), device }
    }
}

impl Error {
    /// Whether a device has too little memory left for what it was to do.
    pub(crate) fn is_out_of_device_memory(&self) -> bool {
        self.device_call().is_some_and(|call| call.status == Status::OomDevice)
    }

    /// Whether work stopped because that was requested.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Error::Cancelled | Error::Load { cancelled: true, .. })
    }

    /// What a device answered, if that is what went wrong.
    pub fn device_call(&self) -> Option<&llmrt_host::CallError> {
        match self {
            Error::Host(e) => e.call(),
            Error::Load { device, .. } => device.as_deref()?.call(),
            _ => None,
        }
    }
}
