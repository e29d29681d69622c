//! Comparisons and choices.

use super::check::*;
use super::*;

const BOOL: Types = &[ACL_BOOL];

ops! { cann_math;
    aclnnGtScalar(x: In, other: Num, out: Out) "PbN" => |a| {
        let other = a.scalar("other")?;
        a.of("out", &[ACL_BOOL, ACL_FLOAT, ACL_FLOAT16, ACL_INT32])?;
        compare(a, "x", None, move |x, _| x > other)
    };
    aclnnEqTensor(x: In, other: In, out: Out) "pbN" => |a| {
        a.of("out", &[ACL_BOOL, ACL_FLOAT, ACL_FLOAT16, ACL_INT32])?;
        compare(a, "x", Some("other"), |x, y| x == y)
    };
    aclnnSWhere(condition: In, x: In, other: In, out: Out) "PbN" => |a| {
        a.of("condition", BOOL)?;
        map(a, NUMBERS, ["condition", "x", "other"], "out", |[c, x, y]| if c != 0.0 { x } else { y })
    };
    aclnnInplaceMaskedFillScalar(x: Out, mask: In, value: Num) "PbN" => |a| {
        a.of("mask", BOOL)?;
        let value = a.scalar("value")?;
        map(a, NUMBERS, ["x", "mask"], "x", move |[x, mask]| if mask != 0.0 { value } else { x })
    };
}

fn compare(
    a: &crate::args::Args,
    x: &'static str,
    other: Option<&'static str>,
    f: impl Fn(f64, f64) -> bool + Send + Sync + 'static,
) -> crate::fault::Answer<crate::plan::Kernel> {
    let dims = a.tensor("out")?.dims.clone();
    for name in [Some(x), other].into_iter().flatten() {
        crate::view::broadcast(a.of(name, NUMBERS)?, &dims)?;
    }
    Ok(kernel(move |r| {
        let x = r.read_as(x, &dims)?;
        let y = other.map(|name| r.read_as(name, &dims)).transpose()?;
        let at = |i: usize| y.as_ref().map_or(0.0, |y| y[i]);
        r.write("out", &(0..x.len()).map(|i| f64::from(u8::from(f(x[i], at(i))))).collect::<Vec<_>>())
    }))
}
