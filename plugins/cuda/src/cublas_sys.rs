//! cuBLASLt as far as llmrt calls it: types, numbers and functions under the names that the library exports. Written from
//! NVIDIA's public documentation; no header of theirs is needed to build.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use crate::sys::{CUresult, CUstream, Functions, functions};
use std::ffi::{c_int, c_void};

pub type cublasLtHandle_t = *mut c_void;
pub type cublasLtMatmulDesc_t = *mut c_void;
pub type cublasLtMatrixLayout_t = *mut c_void;
pub type cublasLtMatmulPreference_t = *mut c_void;

/// How a product is computed; the library's own words.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct cublasLtMatmulAlgo_t {
    pub data: [u64; 8],
}

/// One answer of the heuristic.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct cublasLtMatmulHeuristicResult_t {
    pub algo: cublasLtMatmulAlgo_t,
    /// Bytes that it needs.
    pub workspace: usize,
    /// A status: whether the rest means anything.
    pub state: c_int,
    pub waves: f32,
    pub reserved: [c_int; 4],
}

macro_rules! statuses {
    ($($name:ident = $value:literal;)*) => {
        $(pub const $name: c_int = $value;)*

        /// The name of a status, if it is one of these.
        pub fn name_of(status: c_int) -> &'static str {
            match status { $($value => stringify!($name),)* _ => "an unknown status" }
        }
    };
}

statuses! {
    CUBLAS_STATUS_SUCCESS = 0;
    CUBLAS_STATUS_NOT_INITIALIZED = 1;
    CUBLAS_STATUS_ALLOC_FAILED = 3;
    CUBLAS_STATUS_INVALID_VALUE = 7;
    CUBLAS_STATUS_ARCH_MISMATCH = 8;
    CUBLAS_STATUS_MAPPING_ERROR = 11;
    CUBLAS_STATUS_EXECUTION_FAILED = 13;
    CUBLAS_STATUS_INTERNAL_ERROR = 14;
    CUBLAS_STATUS_NOT_SUPPORTED = 15;
    CUBLAS_STATUS_LICENSE_ERROR = 16;
}

/// Of `cublasLtGetProperty`.
pub const MAJOR_VERSION: c_int = 0;
/// `cudaDataType`
pub const CUDA_R_32F: c_int = 0;
pub const CUDA_R_16F: c_int = 2;
pub const CUDA_R_16BF: c_int = 14;
/// `cublasComputeType_t`
pub const CUBLAS_COMPUTE_32F: c_int = 68;
/// `cublasOperation_t`
pub const CUBLAS_OP_N: c_int = 0;
pub const CUBLAS_OP_T: c_int = 1;
/// `cublasLtMatmulDescAttributes_t`, of 4 bytes each.
pub const CUBLASLT_MATMUL_DESC_TRANSA: c_int = 3;
pub const CUBLASLT_MATMUL_DESC_TRANSB: c_int = 4;
/// `cublasLtMatmulPreferenceAttributes_t`, of 8 bytes.
pub const CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: c_int = 1;
/// Of 4 bytes each.
pub const CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: c_int = 5;
pub const CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: c_int = 6;
pub const CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: c_int = 7;
pub const CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: c_int = 8;

functions! {
    /// libcublasLt.so
    CublasLt {
        cublasLtCreate(handle: *mut cublasLtHandle_t);
        cublasLtDestroy(handle: cublasLtHandle_t);
        cublasLtGetProperty(property: c_int, value: *mut c_int);
        cublasLtMatmulDescCreate(desc: *mut cublasLtMatmulDesc_t, compute: c_int, scale: c_int);
        cublasLtMatmulDescDestroy(desc: cublasLtMatmulDesc_t);
        cublasLtMatmulDescSetAttribute(desc: cublasLtMatmulDesc_t, attribute: c_int, value: *const c_void, n: usize);
        cublasLtMatrixLayoutCreate(layout: *mut cublasLtMatrixLayout_t, dtype: c_int, rows: u64, cols: u64, ld: i64);
        cublasLtMatrixLayoutDestroy(layout: cublasLtMatrixLayout_t);
        cublasLtMatmulPreferenceCreate(preference: *mut cublasLtMatmulPreference_t);
        cublasLtMatmulPreferenceDestroy(preference: cublasLtMatmulPreference_t);
        cublasLtMatmulPreferenceSetAttribute(preference: cublasLtMatmulPreference_t, attribute: c_int,
            value: *const c_void, n: usize);
        cublasLtMatmulAlgoGetHeuristic(handle: cublasLtHandle_t, desc: cublasLtMatmulDesc_t, a: cublasLtMatrixLayout_t,
            b: cublasLtMatrixLayout_t, c: cublasLtMatrixLayout_t, d: cublasLtMatrixLayout_t,
            preference: cublasLtMatmulPreference_t, n: c_int, results: *mut cublasLtMatmulHeuristicResult_t,
            n_found: *mut c_int);
        cublasLtMatmul(handle: cublasLtHandle_t, desc: cublasLtMatmulDesc_t, alpha: *const c_void, a: *const c_void,
            a_layout: cublasLtMatrixLayout_t, b: *const c_void, b_layout: cublasLtMatrixLayout_t, beta: *const c_void,
            c: *const c_void, c_layout: cublasLtMatrixLayout_t, d: *mut c_void, d_layout: cublasLtMatrixLayout_t,
            algo: *const cublasLtMatmulAlgo_t, workspace: *mut c_void, n: usize, stream: CUstream);
    }
}
