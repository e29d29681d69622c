//! Releases of the vendor's libraries, and how they differ: the files, the functions that are there, and what some answer.
//!
//! Sources: the headers of CANN 8.1.RC1; the open sources of 8.5, 9.0 and 9.1 (opbase, ops-math, ops-nn, ops-cv), whose
//! functions are those of the newest but for what [`Release::lacks`] lists. For 8.0 no header is public: it is taken to be 8.1
//! without captures, which torch_npu has from 8.1 on.

use crate::config::Vmm;

/// A release.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Release {
    /// 8.0.
    V8_0,
    /// 8.1.
    V8_1,
    /// 8.5.
    V8_5,
    /// 9.0.
    V9_0,
    /// 9.1.
    V9_1,
}

/// Functions that 8.1 lacks, of those that llmrt uses.
const NOT_IN_8_1: [&str; 5] = [
    "aclrtGetDeviceInfo",
    "aclrtDeviceGetUuid",
    "aclsysGetVersionStr",
    "aclnnFastGelu",
    "aclnnRotaryPositionEmbedding",
];

/// Functions of captures.
const CAPTURE: [&str; 5] = [
    "aclmdlRICaptureBegin",
    "aclmdlRICaptureEnd",
    "aclmdlRICaptureGetInfo",
    "aclmdlRIExecuteAsync",
    "aclmdlRIDestroy",
];

impl Release {
    /// All, oldest first.
    pub const ALL: [Release; 5] = [Release::V8_0, Release::V8_1, Release::V8_5, Release::V9_0, Release::V9_1];

    /// As in "8.1".
    pub fn name(self) -> &'static str {
        match self {
            Release::V8_0 => "8.0",
            Release::V8_1 => "8.1",
            Release::V8_5 => "8.5",
            Release::V9_0 => "9.0",
            Release::V9_1 => "9.1",
        }
    }

    /// The release of a name.
    pub fn of(name: &str) -> Option<Release> {
        Release::ALL.into_iter().find(|release| release.name() == name)
    }

    /// Whether operators are in four libraries instead of one.
    pub fn is_split(self) -> bool {
        self >= Release::V8_5
    }

    /// Functions that are not there, without `GetWorkspaceSize`.
    pub fn lacks(self) -> Vec<&'static str> {
        let none = if self < Release::V8_5 { &NOT_IN_8_1[..] } else { &[] };
        let captures = if self < Release::V8_1 { &CAPTURE[..] } else { &[] };
        [none, captures].concat()
    }

    /// Whether products of 16-bit rows and NZ weights have F32 results on A2 and A3: before, `matmul_util.cpp` makes the result the
    /// weight's type, whatever was requested (ops-nn 8.5.0, 9.0.1, 9.1.0-beta.1; 9.1.0 has `enable16In32Out`).
    pub fn has_wide_nz(self) -> bool {
        self >= Release::V9_1
    }

    /// Whether products of several 16-bit matrices have F32 results on A2 and A3: before, `GetBatchMatmulOp` of
    /// `batch_matmul_util.cpp` gives the result the type of x, and makes it F32 afterwards (ops-nn 8.5.0, 9.0.1, 9.1.0-beta.3; 9.1.0
    /// has `bmm16In32OutRorA2`). BF16 always; F16 of the shapes that `BmmCheckHitV3Shape` picks, which are taken to be all.
    pub fn has_wide_batches(self) -> bool {
        self >= Release::V9_1
    }

    /// What reserved addresses take: from 8.1 on the flag is the size of pages (`acl_rt.h`).
    pub fn vmm(self) -> Vmm {
        if self < Release::V8_1 { Vmm::NoFlags } else { Vmm::Paged }
    }
}
