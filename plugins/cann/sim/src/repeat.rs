//! Plans that are launched more than once, with other addresses if need be.

use crate::args::Value;
use crate::fault::{Answer, ensure, fault};
use crate::plan::Executor;
use crate::sys::*;
use crate::world::{status, world};
use std::ffi::c_void;

#[unsafe(export_name = "llmrt_sim_aclSetAclOpExecutorRepeatable")]
unsafe extern "C" fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus {
    with_executor("aclSetAclOpExecutorRepeatable", executor, |made| {
        let mut state = made.state.lock();
        // Operators that bring host data to the card themselves would bring the old ones again.
        let has_lists = state.args.values.iter().any(|(_, value)| matches!(value, Value::Ints(_)));
        let may = world().config.repeatable || !has_lists;
        ensure(may, ACLNN_ERR_PARAM_INVALID, || "the operator has host data of its own".into())?;
        state.repeatable = true;
        Ok(())
    })
}

#[unsafe(export_name = "llmrt_sim_aclDestroyAclOpExecutor")]
unsafe extern "C" fn aclDestroyAclOpExecutor(executor: *mut aclOpExecutor) -> aclnnStatus {
    with_executor("aclDestroyAclOpExecutor", executor, |_| {
        world().objects.executors.remove(executor as usize);
        Ok(())
    })
}

/// `index` counts the operator's tensors that are not NULL; the tensor has to be the one that was planned with.
#[unsafe(export_name = "llmrt_sim_aclSetTensorAddr")]
unsafe extern "C" fn aclSetTensorAddr(
    executor: *mut aclOpExecutor,
    index: usize,
    tensor: *mut aclTensor,
    address: *mut c_void,
) -> aclnnStatus {
    with_executor("aclSetTensorAddr", executor, |made| {
        let mut state = made.state.lock();
        ensure(state.repeatable, ACLNN_ERR_PARAM_INVALID, || "the executor is not repeatable".into())?;
        let Some((i, handle)) = state.tensors.get(index).copied() else {
            return fault(ACLNN_ERR_PARAM_INVALID, format!("tensor {index} of {}", state.tensors.len()));
        };
        ensure(handle == tensor as usize, ACLNN_ERR_PARAM_INVALID, || {
            "another tensor than was planned with".into()
        })?;
        if let Value::Tensor(t) = &mut state.args.values[i].1 {
            t.base = address as usize;
        }
        Ok(())
    })
}

fn with_executor(
    name: &'static str,
    executor: *mut aclOpExecutor,
    f: impl FnOnce(&Executor) -> Answer,
) -> i32 {
    let made = world().objects.executors.get(executor as usize);
    status(name, made.map_or_else(|| fault(ACLNN_ERR_PARAM_INVALID, "no live executor"), |made| f(&made)))
}

/// Fills the executors' places in the header's table.
pub(crate) fn fill(table: &mut cann_object) {
    table.aclSetAclOpExecutorRepeatable = Some(aclSetAclOpExecutorRepeatable);
    table.aclDestroyAclOpExecutor = Some(aclDestroyAclOpExecutor);
    table.aclSetTensorAddr = Some(aclSetTensorAddr);
}
