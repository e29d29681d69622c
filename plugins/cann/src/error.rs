//! The vendor's numbers as llmrt's errors: what kind of failure, and what is still usable after it.

use crate::sys::*;
use llmrt_plugin::{Error, Result, Scope, Status};
use std::ffi::CStr;

/// Turns the answer of a runtime call into a result; the vendor's latest message goes with it.
pub fn check(acl: &cann_acl, call: &str, code: i32) -> Result<()> {
    if code == ACL_SUCCESS {
        return Ok(());
    }
    Err(error(acl, call, code, meaning(code)))
}

/// Turns the answer of an operator's first phase into a result. A refusal is [`Status::Unsupported`], whatever its code:
/// releases differ in what an operator takes, and nothing was launched, so that another way or device can compute it.
pub fn check_planned(acl: &cann_acl, call: &str, code: i32) -> Result<()> {
    if code == ACL_SUCCESS {
        return Ok(());
    }
    let meaning = match meaning(code) {
        (Status::Invalid | Status::Internal, Scope::Call) => (Status::Unsupported, Scope::Call),
        other => other,
    };
    Err(error(acl, call, code, meaning))
}

/// Turns the answer of a collective into a result.
pub fn check_hccl(acl: &cann_acl, call: &str, code: i32) -> Result<()> {
    let words = match code {
        HCCL_SUCCESS => return Ok(()),
        HCCL_E_PARA => "a parameter the library does not take",
        HCCL_E_PTR => "a NULL address",
        HCCL_E_MEMORY => "memory of a card ran out",
        HCCL_E_NOT_SUPPORT => "not on this chip",
        HCCL_E_TIMEOUT => "another card did not come in time",
        HCCL_E_RUNTIME => "a call of the runtime failed",
        _ => "an error inside the library",
    };
    let message = recent_message(acl).map_or(String::new(), |text| format!(": {text}"));
    Err(Error::internal(format!("{call}: {code}, {words}{message}")).vendor(code))
}

/// Whether an operator's first phase refused, so that another way may compute the node.
pub fn is_refusal(e: &Error) -> bool {
    e.status == Status::Unsupported && e.vendor_code != 0
}

/// Whether a code means that a library or driver does not take what it was given, and nothing else is wrong.
pub fn is_code_of_refusal(code: i32) -> bool {
    matches!(
        code,
        ACLNN_ERR_PARAM_NULLPTR
            | ACLNN_ERR_PARAM_INVALID
            | ACLNN_ERR_INNER_TILING_ERROR
            | ACLNN_ERR_INNER_FIND_KERNEL_ERROR
            | ACL_ERROR_RT_PARAM_INVALID
            | ACL_ERROR_RT_INVALID_HANDLE
            | ACL_ERROR_RT_STREAM_CAPTURED
            | ACL_ERROR_RT_STREAM_CAPTURE_CONFLICT
            | ACL_ERROR_RT_FEATURE_NOT_SUPPORT
    )
}

fn error(acl: &cann_acl, call: &str, code: i32, (status, scope): (Status, Scope)) -> Error {
    let message = recent_message(acl).map_or(String::new(), |text| format!(": {text}"));
    Error::new(status, format!("{call}: {}{message}", explain(code))).scope(scope).vendor(code)
}

/// What kind of failure a code is, and how far it reaches.
pub fn meaning(code: i32) -> (Status, Scope) {
    match code {
        ACL_ERROR_BAD_ALLOC => (Status::OomHost, Scope::Call),
        ACL_ERROR_RT_MEMORY_ALLOCATION | ACL_ERROR_RT_DEVICE_OOM => (Status::OomDevice, Scope::Call),
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT
        | ACLNN_ERR_RUNTIME_ERROR
        | ACLNN_ERR_INNER_TILING_ERROR
        | ACLNN_ERR_INNER_FIND_KERNEL_ERROR
        | ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND
        | ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND => (Status::Unsupported, Scope::Call),
        ACL_ERROR_RT_STREAM_SYNC_TIMEOUT | ACL_ERROR_RT_EVENT_SYNC_TIMEOUT => (Status::NotReady, Scope::Call),
        ACL_ERROR_RT_STREAM_ABORT | ACL_ERROR_RT_CAPTURE_INVALIDATED => (Status::Internal, Scope::Stream),
        ACL_ERROR_RT_LOST_HEARTBEAT | ACL_ERROR_RT_DRV_INTERNAL_ERROR | ACL_ERROR_RT_SOCKET_CLOSE => {
            (Status::DeviceLost, Scope::Device)
        }
        // A fault of a kernel leaves its context unusable.
        507000..=507899 => (Status::Internal, Scope::Device),
        507900..=507999 => (Status::DeviceLost, Scope::Device),
        100000..=107999 | 161001..=161999 => (Status::Invalid, Scope::Call),
        _ => (Status::Internal, Scope::Call),
    }
}

