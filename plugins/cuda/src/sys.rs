//! The CUDA driver API as far as llmrt calls it: types, numbers and functions under the names that the library exports.
//! Written from NVIDIA's public documentation; no header of theirs is needed to build.
#![allow(missing_docs, non_camel_case_types, non_snake_case)]

use std::ffi::{c_char, c_int, c_uint, c_void};

pub type CUresult = c_int;
pub type CUdevice = c_int;
pub type CUdeviceptr = u64;
pub type CUcontext = *mut c_void;
pub type CUmodule = *mut c_void;
pub type CUfunction = *mut c_void;
pub type CUstream = *mut c_void;
pub type CUevent = *mut c_void;
pub type CUgraph = *mut c_void;
pub type CUgraphExec = *mut c_void;
pub type CUmemHandle = u64;

/// What a piece of physical memory is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUmemAllocationProp {
    /// 1: pinned.
    pub kind: c_uint,
    pub handle_types: c_uint,
    pub location: CUmemLocation,
    pub win32: *mut c_void,
    /// Compression, GPUDirect RDMA, usage, reserved.
    pub flags: [u8; 8],
}

/// Where memory is: 1 and the number of a device.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUmemLocation {
    pub kind: c_uint,
    pub id: c_int,
}

/// Who may do what with mapped memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    /// 3: read and write.
    pub flags: c_uint,
}

/// How tiles are taken of a tensor in memory; only the driver and the card look inside.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct CUtensorMap(pub [u64; 16]);

macro_rules! constants {
    ($($name:ident = $value:literal;)*) => {
        $(pub const $name: c_int = $value;)*

        /// The name of a result's number, if it is one of these.
        pub fn name_of(code: CUresult) -> Option<&'static str> {
            match code { $($value => Some(stringify!($name)),)* _ => None }
        }
    };
}

constants! {
    CUDA_SUCCESS = 0;
    CUDA_ERROR_INVALID_VALUE = 1;
    CUDA_ERROR_OUT_OF_MEMORY = 2;
    CUDA_ERROR_NOT_INITIALIZED = 3;
    CUDA_ERROR_DEINITIALIZED = 4;
    CUDA_ERROR_STUB_LIBRARY = 34;
    CUDA_ERROR_NO_DEVICE = 100;
    CUDA_ERROR_INVALID_DEVICE = 101;
    CUDA_ERROR_INVALID_IMAGE = 200;
    CUDA_ERROR_INVALID_CONTEXT = 201;
    CUDA_ERROR_MAP_FAILED = 205;
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209;
    CUDA_ERROR_ECC_UNCORRECTABLE = 214;
    CUDA_ERROR_PEER_ACCESS_UNSUPPORTED = 217;
    CUDA_ERROR_INVALID_PTX = 218;
    CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221;
    CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222;
    CUDA_ERROR_JIT_COMPILATION_DISABLED = 223;
    CUDA_ERROR_INVALID_SOURCE = 300;
    CUDA_ERROR_INVALID_HANDLE = 400;
    CUDA_ERROR_ILLEGAL_STATE = 401;
    CUDA_ERROR_NOT_FOUND = 500;
    CUDA_ERROR_NOT_READY = 600;
    CUDA_ERROR_ILLEGAL_ADDRESS = 700;
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701;
    CUDA_ERROR_LAUNCH_TIMEOUT = 702;
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704;
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705;
    CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE = 708;
    CUDA_ERROR_CONTEXT_IS_DESTROYED = 709;
    CUDA_ERROR_ASSERT = 710;
    CUDA_ERROR_TOO_MANY_PEERS = 711;
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712;
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713;
    CUDA_ERROR_HARDWARE_STACK_ERROR = 714;
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715;
    CUDA_ERROR_MISALIGNED_ADDRESS = 716;
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717;
    CUDA_ERROR_INVALID_PC = 718;
    CUDA_ERROR_LAUNCH_FAILED = 719;
    CUDA_ERROR_NOT_PERMITTED = 800;
    CUDA_ERROR_NOT_SUPPORTED = 801;
    CUDA_ERROR_SYSTEM_NOT_READY = 802;
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803;
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900;
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901;
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903;
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906;
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908;
    CUDA_ERROR_UNKNOWN = 999;
}

pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: c_int = 16;
pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: c_int = 18;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: c_int = 102;
pub const CU_STREAM_NON_BLOCKING: c_uint = 1;
pub const CU_EVENT_DISABLE_TIMING: c_uint = 2;
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: c_int = 1;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: c_uint = 1;
pub const CU_MEM_LOCATION_TYPE_DEVICE: c_uint = 1;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: c_uint = 3;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: c_int = 8;
pub const CU_TENSOR_MAP_DATA_TYPE_FLOAT16: c_uint = 6;
pub const CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: c_uint = 9;
pub const CU_TENSOR_MAP_INTERLEAVE_NONE: c_uint = 0;
pub const CU_TENSOR_MAP_SWIZZLE_128B: c_uint = 3;
pub const CU_TENSOR_MAP_L2_PROMOTION_L2_128B: c_uint = 2;
pub const CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE: c_uint = 0;
/// Words of `cuLaunchKernel`'s last argument: all parameters in one piece, its size, the end.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: *mut c_void = std::ptr::without_provenance_mut(1);
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: *mut c_void = std::ptr::without_provenance_mut(2);
pub const CU_LAUNCH_PARAM_END: *mut c_void = std::ptr::null_mut();

/// Functions that a driver may lack: they came with CUDA 12.0.
pub const OPTIONAL: [&str; 1] = ["cuTensorMapEncodeTiled"];

