//! Plans that are launched more than once, with other addresses if need be.

use crate::args::{Args, Value};
use crate::fault::{Answer, ensure, fault};
use crate::plan::Executor;
use crate::sys::*;
use crate::tensor::Tensor;
use crate::world::{status, world};
use std::ffi::c_void;

/// Operators that end with a copy of their first tensor onto itself, which is left out where that tensor has no gaps; the
/// executor then abandons the cache and is not repeatable (opbase 8.5 and 9.1, `op_executor.cpp`, `AbandonCache(true)`; the
/// restriction is on the vendor's pages of the two).
const WRITE_IN_PLACE: [&str; 2] = ["aclnnInplaceIndexCopy", "aclnnInplaceScatterUpdate"];

/// Whether an executor with these parameters is in no cache and works once.
pub(crate) fn abandons_cache(args: &Args) -> bool {
    let writes = WRITE_IN_PLACE.contains(&args.op.name) && args.world.config.keeps("in-place");
    writes && args.tensors().next().is_some_and(Tensor::is_contiguous)
}

/// Whether the operator runs on the card's CPU, whose operators are not repeatable: sorts of one number but on the 310B, and on
/// the first 910 those of F32 (sort.cpp and topk.cpp of ops-math, 8.5 and 9.1).
pub(crate) fn is_on_ai_cpu(args: &Args) -> bool {
    let sorts = matches!(args.op.name, "aclnnArgsort" | "aclnnTopk");
    let x = args.tensors().next().filter(|_| sorts);
    let (chip, config) = (&args.world.chip, &args.world.config);
    x.is_some_and(|x| {
        let of_one = x.dims.last() == Some(&1) && !chip.is_310b() && config.keeps("sort-one");
        of_one || (x.dtype == ACL_FLOAT && chip.is_first_910() == config.keeps("sort-f32"))
    })
}

/// What the library's cache finds an executor by: everything about the parameters but addresses (opbase 8.5 and 9.1,
/// `op_cache.cpp`, `AddParamToBuf`).
pub(crate) fn key(args: &Args) -> String {
    let tensor = |t: &Tensor| format!("{:?}", Tensor { base: 0, ..t.clone() });
    let one = |value: &Value| match value {
        Value::Absent => "-".into(),
        Value::Tensor(t) => tensor(t),
        Value::List(all) => all.iter().map(tensor).collect(),
        Value::Scalar(x) => format!("{x:?}"),
        Value::Ints(all) => format!("{all:?}"),
        Value::Int(n) => n.to_string(),
        Value::Double(x) => x.to_string(),
        Value::Text(text) => text.clone(),
    };
    args.values.iter().fold(args.op.name.into(), |key, (_, value)| key + " " + &one(value))
}

/// Not for what came from the cache: the library finds neither of its kinds of executors then (opbase 8.5 and 9.1,
/// `acl_op_api.cpp`). What is made repeatable leaves the cache.
#[unsafe(export_name = "llmrt_sim_aclSetAclOpExecutorRepeatable")]
unsafe extern "C" fn aclSetAclOpExecutorRepeatable(executor: *mut aclOpExecutor) -> aclnnStatus {
    with_executor("aclSetAclOpExecutorRepeatable", executor, |made| {
        let (w, mut state) = (world(), made.state.lock());
        // Operators that bring host data to the card themselves would bring the old ones again.
        let has_lists = state.args.values.iter().any(|(_, value)| matches!(value, Value::Ints(_)));
        let may = (w.config.repeatable || !has_lists) && w.config.keeps("repeats");
        ensure(may, ACLNN_ERR_PARAM_INVALID, || "the operator has host data of its own".into())?;
        ensure(!made.is_cached || !w.config.keeps("cache"), ACLNN_ERR_INNER, || {
            "it came from the cache".into()
        })?;
        ensure(!abandons_cache(&state.args), ACLNN_ERR_INNER, || "it writes in place".into())?;
        ensure(!is_on_ai_cpu(&state.args), ACLNN_ERR_INNER, || "it runs on the card's CPU".into())?;
        w.op_cache.lock().remove(&(std::thread::current().id(), made.key.clone()));
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
