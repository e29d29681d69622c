//! Which operators may be launched twice. Those of the card's CPU, those that abandon the library's cache and what that cache
//! returned may not (opbase, `op_executor.cpp` and `acl_op_api.cpp`).

use super::Probe;
use crate::bench::{Bench, Planned, plan};
use crate::chip::Family;
use crate::stream::CardStream;
use crate::sys::*;
use llmrt_plugin::Result;

const REPEATABLE: &str = "repeatable";
const NOT: &str = "not repeatable";

pub fn report(probe: &Probe<'_>, stream: &mut CardStream) {
    let family = probe.chip.family;
    probe.of(stream, ("an operator planned before its first launch (aclnnNeg)", REPEATABLE), |b| {
        negation(b, false)
    });
    probe.of(stream, ("an operator planned after a launch (aclnnNeg)", NOT), |b| negation(b, true));
    probe.of(stream, ("operators of a step", "all repeatable"), of_a_step);
    probe.of(stream, ("an operator with a list of numbers (aclnnReduceSum)", REPEATABLE), with_a_list);
    probe.of(stream, ("rows written in place (aclnnInplaceIndexCopy)", NOT), rows);
    if family != Family::B310 {
        probe.of(stream, ("rows scattered in place (aclnnInplaceScatterUpdate)", NOT), scattered);
        probe.of(stream, ("a sort of one number (aclnnArgsort)", NOT), |b| sort(b, 1, ACL_FLOAT));
    }
    let f32_sorts = if family == Family::A910 { NOT } else { REPEATABLE };
    probe.of(stream, ("a sort of F32 numbers (aclnnArgsort)", f32_sorts), |b| sort(b, 32, ACL_FLOAT));
    probe.of(stream, ("the largest of F32 numbers (aclnnTopk)", f32_sorts), |b| largest(b, ACL_FLOAT));
    probe.of(stream, ("the largest of F16 numbers (aclnnTopk)", REPEATABLE), |b| largest(b, ACL_FLOAT16));
}

/// Whether the library makes a plan repeatable, which is then destroyed.
fn may_repeat(bench: &Bench<'_, '_>, planned: Result<Planned>) -> Result<String> {
    let planned = planned?;
    let repeats = bench.repeats(&planned);
    bench.destroy(&planned);
    Ok(if repeats { REPEATABLE } else { NOT }.into())
}

fn negation(bench: &mut Bench<'_, '_>, launched: bool) -> Result<String> {
    // Dims that no model has, so that nothing is in the library's cache.
    let ne = [if launched { 1013 } else { 1009 }];
    let zeros = vec![0; 4 * 1013];
    let (x, y) = (bench.tensor(ACL_FLOAT, &ne, &zeros)?, bench.tensor(ACL_FLOAT, &ne, &zeros)?);
    if launched {
        let first = plan!(bench, math.aclnnNeg(x, y))?;
        bench.launch(&first)?;
    }
    let planned = plan!(bench, math.aclnnNeg(x, y));
    may_repeat(bench, planned)
}