/// A table of functions of one library.
///
/// # Safety
/// Every field is an `Option` of a function pointer, as many as `NAMES`, in its order.
pub unsafe trait Functions {
    /// The functions' names.
    const NAMES: &'static [&'static str];
}

macro_rules! functions {
    ($(#[doc = $doc:literal] $table:ident { $($name:ident($($arg:ident: $ty:ty),*);)* })*) => { $(
        #[doc = $doc]
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $table { $(pub $name: Option<unsafe extern "C" fn($($arg: $ty),*) -> CUresult>,)* }

        // SAFETY: fields and names come from one list.
        unsafe impl Functions for $table {
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];
        }
    )* };
}
pub(crate) use functions;

functions! {
    /// libcuda.so.1
    Cuda {
        cuInit(flags: c_uint);
        cuDriverGetVersion(version: *mut c_int);
        cuGetErrorString(code: CUresult, text: *mut *const c_char);
        cuDeviceGetCount(n: *mut c_int);
        cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
        cuDeviceGetName(name: *mut c_char, len: c_int, device: CUdevice);
        cuDeviceGetUuid(uuid: *mut u8, device: CUdevice);
        cuDeviceGetPCIBusId(id: *mut c_char, len: c_int, device: CUdevice);
        cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: CUdevice);
        cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice);
        cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
        cuDevicePrimaryCtxRelease_v2(device: CUdevice);
        cuCtxSetCurrent(context: CUcontext);
        cuCtxEnablePeerAccess(other: CUcontext, flags: c_uint);
        cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, other: CUdevice);
        cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
        cuMemAlloc_v2(ptr: *mut CUdeviceptr, n: usize);
        cuMemFree_v2(ptr: CUdeviceptr);
        cuMemHostAlloc(ptr: *mut *mut c_void, n: usize, flags: c_uint);
        cuMemFreeHost(ptr: *mut c_void);
        cuMemcpyHtoD_v2(dst: CUdeviceptr, src: *const c_void, n: usize);
        cuMemcpyDtoH_v2(dst: *mut c_void, src: CUdeviceptr, n: usize);
        cuMemcpyDtoD_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize);
        cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, n: usize, stream: CUstream);
        cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, n: usize, stream: CUstream);
        cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize, stream: CUstream);
        cuMemcpyPeerAsync(dst: CUdeviceptr, to: CUcontext, src: CUdeviceptr, from: CUcontext, n: usize, stream: CUstream);
        cuMemsetD8_v2(ptr: CUdeviceptr, byte: u8, n: usize);
        cuMemGetAllocationGranularity(bytes: *mut usize, prop: *const CUmemAllocationProp, option: c_int);
        cuMemAddressReserve(ptr: *mut CUdeviceptr, n: usize, align: usize, at: CUdeviceptr, flags: u64);
        cuMemAddressFree(ptr: CUdeviceptr, n: usize);
        cuMemCreate(handle: *mut CUmemHandle, n: usize, prop: *const CUmemAllocationProp, flags: u64);
        cuMemRelease(handle: CUmemHandle);
        cuMemMap(ptr: CUdeviceptr, n: usize, offset: usize, handle: CUmemHandle, flags: u64);
        cuMemUnmap(ptr: CUdeviceptr, n: usize);
        cuMemSetAccess(ptr: CUdeviceptr, n: usize, desc: *const CUmemAccessDesc, count: usize);
        cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
        cuModuleUnload(module: CUmodule);
        cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char);
        cuFuncSetAttribute(function: CUfunction, attribute: c_int, value: c_int);
        cuTensorMapEncodeTiled(map: *mut CUtensorMap, dtype: c_uint, rank: c_uint, address: *mut c_void,
            ne: *const u64, nb: *const u64, tile: *const c_uint, steps: *const c_uint, interleave: c_uint,
            swizzle: c_uint, promotion: c_uint, fill: c_uint);
        cuLaunchKernel(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint,
            shared: c_uint, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
        cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
        cuStreamDestroy_v2(stream: CUstream);
        cuStreamSynchronize(stream: CUstream);
        cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
        cuStreamBeginCapture_v2(stream: CUstream, mode: c_int);
        cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
        cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
        cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
        cuGraphExecDestroy(exec: CUgraphExec);
        cuGraphDestroy(graph: CUgraph);
        cuEventCreate(event: *mut CUevent, flags: c_uint);
        cuEventDestroy_v2(event: CUevent);
        cuEventRecord(event: CUevent, stream: CUstream);
        cuEventQuery(event: CUevent);
    }
    /// libnvrtc.so
    Nvrtc {
        nvrtcVersion(major: *mut c_int, minor: *mut c_int);
        nvrtcCreateProgram(program: *mut *mut c_void, source: *const c_char, name: *const c_char, n: c_int,
            headers: *const *const c_char, names: *const *const c_char);
        nvrtcDestroyProgram(program: *mut *mut c_void);
        nvrtcCompileProgram(program: *mut c_void, n: c_int, options: *const *const c_char);
        nvrtcGetProgramLogSize(program: *mut c_void, n: *mut usize);
        nvrtcGetProgramLog(program: *mut c_void, log: *mut c_char);
        nvrtcGetCUBINSize(program: *mut c_void, n: *mut usize);
        nvrtcGetCUBIN(program: *mut c_void, cubin: *mut c_char);
        nvrtcGetPTXSize(program: *mut c_void, n: *mut usize);
        nvrtcGetPTX(program: *mut c_void, ptx: *mut c_char);
    }
}
