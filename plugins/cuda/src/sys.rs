//! The driver API, the run-time compiler and cuBLASLt as far as llmrt calls them. Types, numbers and signatures are cudarc's,
//! generated from NVIDIA's headers of CUDA 12.8. Statuses stay integers: a newer library may return one that the enum of 12.8
//! lacks.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

pub use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cudaDataType, libraryPropertyType,
};
pub use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUevent, CUfunction, CUfunction_attribute, CUgraph,
    CUgraphExec, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationProp_st__bindgen_ty_1,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUmodule, CUstream,
    CUstreamCaptureMode, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave,
    CUtensorMapL2promotion, CUtensorMapSwizzle, CUuuid,
};
pub use cudarc::nvrtc::sys::nvrtcProgram;

pub use CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
    CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED,
};
pub use CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
pub use CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
pub use CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
pub use CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
pub use CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
pub use CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
pub use CUtensorMapDataType::{CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16};
pub use CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
pub use CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
pub use CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
pub use CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B;
pub use cublasComputeType_t::CUBLAS_COMPUTE_32F;
pub use cublasLtMatmulDescAttributes_t::{CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB};
pub use cublasLtMatmulPreferenceAttributes_t::{
    CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
};
pub use cudaDataType::{CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F};
pub use libraryPropertyType::MAJOR_VERSION;

use std::ffi::{c_int, c_uint};

/// A status as libraries return it. Where cudarc has an enum, this is its number.
pub type CUresult = c_int;

macro_rules! statuses {
    ($(#[doc = $doc:literal])* $name_of:ident of $enum:path { $($name:ident)* }) => {
        $(pub const $name: c_int = { use $enum as E; E::$name as c_int };)*

        $(#[doc = $doc])*
        pub fn $name_of(status: c_int) -> Option<&'static str> {
            match status { $($name => Some(stringify!($name)),)* _ => None }
        }
    };
}

statuses! {
    /// The name of a status of the driver, if it is one of these.
    name_of of cudarc::driver::sys::CUresult {
        CUDA_SUCCESS CUDA_ERROR_INVALID_VALUE CUDA_ERROR_OUT_OF_MEMORY CUDA_ERROR_NOT_INITIALIZED
        CUDA_ERROR_DEINITIALIZED CUDA_ERROR_STUB_LIBRARY CUDA_ERROR_NO_DEVICE CUDA_ERROR_INVALID_DEVICE
        CUDA_ERROR_INVALID_IMAGE CUDA_ERROR_INVALID_CONTEXT CUDA_ERROR_MAP_FAILED CUDA_ERROR_NO_BINARY_FOR_GPU
        CUDA_ERROR_ECC_UNCORRECTABLE CUDA_ERROR_PEER_ACCESS_UNSUPPORTED CUDA_ERROR_INVALID_PTX
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND CUDA_ERROR_UNSUPPORTED_PTX_VERSION CUDA_ERROR_JIT_COMPILATION_DISABLED
        CUDA_ERROR_INVALID_SOURCE CUDA_ERROR_INVALID_HANDLE CUDA_ERROR_ILLEGAL_STATE CUDA_ERROR_NOT_FOUND
        CUDA_ERROR_NOT_READY CUDA_ERROR_ILLEGAL_ADDRESS CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES CUDA_ERROR_LAUNCH_TIMEOUT
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED CUDA_ERROR_PEER_ACCESS_NOT_ENABLED CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE
        CUDA_ERROR_CONTEXT_IS_DESTROYED CUDA_ERROR_ASSERT CUDA_ERROR_TOO_MANY_PEERS
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
        CUDA_ERROR_HARDWARE_STACK_ERROR CUDA_ERROR_ILLEGAL_INSTRUCTION CUDA_ERROR_MISALIGNED_ADDRESS
        CUDA_ERROR_INVALID_ADDRESS_SPACE CUDA_ERROR_INVALID_PC CUDA_ERROR_LAUNCH_FAILED CUDA_ERROR_NOT_PERMITTED
        CUDA_ERROR_NOT_SUPPORTED CUDA_ERROR_SYSTEM_NOT_READY CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
        CUDA_ERROR_STREAM_CAPTURE_UNMATCHED CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD CUDA_ERROR_UNKNOWN
    }
}

statuses! {
    /// The name of a status of cuBLASLt, if it is one of these.
    cublas_name_of of cudarc::cublaslt::sys::cublasStatus_t {
        CUBLAS_STATUS_SUCCESS CUBLAS_STATUS_NOT_INITIALIZED CUBLAS_STATUS_ALLOC_FAILED CUBLAS_STATUS_INVALID_VALUE
        CUBLAS_STATUS_ARCH_MISMATCH CUBLAS_STATUS_MAPPING_ERROR CUBLAS_STATUS_EXECUTION_FAILED
        CUBLAS_STATUS_INTERNAL_ERROR CUBLAS_STATUS_NOT_SUPPORTED CUBLAS_STATUS_LICENSE_ERROR
    }
}

/// `cublasOperation_t`, which is an attribute's value here; cudarc declares it with cuBLAS only.
pub const CUBLAS_OP_N: c_int = 0;
pub const CUBLAS_OP_T: c_int = 1;
/// Flags that the driver's functions take as plain integers.
pub const CU_STREAM_NON_BLOCKING: c_uint =
    cudarc::driver::sys::CUstream_flags::CU_STREAM_NON_BLOCKING as c_uint;
pub const CU_EVENT_DISABLE_TIMING: c_uint =
    cudarc::driver::sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as c_uint;
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = cudarc::driver::sys::CU_MEMHOSTALLOC_PORTABLE;
