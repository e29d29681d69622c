//! Tests that run built programs, and those that need nothing of this process but its memory, in one binary: it is linked
//! once, and while one test waits for a program others run. Tests that load plugins into their own process have
//! binaries of their own.

mod archs;
mod archs_reference;
mod cann;
mod card_script;
mod cards;
mod chunked;
mod cli;
mod conform;
mod cuda;
mod drafts;
mod embedded;
mod fault;
mod hostile;
mod llama2c;
mod mutations;
mod neurons;
mod on_models;
mod powerinfer;
mod seal_cache;
mod serve;
mod tokenizers;
mod trained;
