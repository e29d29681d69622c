//! The core with a runner that has no model, and with the embedded model on the CPU.

mod alone;
mod beams;
mod cpu;
mod drafts;
mod embeddings;
mod fake;
mod handle;
mod requests;
