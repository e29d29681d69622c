//! Text to token ids and back, by the metadata of a GGUF file or a llama2.c `tokenizer.bin`, and chat templates.
//!
//! [`Vocab`] is the data, [`Tokenizer`] does the work, [`Decoder`] turns a stream of ids into text without ever
//! giving half a character, [`ChatTemplate`] turns messages into a prompt.
//!
//! The front page, with an example of embedding and all crates, is [llmrt_engine](../llmrt_engine/index.html).
#![forbid(unsafe_code)]

mod vocab;

mod tokenizer;

mod special;

mod prompt;

mod pair;

mod ids;

mod ends;

mod model;

mod spm;

mod bpe;

mod pretokenizer;

mod dna;

mod whitespace;

mod wpm;

mod ugm;

mod rwkv;

mod plamo2;

mod prefixes;

mod llama2c;

mod merge;

mod limits;

mod bytes;

mod decode;

mod chat;

mod json;

mod clock;

mod metadata;

mod error;

pub use bytes::char_of_byte;
pub use chat::{ChatTemplate, Message, RenderOptions};
pub use decode::Decoder;
pub use error::{Error, Result};
pub use limits::Limits;
pub use prompt::Prompt;
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocab::{ModelKind, TokenKind, Vocab};
