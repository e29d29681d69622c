//! The paged KV cache: its blocks, what of them can be used again, the tables of sequences, and rows as bytes.

pub mod pool;
pub mod prefix;
pub mod state;
pub mod table;
