//! Rules 8, 9, 19, 24 and 29: the two phases, workspaces, lifetimes, parameters.

use super::machine::Machine;
use cann_simulator::door::reports;
use cann_simulator::sys::*;
use std::ptr::{null, null_mut};

const USED_BEFORE: i32 = 561_103;

#[test]
fn a_plan_works_once() {
    let m = Machine::new("");
    let (stream, x) = (m.stream(), m.floats(&[1.0]));
    let t = m.tensor(ACL_FLOAT, &[1], x);
    let (status, size, executor) = plan!(m, math.aclnnExp(t, t));
    assert_eq!(status, 0);
    let workspace = m.alloc(size as usize);
    assert_eq!(launch!(m, math.aclnnExp, workspace, size, executor, stream), 0);
    assert_eq!(launch!(m, math.aclnnExp, workspace, size, executor, stream), USED_BEFORE);
}

#[test]
fn a_repeatable_plan_works_again_with_other_addresses() {
    let m = Machine::new("");
    let (stream, x, y, z) = (m.stream(), m.floats(&[1.0]), m.alloc(4), m.alloc(4));
    let [tx, ty] = [m.tensor(ACL_FLOAT, &[1], x), m.tensor(ACL_FLOAT, &[1], y)];
    let (_, size, executor) = plan!(m, math.aclnnNeg(tx, ty));
    let o = &m.t.object;
    // SAFETY: a live plan.
    assert_eq!(unsafe { o.aclSetAclOpExecutorRepeatable.unwrap()(executor) }, 0);
    let workspace = m.alloc(size as usize);
    assert_eq!(launch!(m, math.aclnnNeg, workspace, size, executor, stream), 0);
    // SAFETY: tensor 1 of the plan is the output.
    assert_eq!(unsafe { o.aclSetTensorAddr.unwrap()(executor, 1, ty, z) }, 0);
    // SAFETY: another tensor than the plan's, which is refused.
    assert_eq!(unsafe { o.aclSetTensorAddr.unwrap()(executor, 1, tx, z) }, ACLNN_ERR_PARAM_INVALID);
    assert_eq!(launch!(m, math.aclnnNeg, workspace, size, executor, stream), 0);
    assert_eq!(m.sync(stream), 0);
    assert_eq!((m.read::<f32>(y, 1), m.read::<f32>(z, 1)), (vec![-1.0], vec![-1.0]));
    // SAFETY: a live plan.
    assert_eq!(unsafe { o.aclDestroyAclOpExecutor.unwrap()(executor) }, 0);
    assert_eq!(launch!(m, math.aclnnNeg, workspace, size, executor, stream), USED_BEFORE);
}

/// Opbase 8.5 and 9.1: an executor from the cache, and one that writes in place without gaps, is refused.
#[test]
fn what_is_in_the_cache_or_writes_in_place_works_once() {
    let m = Machine::new("");
    let repeatable = m.t.object.aclSetAclOpExecutorRepeatable.unwrap();
    let destroy = m.t.object.aclDestroyAclOpExecutor.unwrap();
    // SAFETY: a live plan, twice.
    let set = |executor| unsafe { (repeatable(executor), destroy(executor)) };
    let [x, y] = [m.floats(&[1.0]), m.alloc(4)].map(|ptr| m.tensor(ACL_FLOAT, &[1], ptr));
    let planned = || plan!(m, math.aclnnExp(x, y));
    assert_eq!(set(planned().2), (0, 0), "not launched before");
    let (_, size, executor) = planned();
    let workspace = m.alloc(size as usize);
    assert_eq!(launch!(m, math.aclnnExp, workspace, size, executor, m.stream()), 0);
    assert_eq!(set(planned().2), (ACLNN_ERR_INNER, 0), "launched once, it is in the cache");
    let elsewhere = m.tensor(ACL_FLOAT, &[1], m.floats(&[2.0]));
    assert_eq!(
        set(plan!(m, math.aclnnExp(elsewhere, y)).2),
        (ACLNN_ERR_INNER, 0),
        "addresses are no part of the key"
    );
    assert_eq!(set(plan!(m, math.aclnnNeg(x, y)).2), (0, 0), "another operator");

    let cache = m.tensor(ACL_FLOAT, &[4, 2], m.floats(&[0.0; 8]));
    let (index, rows) = (m.alloc(4), m.floats(&[1.0; 2]));
    let [index, rows] = [m.tensor(ACL_INT32, &[1], index), m.tensor(ACL_FLOAT, &[1, 2], rows)];
    let (status, _, executor) = plan!(m, nn.aclnnInplaceIndexCopy(cache, 0, index, rows));
    assert_eq!((status, set(executor)), (0, (ACLNN_ERR_INNER, 0)));
}

#[test]
fn a_tensor_lives_until_the_second_phase() {
    let m = Machine::new("");
    let [x, y] = [m.floats(&[1.0]), m.alloc(4)].map(|ptr| m.tensor(ACL_FLOAT, &[1], ptr));
    let (_, size, executor) = plan!(m, math.aclnnExp(x, y));
    assert_eq!(m.destroy(x), 0);
    let workspace = m.alloc(size as usize);
    assert_eq!(launch!(m, math.aclnnExp, workspace, size, executor, m.stream()), USED_BEFORE);
    assert_eq!(reports(), ["aclnnExp: `x` was destroyed between the phases"]);
    assert_ne!(m.destroy(x), 0, "twice");
}

#[test]
fn what_is_left_at_the_end_is_listed() {
    let m = Machine::new("");
    m.ints(&[1, 2]);
    m.tensor(ACL_FLOAT, &[1], null_mut());
    assert_eq!(acl!(m, aclFinalize()), 0);
    assert_eq!(
        reports(),
        ["aclFinalize: 1 tensors were not destroyed", "aclFinalize: 1 arrays were not destroyed"]
    );
}

