//! The scheduler against a model of memory: every plan is executed on slots that hold what was written to them.

mod explore;
mod planted;
mod random;
mod rows;
mod rules;
mod world;
