//! The kernels' sources, a file per op family, as they are compiled ahead, at run time, or by tests as plain C++.

/// One file of kernels.
pub struct Family {
    /// Its name, and the file's.
    pub name: &'static str,
    /// CUDA C++.
    pub source: &'static str,
    /// The only target that it is for; `None`: it is for all.
    pub only: Option<&'static str>,
}

impl Family {
    /// Whether it is compiled for a target, one of [`TARGETS`] or [`PTX_TARGET`].
    pub fn is_for(&self, target: &str) -> bool {
        self.only.is_none_or(|only| only == target)
    }
}

macro_rules! only {
    () => {
        None
    };
    ($target:literal) => {
        Some($target)
    };
}
macro_rules! families {
    ($($name:literal $(for $target:literal)?),*) => {
        /// Every family.
        pub const FAMILIES: &[Family] = &[$(Family {
            name: $name,
            source: include_str!(concat!("../kernels/", $name, ".cu")),
            only: only!($($target)?),
        }),*];
    };
}
macro_rules! headers {
    ($($name:literal),*) => {
        /// What families include: name, text.
        pub const HEADERS: &[(&str, &str)] = &[$(($name, include_str!(concat!("../kernels/", $name)))),*];
    };
}

families![
    "attention",
    "attention_contiguous",
    "attention_tile",
    "conv",
    "elementwise",
    "image",
    "matrix",
    "moves",
    "mul_mat",
    "mul_mat_eight",
    "mul_mat_gated",
    "mul_mat_half",
    "mul_mat_tile",
    "mul_mat_wgmma" for "sm_90a",
    "norm",
    "order",
    "place",
    "recurrence",
    "reduce",
    "rope",
    "rows",
    "softmax",
    "ssm"
];
headers![
    "alibi.cuh",
    "block.cuh",
    "cached.cuh",
    "device.cuh",
    "few.cuh",
    "few_floats.cuh",
    "gate.cuh",
    "gated_product.cuh",
    "hopper.cuh",
    "number.cuh",
    "pack.cuh",
    "paged.cuh",
    "product.cuh",
    "quant.cuh",
    "raw.cuh",
    "state.cuh",
    "tensor.cuh",
    "tile.cuh",
    "write.cuh"
];

/// Chips for which kernels are compiled ahead, as the compiler names them.
pub const TARGETS: [&str; 7] = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120"];

/// The PTX target that newer chips get, compiled by their driver; older chips lack features that it uses.
pub const PTX_TARGET: &str = "compute_80";

/// A number that changes with any source.
pub fn sources_hash() -> u64 {
    let texts = HEADERS.iter().map(|(_, text)| *text).chain(FAMILIES.iter().map(|family| family.source));
    // FNV-1a.
    texts
        .flat_map(str::bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The family of this name.
pub fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.name == name)
}