/// The names of those that may not be repeated; operators that the release lacks are passed over.
fn of_a_step(bench: &mut Bench<'_, '_>) -> Result<String> {
    let zeros = [0; 4 * 32 * 32];
    let (x, y) = (bench.tensor(ACL_FLOAT, &[32, 32], &zeros)?, bench.tensor(ACL_FLOAT, &[32, 32], &zeros)?);
    let (half, places) =
        (bench.tensor(ACL_FLOAT16, &[32, 32], &zeros)?, bench.tensor(ACL_INT32, &[1, 32], &zeros)?);
    let (index, one) = (bench.tensor(ACL_INT32, &[32], &zeros)?, bench.call.float(1.0)?);
    let (row, rstd) = (bench.tensor(ACL_FLOAT, &[32], &zeros)?, bench.tensor(ACL_FLOAT, &[1, 32], &zeros)?);
    let (cube, eps) = (if probe_keeps(bench) { 0 } else { 2 }, 1e-6);
    let planned = [
        plan!(bench, math.aclnnAdd(x, x, one, y)),
        plan!(bench, math.aclnnMul(x, x, y)),
        plan!(bench, math.aclnnMuls(x, one, y)),
        plan!(bench, math.aclnnCast(x, ACL_FLOAT16, half)),
        plan!(bench, math.aclnnInplaceCopy(half, x)),
        plan!(bench, math.aclnnArgMax(x, 1, true, places)),
        plan!(bench, nn.aclnnSoftmax(x, -1, y)),
        plan!(bench, nn.aclnnSilu(x, y)),
        plan!(bench, nn.aclnnGatherV2(x, 0, index, y)),
        plan!(bench, nn.aclnnMm(x, x, y, cube)),
        plan!(bench, nn.aclnnRmsNorm(x, row, eps, y, rstd)),
    ];
    let mut others = Vec::new();
    for planned in planned.into_iter().flatten() {
        if !bench.repeats(&planned) {
            others.push(planned.name);
        }
        bench.destroy(&planned);
    }
    Ok(if others.is_empty() {
        "all repeatable".into()
    } else {
        format!("not repeatable: {}", others.join(", "))
    })
}

fn probe_keeps(bench: &Bench<'_, '_>) -> bool {
    bench.call.stream.chip.f32_products
}

fn with_a_list(bench: &mut Bench<'_, '_>) -> Result<String> {
    let zeros = [0; 4 * 32 * 8];
    let (x, y) = (bench.tensor(ACL_FLOAT, &[32, 8], &zeros)?, bench.tensor(ACL_FLOAT, &[1, 8], &zeros)?);
    let dims = bench.call.ints(&[1])?;
    let planned = plan!(bench, math.aclnnReduceSum(x, dims, true, ACL_FLOAT, y));
    may_repeat(bench, planned)
}

fn rows(bench: &mut Bench<'_, '_>) -> Result<String> {
    let (cache, rows) = (
        bench.tensor(ACL_FLOAT, &[64, 8], &[0; 4 * 64 * 8])?,
        bench.tensor(ACL_FLOAT, &[64, 1], &[0; 4 * 64])?,
    );
    let index = bench.tensor(ACL_INT32, &[1], &[0; 4])?;
    let planned = plan!(bench, nn.aclnnInplaceIndexCopy(cache, 0, index, rows));
    may_repeat(bench, planned)
}

fn scattered(bench: &mut Bench<'_, '_>) -> Result<String> {
    let (cache, rows) = (
        bench.tensor(ACL_FLOAT16, &[64, 8, 1], &[0; 2 * 64 * 8])?,
        bench.tensor(ACL_FLOAT16, &[64, 1, 1], &[0; 2 * 64])?,
    );
    let index = bench.tensor(ACL_INT32, &[1], &[0; 4])?;
    let planned = plan!(bench, nn.aclnnInplaceScatterUpdate(cache, index, rows, 1));
    may_repeat(bench, planned)
}

fn sort(bench: &mut Bench<'_, '_>, n: i64, dtype: aclDataType) -> Result<String> {
    let (x, y) = (bench.tensor(dtype, &[n], &[0; 4 * 32])?, bench.tensor(ACL_INT64, &[n], &[0; 8 * 32])?);
    let planned = plan!(bench, math.aclnnArgsort(x, -1, false, y));
    may_repeat(bench, planned)
}

fn largest(bench: &mut Bench<'_, '_>, dtype: aclDataType) -> Result<String> {
    let (x, y) = (bench.tensor(dtype, &[32, 2], &[0; 4 * 64])?, bench.tensor(dtype, &[1, 2], &[0; 8])?);
    let places = bench.tensor(ACL_INT64, &[1, 2], &[0; 16])?;
    let planned = plan!(bench, math.aclnnTopk(x, 1, -1, true, true, y, places));
    may_repeat(bench, planned)
}
