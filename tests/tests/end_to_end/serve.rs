//! `llmrt serve` over a socket: answers, streams, errors, limits, and how it ends. The embedded model answers.

mod abuse;
pub mod client;
mod clients;
mod faults;
mod log;
mod ollama;
mod openai;
mod openapi;
mod others;
mod receipts;
mod store;
mod storms;
mod tls;
