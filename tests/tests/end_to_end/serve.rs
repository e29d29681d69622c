//! `llmrt serve` over a socket: answers, streams, errors, limits, and how it ends. The embedded model answers.

mod abuse;
mod client;
mod faults;
mod ollama;
mod openai;
mod openapi;
mod others;
mod store;
mod storms;
