//! Flags and enumerations.

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident : $ty:ty = $value:expr;)*) => {
        $($(#[$doc])* pub const $name: $ty = $value;)*
        /// Flag and enumeration constants: name without `LLMRT_`, value. The header is written from this.
        pub const CONSTANTS: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

constants! {
    /// Built with the address sanitiser.
    BUILD_ASAN: u32 = 1;
    /// Built with the thread sanitiser.
    BUILD_TSAN: u32 = 2;
    /// Built without optimisation.
    BUILD_DEBUG: u32 = 4;
    /// A panic ends the process.
    BUILD_PANIC_ABORT: u32 = 8;
    /// The plugin cannot work without `llmrt.host.threads`.
    NEEDS_THREADS: u64 = 1;
    /// Main processor.
    DEVICE_CPU: u32 = 0;
    /// Graphics processor with its own memory.
    DEVICE_GPU: u32 = 1;
    /// Graphics processor in main memory.
    DEVICE_IGPU: u32 = 2;
    /// Neural processor.
    DEVICE_NPU: u32 = 3;
    /// Anything else that computes.
    DEVICE_ACCEL: u32 = 4;
    /// `compute` returns before the work is done.
    CAP_ASYNC: u64 = 1;
    /// Has events.
    CAP_EVENTS: u64 = 2;
    /// Has plans of its own.
    CAP_PLAN: u64 = 4;
    /// Reads host memory in place: `import_host` works.
    CAP_HOST_READ: u64 = 8;
    /// Copies from peers.
    CAP_P2P: u64 = 16;
    /// Has virtual memory in `llmrt.devmem`.
    CAP_VMM: u64 = 32;
    /// Device memory.
    BUFFER_DEVICE: u32 = 0;
    /// Page-locked host memory.
    BUFFER_HOST_PINNED: u32 = 1;
    /// Host memory.
    BUFFER_HOST: u32 = 2;
    /// Memory that host and device address alike.
    BUFFER_MANAGED: u32 = 3;
    /// Weights in a layout of the plugin's own.
    BUFFER_REPACKED: u32 = 4;
    /// `set` on disjoint ranges from several threads.
    BT_CONCURRENT_SET: u32 = 1;
    /// Only weights may live here.
    BT_WEIGHTS_ONLY: u32 = 2;
    /// `host_ptr` gives an address.
    BT_HOST_PTR: u32 = 4;
    /// `seal` may change layouts.
    BT_MAY_TRANSFORM: u32 = 8;
    /// Matrices are worth a copy to this kind of memory, even from host memory that the device uses in place: `seal`
    /// repacks them for speed. The roles MATRIX and EXPERTS then mark exactly the weights that products multiply, and
    /// `get_rows` reads.
    BT_COPY_MATRICES: u32 = 16;
    /// Any use.
    USAGE_ANY: u32 = 0;
    /// Weights.
    USAGE_WEIGHTS: u32 = 1;
    /// Intermediate results.
    USAGE_COMPUTE: u32 = 2;
    /// State kept between runs.
    USAGE_STATE: u32 = 3;
    /// Read-only host memory.
    IMPORT_READ_ONLY: u32 = 1;
    /// Set by the host before each run.
    TENSOR_INPUT: u32 = 1;
    /// Read by the host after each run.
    TENSOR_OUTPUT: u32 = 2;
    /// Never changes.
    TENSOR_WEIGHT: u32 = 4;
    /// Kept between runs.
    TENSOR_STATE: u32 = 8;
    /// Unknown.
    ROLE_OTHER: u32 = 0;
    /// Left operand of `mul_mat`.
    ROLE_MATRIX: u32 = 1;
    /// Table of `get_rows`.
    ROLE_EMBEDDING: u32 = 2;
    /// Norm weight.
    ROLE_NORM: u32 = 3;
    /// Added to rows.
    ROLE_BIAS: u32 = 4;
    /// Left operand of `mul_mat_id`.
    ROLE_EXPERTS: u32 = 5;
    /// K cache.
    ROLE_K_CACHE: u32 = 6;
    /// V cache.
    ROLE_V_CACHE: u32 = 7;
    /// Left operand of `mul_mat` whose x are mostly zeros, only on devices that request copies of matrices (`BT_COPY_MATRICES`).
    ROLE_MATRIX_OF_ZEROS: u32 = 8;
    /// Left operand of `mul_mat_sparse` or `mul_mat_t` alone, which read few of its rows for a token, only on devices that request
    /// copies of matrices.
    ROLE_PICKED_ROWS: u32 = 9;
    /// `get` still returns canonical bytes.
    LAYOUT_INVERTIBLE: u32 = 1;
    /// `get` returns `Unsupported`.
    LAYOUT_OPAQUE: u32 = 2;
    /// Row slices stay meaningful.
    LAYOUT_ROW_SLICEABLE: u32 = 4;
    /// The tensor's bytes may be kept in a file, and imported read-only in this layout later by the same version of the plugin.
    LAYOUT_STORABLE: u32 = 8;
    /// "No tensor": an optional source left out, or not a view.
    NO_TENSOR: u32 = u32::MAX;
}
