//! The caches of sequences: blocks of keys and values, what of them can be used again, the tables of sequences, slots of
//! recurrent states, and rows as bytes.

pub mod pool;
pub mod pools;
pub mod prefix;
pub mod state;
pub mod table;