/// A code with what it stands for, where that helps.
fn explain(code: i32) -> String {
    let words = match code {
        ACL_ERROR_STUB_LIBRARY => "a stub library: put the driver's lib64 before devlib in LD_LIBRARY_PATH",
        ACL_ERROR_RT_CONTEXT_NULL => "no context on this thread",
        ACL_ERROR_RT_STREAM_CONTEXT => "a stream of another context",
        ACL_ERROR_RT_FEATURE_NOT_SUPPORT => "the driver or chip has no such feature",
        ACL_ERROR_RT_MEMORY_ALLOCATION | ACL_ERROR_RT_DEVICE_OOM => "device memory ran out",
        ACL_ERROR_RT_NO_STREAM_RESOURCE => "no stream is left on the device",
        ACL_ERROR_RT_NO_EVENT_RESOURCE => "no event is left on the device",
        ACL_ERROR_RT_STREAM_CAPTURED | ACL_ERROR_RT_STREAM_CAPTURE_CONFLICT => "not allowed while capturing",
        ACL_ERROR_RT_CAPTURE_INVALIDATED => "the capture was invalidated by an earlier call",
        ACL_ERROR_RT_AICORE_TIMEOUT | ACL_ERROR_RT_VECTOR_CORE_TIMEOUT => "a kernel did not end",
        ACL_ERROR_RT_AICORE_EXCEPTION | ACL_ERROR_RT_VECTOR_CORE_EXCEPTION => "a kernel faulted",
        ACLNN_ERR_PARAM_NULLPTR => "a NULL parameter",
        ACLNN_ERR_PARAM_INVALID => "a parameter the operator does not take",
        ACLNN_ERR_INNER_TILING_ERROR => "shapes the operator cannot tile",
        ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND => {
            "the library does not find its operators: run the toolkit's set_env.sh, which sets ASCEND_OPP_PATH"
        }
        ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND => "the kernels of this chip are not installed",
        _ => return code.to_string(),
    };
    format!("{code}, {words}")
}

/// The calling thread's latest message, which reading clears.
fn recent_message(acl: &cann_acl) -> Option<String> {
    // SAFETY: no arguments; the answer is NULL or a text that lives until the next call on this thread.
    let text = unsafe { acl.aclGetRecentErrMsg.map(|f| f()) }.filter(|text| !text.is_null())?;
    // SAFETY: as above.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().trim().to_string();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_reach_as_far_as_they_do() {
        assert_eq!(meaning(ACL_ERROR_RT_MEMORY_ALLOCATION), (Status::OomDevice, Scope::Call));
        assert_eq!(meaning(ACL_ERROR_RT_AICORE_EXCEPTION), (Status::Internal, Scope::Device));
        assert_eq!(meaning(ACL_ERROR_RT_SOCKET_CLOSE), (Status::DeviceLost, Scope::Device));
        assert_eq!(meaning(ACL_ERROR_RT_CAPTURE_INVALIDATED), (Status::Internal, Scope::Stream));
        assert_eq!(meaning(ACLNN_ERR_PARAM_INVALID), (Status::Invalid, Scope::Call));
        assert_eq!(meaning(ACLNN_ERR_INNER_TILING_ERROR), (Status::Unsupported, Scope::Call));
        // An operator's own errors reach no further than its call.
        assert_eq!(meaning(561_000), (Status::Internal, Scope::Call));
        assert_eq!(meaning(507_900), (Status::DeviceLost, Scope::Device));
    }

    #[test]
    fn a_refusal_is_neither_a_fault_nor_a_missing_function() {
        for code in [161_002, 561_002, 561_003, 107_000, 107_041, 207_000] {
            assert!(is_code_of_refusal(code), "{code}");
        }
        // No error of a library has number 0: a function that is missing, or an error of this code.
        for code in [0, 207_001, 361_001, 507_015, 507_899, 561_000, 561_107] {
            assert!(!is_code_of_refusal(code), "{code}");
        }
    }
}
