//! The driver's numbers as llmrt's errors: what kind of failure, and what is still usable after it.

use crate::sys::*;
use crate::tables::{Address, Cuda};
use llmrt_plugin::{Error, Result, Scope, Status};
use std::ffi::{CStr, c_char, c_int};

/// Turns the answer of a driver call into a result, with the driver's own words for it.
pub fn check(cuda: &Cuda, call: &str, code: CUresult) -> Result<()> {
    if code == CUDA_SUCCESS {
        return Ok(());
    }
    let (status, scope) = meaning(code);
    let name = name_of(code).unwrap_or("an unknown error");
    let description = text_of(cuda, code).map_or(String::new(), |text| format!(", {text}"));
    Err(Error::new(status, format!("{call}: {name} ({code}){description}")).scope(scope).vendor(code))
}

/// What kind of failure a number is, and how far it reaches. After a kernel's fault the context answers every call with
/// the same number, so the whole device is out.
pub fn meaning(code: CUresult) -> (Status, Scope) {
    match code {
        CUDA_ERROR_OUT_OF_MEMORY => (Status::OomDevice, Scope::Call),
        CUDA_ERROR_NOT_READY => (Status::NotReady, Scope::Call),
        CUDA_ERROR_NOT_SUPPORTED
        | CUDA_ERROR_PEER_ACCESS_UNSUPPORTED
        | CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUDA_ERROR_UNSUPPORTED_PTX_VERSION => (Status::Unsupported, Scope::Call),
        CUDA_ERROR_DEINITIALIZED | CUDA_ERROR_ECC_UNCORRECTABLE | CUDA_ERROR_UNKNOWN => {
            (Status::DeviceLost, Scope::Device)
        }
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
        | CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
        | CUDA_ERROR_PEER_ACCESS_NOT_ENABLED
        | CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE
        | CUDA_ERROR_TOO_MANY_PEERS
        | CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
        | CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED => (Status::Internal, Scope::Call),
        CUDA_ERROR_ILLEGAL_ADDRESS..=CUDA_ERROR_LAUNCH_FAILED => (Status::Internal, Scope::Device),
        900..=909 => (Status::Internal, Scope::Call),
        CUDA_ERROR_INVALID_VALUE
        | CUDA_ERROR_INVALID_DEVICE
        | CUDA_ERROR_INVALID_CONTEXT
        | CUDA_ERROR_INVALID_HANDLE => (Status::Invalid, Scope::Call),
        _ => (Status::Internal, Scope::Call),
    }
}

fn text_of(cuda: &Cuda, code: CUresult) -> Option<String> {
    /// cudarc declares an enum in place of the number, which holds no status of a newer driver.
    type ErrorString = unsafe extern "C" fn(c_int, *mut *const c_char) -> CUresult;
    let mut text = std::ptr::null();
    // SAFETY: the function's signature, an enum being a number of 32 bits; the output is ours, and receives NULL or a text
    // that lives until the process ends.
    unsafe {
        let found = std::mem::transmute::<Address, ErrorString>(cuda.cuGetErrorString?)(code, &mut text);
        (found == CUDA_SUCCESS && !text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_reach_as_far_as_they_do() {
        assert_eq!(meaning(CUDA_ERROR_OUT_OF_MEMORY), (Status::OomDevice, Scope::Call));
        assert_eq!(meaning(CUDA_ERROR_ILLEGAL_ADDRESS), (Status::Internal, Scope::Device));
        assert_eq!(meaning(CUDA_ERROR_LAUNCH_FAILED), (Status::Internal, Scope::Device));
        assert_eq!(meaning(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES), (Status::Internal, Scope::Call));
        assert_eq!(meaning(CUDA_ERROR_ECC_UNCORRECTABLE), (Status::DeviceLost, Scope::Device));
        assert_eq!(meaning(CUDA_ERROR_NO_BINARY_FOR_GPU), (Status::Unsupported, Scope::Call));
        assert_eq!(meaning(CUDA_ERROR_INVALID_VALUE), (Status::Invalid, Scope::Call));
    }
}