#[test]
fn a_workspace_has_at_least_the_required_size_and_is_overwritten() {
    let m = Machine::new("queue=sync");
    let (stream, x, y) = (m.stream(), m.floats(&[1.0; 256]), m.alloc(1024));
    let [tx, ty] = [m.tensor(ACL_FLOAT, &[256], x), m.tensor(ACL_FLOAT, &[256], y)];
    let (_, size, executor) = plan!(m, math.aclnnExp(tx, ty));
    assert!(size >= 512 && size % 512 == 0, "{size}");
    assert_eq!(launch!(m, math.aclnnExp, null_mut(), size, executor, stream), ACLNN_ERR_PARAM_NULLPTR);

    let (_, size, executor) = plan!(m, math.aclnnExp(tx, ty));
    assert_eq!(
        launch!(m, math.aclnnExp, m.alloc(size as usize), size - 1, executor, stream),
        ACLNN_ERR_PARAM_INVALID
    );

    // A workspace on top of the input: the kernel reads what it wrote there itself.
    let wide = m.alloc(8 * 512);
    assert_eq!(m.write(wide, &[1f32; 64]), 0);
    let (over, out) = (m.tensor(ACL_FLOAT, &[64], wide), m.tensor(ACL_FLOAT, &[64], y));
    let (_, size, executor) = plan!(m, math.aclnnExp(over, out));
    assert_eq!(launch!(m, math.aclnnExp, wide, size, executor, stream), 0);
    assert_eq!(m.sync(stream), 0);
    assert!(m.read::<f32>(y, 1)[0].is_nan());
}

#[test]
fn a_workspace_freed_too_early_is_found_by_the_kernel() {
    let m = Machine::new("queue=sync");
    let (stream, t) = (m.stream(), m.tensor(ACL_FLOAT, &[1], m.floats(&[1.0])));
    let (_, size, executor) = plan!(m, math.aclnnExp(t, t));
    let workspace = m.alloc(size as usize);
    assert_eq!(launch!(m, math.aclnnExp, workspace, size, executor, stream), 0);
    assert_eq!(acl!(m, aclrtFree(workspace)), 0);
    assert_eq!(m.sync(stream), ACL_ERROR_RT_VECTOR_CORE_EXCEPTION);
    assert!(m.message().contains("the workspace"));
}

#[test]
fn parameters_are_checked_in_the_first_phase() {
    let m = Machine::new("");
    let x = m.floats(&[1.0; 6]);
    let [v3, v2, f16] =
        [m.tensor(ACL_FLOAT, &[3], x), m.tensor(ACL_FLOAT, &[2], x), m.tensor(ACL_INT32, &[3], x)];
    let one = m.scalar(1.0);
    assert_eq!(plan!(m, math.aclnnAdd(null(), v3, one, v3)).0, ACLNN_ERR_PARAM_NULLPTR);
    assert_eq!(m.message(), "[aclnnAdd] `x` is NULL");
    assert_eq!(plan!(m, math.aclnnAdd(v3, v2, one, v3)).0, ACLNN_ERR_PARAM_INVALID);
    assert_eq!(m.message(), "[aclnnAdd] [2] does not broadcast to [3]");
    assert_eq!(
        plan!(m, math.aclnnAdd(v3, v3, one, f16)).0,
        ACLNN_ERR_PARAM_INVALID,
        "a fraction into a whole number"
    );
    assert!(m.tensor(ACL_FLOAT, &[1; 9], x).is_null(), "9 dims");
    assert!(m.view(ACL_FLOAT, &[2], &[-1], 1, x).is_null(), "a negative stride");
}

#[test]
fn a_kernel_writes_over_its_input_in_place_or_not_at_all() {
    let m = Machine::new("");
    let x = m.floats(&[1.0; 8]);
    let at = |offset| m.view(ACL_FLOAT, &[4], &[1], offset, x);
    assert_eq!(plan!(m, math.aclnnExp(at(0), at(0))).0, 0);
    assert_eq!(plan!(m, math.aclnnExp(at(0), at(4))).0, 0);
    assert_eq!(plan!(m, math.aclnnExp(at(0), at(1))).0, ACLNN_ERR_PARAM_INVALID);
    assert_eq!(reports(), ["aclnnExp: `out` overlaps `x`, at other places"]);
    let [even, odd] = [0, 1].map(|offset| m.view(ACL_FLOAT, &[4], &[2], offset, x));
    assert_eq!(plan!(m, math.aclnnExp(even, odd)).0, 0, "woven into each other, and apart");
}

#[test]
fn empty_tensors_need_no_workspace() {
    let m = Machine::new("");
    let empty = m.tensor(ACL_FLOAT, &[0, 4], null_mut());
    let (status, size, executor) = plan!(m, math.aclnnExp(empty, empty));
    assert_eq!((status, size), (0, 0));
    let stream = m.stream();
    assert_eq!(launch!(m, math.aclnnExp, null_mut(), 0, executor, stream), 0);
    assert_eq!(m.sync(stream), 0);
}

#[test]
fn many_threads_may_use_one_stream() {
    let m = Machine::new("seed=5");
    let (stream, x) = (m.stream(), m.floats(&[0.0]));
    let address = (stream as usize, x as usize);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
                for _ in 0..25 {
                    let t = m.tensor(ACL_FLOAT, &[1], address.1 as *mut _);
                    let one = m.scalar(1.0);
                    assert_eq!(run!(m, math.aclnnAdds(t, one, one, t), address.0 as aclrtStream), 0);
                }
            });
        }
    });
    assert_eq!(m.sync(stream), 0);
    assert_eq!(m.read::<f32>(x, 1), [100.0]);
}
