//! What can be wrong with a vocabulary, a text or a template, with the key, the value and the remedy.

use llmrt_gguf::{printable_lines, printable_name as shown};

/// Result with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a tokenizer cannot be built or used. The caller adds the name of the file.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[allow(missing_docs)] // each field is named in its variant's message
pub enum Error {
    // The vocabulary.
    #[error(transparent)]
    Metadata(#[from] llmrt_gguf::Error),
    #[error(
        "the file has no vocabulary (tokenizer.ggml.model is `{}`): give token ids instead of text",
        shown(found)
    )]
    NoVocabulary { found: String },
    #[error("tokenizer.ggml.model is `{}`: expected {expected}", shown(found))]
    UnknownModel { found: String, expected: String },
    #[error(
        "tokenizer.ggml.pre is `{}`, which is not known; the nearest names are {nearest}. Choose one of them, or `default`, \
         to continue anyway",
        shown(found)
    )]
    UnknownPre { found: String, nearest: String },
    #[error("tokenizer.ggml.tokens has {found} entries: expected 1 to {most}")]
    BadTokenCount { found: usize, most: u32 },
    #[error(
        "tokenizer.ggml.tokens has \"{}\" twice, as {first} and as {second}: every token must be unique",
        shown(text)
    )]
    DuplicateToken { text: String, first: u32, second: u32 },
    #[error("{key} has {found} entries, tokenizer.ggml.tokens has {expected}: both must be of one length")]
    WrongLength { key: &'static str, found: usize, expected: usize },
    #[error("tokenizer.ggml.scores[{index}] is {found}: expected a number")]
    BadScore { index: usize, found: f32 },
    #[error("tokenizer.ggml.token_type[{index}] is {found}: expected 0 to 6")]
    BadTokenType { index: usize, found: i32 },
    #[error(
        "tokenizer.ggml.merges[{index}] is \"{}\": expected two pieces with a space between them",
        shown(found)
    )]
    BadMerge { index: usize, found: String },
    #[error(
        "token {id} is \"{}\": expected \\n, \\t, \\r, \\x with two hexadecimal digits, or another character after each \\",
        shown(found)
    )]
    BadEscape { id: u32, found: String },
    #[error("no token of type 6 is <0x{byte:02X}>: expected one for each byte")]
    NoByteToken { byte: u8 },
    #[error("tokenizer.ggml.precompiled_charsmap is damaged: {reason}")]
    BadCharsMap { reason: &'static str },
    #[error("{key} is {found}: the vocabulary has the ids 0 to {last}", last = n_tokens - 1)]
    SpecialOutOfRange { key: &'static str, found: u32, n_tokens: usize },
    #[error("{flag} is true, but {key} is not set: set the id, or the flag to false")]
    SpecialMissing { flag: &'static str, key: &'static str },
    #[error(
        "tokenizer.bin has {found} tokens: expected the unknown, start and end token and one for each byte"
    )]
    TooFewPieces { found: usize },

    #[error("token {id} has {found} bytes: expected at most {most}; this is no usable vocabulary")]
    LongToken { id: u32, found: usize, most: usize },
    #[error("the special tokens have {found} bytes: expected at most {most}; this is no usable vocabulary")]
    TooManySpecials { found: usize, most: usize },
    #[error("the special tokens cannot be searched for: {reason}")]
    SpecialTokens { reason: String },

    // Its use.
    #[error(
        "the text has more than {most} tokens, many more than the context holds: shorten it or raise the context size"
    )]
    TooManyTokens { most: usize },
    #[error(
        "a word of the text has {found} characters without a place to cut it: expected at most {most}; break it up"
    )]
    LongWord { found: usize, most: usize },
    #[error("there is no memory for {bytes} bytes to tokenize the text: shorten it")]
    OutOfMemory { bytes: usize },
    #[error("interrupted")]
    Cancelled,
    #[error("the vocabulary has no token for {what} and no unknown token (tokenizer.ggml.unknown_token_id)")]
    NoTokenFor { what: String },
    #[error("token id {id} does not exist: the vocabulary has the ids 0 to {last}", last = n_tokens - 1)]
    NoSuchToken { id: u32, n_tokens: usize },

    // Chat templates.
    #[error("chat template, line {line}: {}", printable_lines(reason))]
    Template { line: usize, reason: String },
    #[error("there are no messages: a chat template needs at least one")]
    NoMessages,
    #[error(
        "the template engine failed on this chat template, as it does on a backward slice of an empty list"
    )]
    TemplateEngine,
    #[error(
        "the chat template writes a prompt of more than {most} bytes, more than the context holds: shorten the \
         messages, raise the context size, or choose another template"
    )]
    LongPrompt { most: usize },
    #[error("the chat template writes no text for these messages: choose another template, or none")]
    EmptyPrompt,
    #[error(
        "a message has the control token `{}`, and the chat template does not copy it as it is: leave it out of the \
         message",
        shown(token)
    )]
    ControlInMessage { token: String },
    #[error("the chat template refuses these messages: {}", printable_lines(reason))]
    Refused { reason: String },
    #[error("the time `{}` is not written YYYY-MM-DDTHH:MM:SS", shown(found))]
    BadTime { found: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_files_and_templates_cannot_control_the_terminal() {
        let text = || "\x1b[31m\u{9b}2J\u{202e}".to_string();
        for e in [
            Error::UnknownModel { found: text(), expected: String::new() },
            Error::UnknownPre { found: text(), nearest: String::new() },
            Error::DuplicateToken { text: text(), first: 1, second: 2 },
            Error::BadMerge { index: 0, found: text() },
            Error::BadEscape { id: 0, found: text() },
            Error::Template { line: 1, reason: text() },
            Error::Refused { reason: text() },
            Error::BadTime { found: text() },
        ] {
            let message = e.to_string();
            assert!(message.contains("\\u{1b}[31m\\u{9b}2J\\u{202e}"), "{message}");
        }
    }
}
