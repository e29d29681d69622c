//! Which functions of each library are looked up, by name, and how they are called: with the signatures that cudarc declares.
//!
//! Of cudarc only declarations are used. Its functions load their library and symbol at the first call and panic where one
//! is missing; here [`crate::library`] resolves every symbol first, and names the missing ones in an error.
#![allow(missing_docs, non_snake_case)]

use std::ffi::c_int;

/// Functions that a driver may lack: they came with CUDA 12.0 and 12.4.
pub const OPTIONAL: [&str; 2] = ["cuTensorMapEncodeTiled", "cuFuncGetParamInfo"];

/// The address of a function, to be called through [`call`] as what its name is declared as.
pub type Address = unsafe extern "C" fn();

/// A table of functions of one library.
///
/// # Safety
/// Every field is an `Option<Address>`, as many as `NAMES`, in its order.
pub unsafe trait Functions {
    /// The functions' names.
    const NAMES: &'static [&'static str];
}

/// cudarc's declaration of a function, and what the library exports under its name.
pub trait Declared: Copy {
    /// With the same arguments, and an integer for the status.
    type Exported: Copy;
}

macro_rules! declared {
    ($($arg:ident)*) => {
        impl<R, $($arg),*> Declared for unsafe fn($($arg),*) -> R {
            type Exported = unsafe extern "C" fn($($arg),*) -> c_int;
        }
        declared!(@less $($arg)*);
    };
    (@less) => {};
    (@less $first:ident $($arg:ident)*) => { declared!($($arg)*); };
}
declared!(A B C D E F G H I J K L M N O P);

/// Gives an address the type of the declaration.
///
/// # Safety
/// The address is that of the function that `declaration` declares.
pub unsafe fn exported<F: Declared>(_declaration: F, address: Address) -> F::Exported {
    const { assert!(size_of::<F::Exported>() == size_of::<Address>()) };
    // SAFETY: both are function pointers; the caller's promise is that the function has this signature.
    unsafe { std::mem::transmute_copy(&address) }
}

/// Calls a function of a table as cudarc declares it; its status, or `None` if the library lacks it. For `unsafe` blocks
/// that explain why the arguments are valid.
#[macro_export]
macro_rules! call {
    ($table:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match $table.$name {
            Some(address) => {
                let declaration: unsafe fn($($crate::call!(@any $arg)),*) -> _ = $crate::tables::declarations::$name;
                // The table resolved this address by the declaration's name.
                Some($crate::tables::exported(declaration, address)($($arg),*))
            }
            None => None,
        }
    };
    (@any $arg:expr) => { _ };
}
pub use call;

macro_rules! functions {
    ($($(#[doc = $doc:literal])* $table:ident of $library:path { $($name:ident)* })*) => {
        $(
            $(#[doc = $doc])*
            #[repr(C)]
            #[derive(Clone, Copy)]
            pub struct $table { $(pub $name: Option<Address>,)* }

            // SAFETY: fields and names come from one list.
            unsafe impl Functions for $table {
                const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
            }
        )*

        /// cudarc's declarations of these functions, which are never called.
        pub mod declarations {
            $(pub use $library::{$($name),*};)*
        }
    };
}

functions! {
    /// libcuda.so.1
    Cuda of cudarc::driver::sys {
        cuInit cuDriverGetVersion cuGetErrorString cuDeviceGetCount cuDeviceGet cuDeviceGetName cuDeviceGetUuid
        cuDeviceGetPCIBusId cuDeviceGetAttribute cuDeviceTotalMem_v2 cuDevicePrimaryCtxRetain
        cuDevicePrimaryCtxRelease_v2 cuCtxSetCurrent cuCtxEnablePeerAccess cuDeviceCanAccessPeer cuMemGetInfo_v2
        cuMemAlloc_v2 cuMemFree_v2 cuMemHostAlloc cuMemFreeHost cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2
        cuMemcpyHtoDAsync_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyPeerAsync cuMemsetD8_v2
        cuMemGetAllocationGranularity cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap
        cuMemUnmap cuMemSetAccess cuModuleLoadData cuModuleUnload cuModuleGetFunction cuFuncSetAttribute
        cuFuncGetParamInfo cuTensorMapEncodeTiled cuLaunchKernel cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamSynchronize
        cuStreamWaitEvent cuStreamBeginCapture_v2 cuStreamEndCapture cuGraphInstantiateWithFlags cuGraphLaunch
        cuGraphExecDestroy cuGraphDestroy cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventQuery
    }
    /// libnvrtc.so
    Nvrtc of cudarc::nvrtc::sys {
        nvrtcVersion nvrtcCreateProgram nvrtcDestroyProgram nvrtcCompileProgram nvrtcGetProgramLogSize
        nvrtcGetProgramLog nvrtcGetCUBINSize nvrtcGetCUBIN nvrtcGetPTXSize nvrtcGetPTX
    }
    /// libcublasLt.so
    CublasLt of cudarc::cublaslt::sys {
        cublasLtCreate cublasLtDestroy cublasLtGetProperty cublasLtMatmulDescCreate cublasLtMatmulDescDestroy
        cublasLtMatmulDescSetAttribute cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy
        cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute
        cublasLtMatmulAlgoGetHeuristic cublasLtMatmul
    }
}
