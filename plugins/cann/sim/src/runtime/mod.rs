//! The runtime: what the functions of libascendcl do.

pub mod start;

pub mod context;

pub mod alloc;
pub mod copy;
pub mod vmm;

pub mod queue;
pub mod stream;
pub mod task;

pub mod event;

pub mod capture;

use crate::sys::cann_acl;

/// Fills the header's table.
pub(crate) fn fill(table: &mut cann_acl) {
    start::fill_all(table);
    context::fill(table);
    alloc::fill(table);
    copy::fill(table);
    vmm::fill(table);
    stream::fill(table);
    event::fill(table);
    capture::fill(table);
}
