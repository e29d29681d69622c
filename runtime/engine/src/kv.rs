//! The paged KV cache: its blocks, what of them can be used again, the tables of sequences, and rows as bytes; slots of
//! recurrent states.

pub mod pool;
pub mod prefix;
pub(crate) mod slots;
pub mod state;
pub mod table;
