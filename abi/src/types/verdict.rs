//! The verdicts that plugins in Rust return; the header has functions for those in C.

use super::Verdict;

impl Verdict {
    /// The device runs the node; cost unknown, no scratch.
    pub const YES: Verdict = Verdict { support: 1, reason: 0, fuse_group: 0, est_us: -1.0, workspace: 0 };

    /// The device does not run the node.
    pub const fn no(reason: crate::Reason) -> Verdict {
        Verdict { support: 0, reason: reason.code(), fuse_group: 0, est_us: -1.0, workspace: 0 }
    }
}
