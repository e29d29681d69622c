//! Start and end, versions and names.

use crate::fault::{fault, take_message};
use crate::sys::*;
use crate::world::{api, call_any_time, put, world};
use parking_lot::Mutex;
use std::ffi::{CString, c_char};
use std::sync::atomic::Ordering::SeqCst;

/// Once per process; a second call is harmless and returns its own code.
#[unsafe(export_name = "llmrt_sim_aclInit")]
unsafe extern "C" fn aclInit(_config: *const c_char) -> i32 {
    call_any_time("aclInit", |w| {
        if let Some(problem) = &w.problem {
            return fault(ACL_ERROR_INVALID_PARAM, problem.clone());
        }
        match w.started.swap(1, SeqCst) {
            1 => fault(ACL_ERROR_REPEAT_INITIALIZE, "aclInit was called before"),
            _ => Ok(()),
        }
    })
}

/// Reports what the program did not destroy.
#[unsafe(export_name = "llmrt_sim_aclFinalize")]
unsafe extern "C" fn aclFinalize() -> i32 {
    call_any_time("aclFinalize", |w| match w.started.swap(2, SeqCst) {
        1 => {
            for left in w.objects.left() {
                w.trace.report(format!("aclFinalize: {left}"));
            }
            Ok(())
        }
        2 => fault(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize was called before"),
        _ => fault(ACL_ERROR_UNINITIALIZE, "aclInit was not called"),
    })
}

#[unsafe(export_name = "llmrt_sim_aclGetRecentErrMsg")]
unsafe extern "C" fn aclGetRecentErrMsg() -> *const c_char {
    take_message()
}

/// NULL where the configuration has no name.
#[unsafe(export_name = "llmrt_sim_aclrtGetSocName")]
unsafe extern "C" fn aclrtGetSocName() -> *const c_char {
    static NAMES: Mutex<Vec<CString>> = Mutex::new(Vec::new());
    let soc = world().config.soc.clone();
    let Ok(name) = CString::new(soc) else { return std::ptr::null() };
    if name.is_empty() {
        return std::ptr::null();
    }
    // Kept for ever, as the library's text is.
    let mut names = NAMES.lock();
    let at = names.iter().position(|known| *known == name).unwrap_or_else(|| {
        names.push(name);
        names.len() - 1
    });
    names[at].as_ptr()
}

/// The version that the declarations were taken from.
#[unsafe(export_name = "llmrt_sim_aclrtGetVersion")]
unsafe extern "C" fn aclrtGetVersion(major: *mut i32, minor: *mut i32, patch: *mut i32) -> i32 {
    call_any_time("aclrtGetVersion", |_| {
        put(major, 1)?;
        put(minor, 17)?;
        put(patch, 0)
    })
}

api! { cann_acl;
    fn aclsysGetVersionStr(package: *mut c_char, version: *mut c_char) w => {
        if package.is_null() || version.is_null() {
            return fault(ACL_ERROR_INVALID_PARAM, "a NULL text");
        }
        let text = CString::new(format!("{} simulated", w.config.release.name())).unwrap_or_default();
        // SAFETY: the header gives the text 128 bytes.
        unsafe { version.copy_from_nonoverlapping(text.as_ptr(), text.count_bytes() + 1) };
        Ok(())
    }
}

/// The functions that work before `aclInit` too.
pub(crate) fn fill_all(table: &mut cann_acl) {
    fill(table);
    table.aclInit = Some(aclInit);
    table.aclFinalize = Some(aclFinalize);
    table.aclGetRecentErrMsg = Some(aclGetRecentErrMsg);
    table.aclrtGetSocName = Some(aclrtGetSocName);
    table.aclrtGetVersion = Some(aclrtGetVersion);
}
