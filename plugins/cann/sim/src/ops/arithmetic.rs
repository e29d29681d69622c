//! Sums, products, powers, comparisons with one number.

use super::check::*;
use super::*;

ops! { cann_math;
    aclnnAdd(x: In, other: In, alpha: Num, out: Out) "pbn" => |a| {
        let alpha = a.scalar("alpha")?;
        map(a, NUMBERS, ["x", "other"], "out", move |[x, y]| x + alpha * y)
    };
    aclnnInplaceAdd(x: Out, other: In, alpha: Num) "pbn" => |a| {
        let alpha = a.scalar("alpha")?;
        map(a, NUMBERS, ["x", "other"], "x", move |[x, y]| x + alpha * y)
    };
    aclnnAdds(x: In, other: Num, alpha: Num, out: Out) "PbN" => |a| {
        let add = a.scalar("alpha")? * a.scalar("other")?;
        map(a, NUMBERS, ["x"], "out", move |[x]| x + add)
    };
    aclnnSub(x: In, other: In, alpha: Num, out: Out) "pBN" => |a| {
        let alpha = a.scalar("alpha")?;
        map(a, NUMBERS, ["x", "other"], "out", move |[x, y]| x - alpha * y)
    };
    aclnnMul(x: In, other: In, out: Out) "PbN" => |a| map(a, NUMBERS, ["x", "other"], "out", |[x, y]| x * y);
    aclnnInplaceMul(x: Out, other: In) "PbN" => |a| map(a, NUMBERS, ["x", "other"], "x", |[x, y]| x * y);
    aclnnMuls(x: In, other: Num, out: Out) "PbN" => |a| {
        let other = a.scalar("other")?;
        map(a, NUMBERS, ["x"], "out", move |[x]| x * other)
    };
    aclnnInplaceMuls(x: Out, other: Num) "PbN" => |a| {
        let other = a.scalar("other")?;
        map(a, NUMBERS, ["x"], "x", move |[x]| x * other)
    };
    aclnnDiv(x: In, other: In, out: Out) "pBN" => |a| map(a, NUMBERS, ["x", "other"], "out", |[x, y]| x / y);
    aclnnInplaceDiv(x: Out, other: In) "pBN" => |a| map(a, NUMBERS, ["x", "other"], "x", |[x, y]| x / y);
    aclnnClamp(x: In, min_opt: Num, max_opt: Num, out: Out) "PbN" => |a| {
        let (min, max) = (a.scalar("min_opt").ok(), a.scalar("max_opt").ok());
        valid(min.is_some() || max.is_some(), || "neither min nor max".into())?;
        let (min, max) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
        map(a, NUMBERS, ["x"], "out", move |[x]| if x.is_nan() { x } else { x.max(min).min(max) })
    };
    aclnnClampMin(x: In, min: Num, out: Out) "PbN" => |a| {
        let min = a.scalar("min")?;
        map(a, NUMBERS, ["x"], "out", move |[x]| if x.is_nan() { x } else { x.max(min) })
    };
    aclnnPowScalarTensor(base: Num, exponent: In, out: Out) "PBN" => |a| {
        let base = a.scalar("base")?;
        map(a, NUMBERS, ["exponent"], "out", move |[e]| base.powf(e))
    };
    aclnnPowTensorTensor(x: In, exponent: In, out: Out) "PBN" => |a| {
        map(a, NUMBERS, ["x", "exponent"], "out", |[x, e]| x.powf(e))
    };
    aclnnPowTensorScalar(x: In, exponent: Num, out: Out) "PBN" => |a| {
        let exponent = a.scalar("exponent")?;
        map(a, NUMBERS, ["x"], "out", move |[x]| x.powf(exponent))
    };
    aclnnInplaceFillScalar(x: Out, value: Num) "PbN" => |a| {
        let value = a.scalar("value")?;
        map(a, NUMBERS, [], "x", move |[]| value)
    };
    aclnnInplaceZero(x: Out) "PbN" => |a| map(a, NUMBERS, [], "x", |[]| 0.0);
    aclnnInplaceOne(x: Out) "PbN" => |a| map(a, NUMBERS, [], "x", |[]| 1.0);
    // The length is counted in double precision, also for numbers that are not doubles.
    aclnnArange(start: Num, end: Num, step: Num, out: Out) "PbN" => |a| {
        let (start, end, step) = (a.scalar("start")?, a.scalar("end")?, a.scalar("step")?);
        valid(step != 0.0 && (end - start) * step >= 0.0, || format!("from {start} to {end} by {step}"))?;
        let (n, out) = (((end - start) / step).ceil() as i64, a.of("out", NUMBERS)?);
        let fits = crate::tensor::Tensor::n_elements(out) as i64 == n && out.dims.len() == 1;
        crate::fault::ensure(fits, ACLNN_ERR_INNER_FIND_KERNEL_ERROR, || format!("{n} numbers into {:?}", out.dims))?;
        Ok(kernel(move |r| r.write("out", &(0..n).map(|i| start + i as f64 * step).collect::<Vec<_>>())))
    };
}
