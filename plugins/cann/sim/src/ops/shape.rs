//! Moving elements: casts, copies, permutations, joining, repeating, padding.

use super::check::*;
use super::*;
use crate::args::Args;
use crate::fault::Answer;
use crate::plan::Kernel;
use crate::tensor::{Tensor, element_bytes};
use crate::view::broadcast;

ops! { cann_math;
    aclnnCast(x: In, dtype: aclDataType, out: Out) "PbN" => |a| {
        let (x, out) = (a.of("x", ALL)?, a.of("out", ALL)?);
        valid(a.int("dtype")? == i64::from(out.dtype) && x.dims == out.dims, || "`out` of another type or shape".into())?;
        moved("x", "out", x.clone())
    };
    aclnnInplaceCopy(x: Out, source: In) "PBN" => |a| {
        moved("source", "x", broadcast(a.of("source", ALL)?, &a.of("x", ALL)?.dims)?)
    };
    aclnnPermute(x: In, dims: Ints, out: Out) "pbN" => |a| {
        let (mut t, axes) = (a.of("x", ALL)?.clone(), a.ints("dims")?);
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        valid(sorted.iter().copied().eq(0..t.dims.len() as i64), || format!("dims {axes:?}"))?;
        t.dims = axes.iter().map(|d| t.dims[*d as usize]).collect();
        t.strides = axes.iter().map(|d| t.strides[*d as usize]).collect();
        valid(a.shaped("out", ALL, &t.dims)?.dtype == t.dtype, || "another dtype".into())?;
        moved("x", "out", t)
    };
    aclnnRepeat(x: In, repeats: Ints, out: Out) "PbN" => |a| {
        let (x, repeats) = (a.of("x", ALL)?, a.ints("repeats")?.to_vec());
        let more = repeats.len().checked_sub(x.dims.len());
        valid(more.is_some() && repeats.iter().all(|n| *n >= 0), || format!("repeats {repeats:?}"))?;
        tiles(repeats.iter().filter(|n| **n > 1).count() <= 4, || "more than 4 dims are repeated".into())?;
        let mut dims = vec![1; more.unwrap_or(0)];
        dims.extend(&x.dims);
        let whole: Vec<i64> = dims.iter().zip(&repeats).map(|(n, times)| n * times).collect();
        a.shaped("out", ALL, &whole)?;
        gather(a, "x", dims.clone(), whole.clone(), move |at| at.iter().zip(&dims).map(|(i, n)| i % n).collect())
    };
    aclnnRoll(x: In, shifts: Ints, dims: Ints, out: Out) "PN" => |a| {
        let (dims, shifts, axes) = (a.of("x", ALL)?.dims.clone(), a.ints("shifts")?.to_vec(), a.ints("dims")?.to_vec());
        a.shaped("out", ALL, &dims)?;
        valid(shifts.len() == axes.len() && axes.iter().all(|d| (0..dims.len() as i64).contains(d)), || "shifts".into())?;
        gather(a, "x", dims.clone(), dims.clone(), move |at| {
            let mut from = at.to_vec();
            for (shift, d) in shifts.iter().zip(&axes) {
                from[*d as usize] = (from[*d as usize] - shift).rem_euclid(dims[*d as usize]);
            }
            from
        })
    };
    aclnnCat(tensors: List, dim: i64, out: Out) "PbN" => |a| {
        let (all, out) = (a.list("tensors")?.to_vec(), a.of("out", ALL)?);
        let dim = a.dim("dim", out.dims.len())?;
        let mut at = 0;
        let mut targets = Vec::new();
        for t in &all {
            let same = |d: usize| d == dim || t.dims[d] == out.dims[d];
            let fits = t.dims.len() == out.dims.len() && (0..t.dims.len()).all(same) && t.dtype == out.dtype;
            valid(fits, || format!("{:?} does not go into {:?}", t.dims, out.dims))?;
            targets.push((at, t.dims[dim]));
            at += t.dims[dim];
        }
        valid(at == out.dims[dim], || format!("{at} in all, `out` has {}", out.dims[dim]))?;
        Ok(kernel(move |r| {
            let (all, out) = (r.args.list("tensors")?, r.args.tensor("out")?);
            let size = element_bytes(out.dtype);
            all.iter().zip(&targets).try_for_each(|(t, (start, n))| {
                let mut part = out.clone();
                part.offset += start * part.strides[dim];
                part.dims[dim] = *n;
                r.write_elements(&part, size, &r.elements(t)?)
            })
        }))
    };
    // Pads begin with the last dim, before and after.
    aclnnConstantPadNd(x: In, pads: Ints, value: Num, out: Out) "PbN" => |a| {
        let (x, pads, value) = (a.of("x", ALL)?, a.ints("pads")?.to_vec(), a.scalar("value")?);
        valid(pads.len() % 2 == 0 && pads.len() <= 2 * x.dims.len(), || format!("pads {pads:?}"))?;
        let mut whole = x.dims.clone();
        let n = whole.len();
        for (i, pair) in pads.chunks_exact(2).enumerate() {
            whole[n - 1 - i] += pair[0] + pair[1];
        }
        valid(whole.iter().all(|n| *n >= 0), || format!("pads {pads:?}"))?;
        valid(a.shaped("out", ALL, &whole)?.dtype == x.dtype, || "another dtype".into())?;
        let dims = x.dims.clone();
        Ok(kernel(move |r| {
            let x = r.read("x")?;
            let y = over(&whole, |at| {
                let mut place = 0;
                for d in 0..n {
                    let i = at[d] - pads.get(2 * (n - 1 - d)).copied().unwrap_or(0);
                    if !(0..dims[d]).contains(&i) { return value }
                    place = place * dims[d] + i;
                }
                x[place as usize]
            });
            r.write("out", &y)
        }))
    };
    aclnnReflectionPad1d(x: In, pads: Ints, out: Out) "PbN" => |a| {
        let (dims, pads) = (a.of("x", ALL)?.dims.clone(), a.ints("pads")?.to_vec());
        let n = dims.last().copied().unwrap_or(0);
        valid(pads.len() == 2 && pads.iter().all(|p| *p >= 0 && *p < n), || format!("pads {pads:?} of {n}"))?;
        let mut whole = dims.clone();
        if let Some(last) = whole.last_mut() { *last += pads[0] + pads[1] }
        a.shaped("out", ALL, &whole)?;
        gather(a, "x", dims, whole, move |at| {
            let mut from = at.to_vec();
            if let Some(last) = from.last_mut() {
                let i = (*last - pads[0]).abs();
                *last = if i < n { i } else { 2 * (n - 1) - i };
            }
            from
        })
    };
    aclnnTriu(x: In, diagonal: i64, out: Out) "PbN" => |a| triangle(a, "out", true);
    aclnnInplaceTriu(x: Out, diagonal: i64) "PbN" => |a| triangle(a, "x", true);
    aclnnTril(x: In, diagonal: i64, out: Out) "pbN" => |a| triangle(a, "out", false);
}

/// Writes a view's elements into `out`: as they are where the types agree.
fn moved(name: &'static str, out: &'static str, source: Tensor) -> Answer<Kernel> {
    Ok(kernel(move |r| {
        let source = Tensor { base: r.args.tensor(name)?.base, ..source.clone() };
        let out = r.args.tensor(out)?;
        if source.dtype == out.dtype {
            return r.write_elements(out, element_bytes(out.dtype), &r.elements(&source)?);
        }
        r.write_numbers(out, &r.numbers(&source)?)
    }))
}

/// `out` at an index is `x` at the index that `from` gives.
fn gather(
    a: &Args,
    x: &'static str,
    dims: Vec<i64>,
    whole: Vec<i64>,
    from: impl Fn(&[i64]) -> Vec<i64> + Send + Sync + 'static,
) -> Answer<Kernel> {
    let size = element_bytes(a.tensor(x)?.dtype);
    valid(a.tensor(x)?.dtype == a.tensor("out")?.dtype, || "another dtype".into())?;
    Ok(kernel(move |r| {
        let x = r.elements(r.args.tensor(x)?)?;
        let place = |at: &[i64]| from(at).iter().zip(&dims).fold(0, |place, (i, n)| place * n + i) as usize;
        let y = over(&whole, |at| x[place(at)]);
        r.write_elements(r.args.tensor("out")?, size, &y)
    }))
}

/// Calls `f` at every index, in order.
pub fn over<T>(dims: &[i64], mut f: impl FnMut(&[i64]) -> T) -> Vec<T> {
    let mut index = vec![0; dims.len()];
    (0..count(dims))
        .map(|_| {
            let value = f(&index);
            for d in (0..dims.len()).rev() {
                index[d] += 1;
                if index[d] < dims[d] {
                    break;
                }
                index[d] = 0;
            }
            value
        })
        .collect()
}

fn triangle(a: &Args, out: &'static str, upper: bool) -> Answer<Kernel> {
    let (dims, diagonal) = (a.of("x", NUMBERS)?.dims.clone(), a.int("diagonal")?);
    valid(dims.len() >= 2, || "less than 2 dims".into())?;
    a.shaped(out, NUMBERS, &dims)?;
    Ok(kernel(move |r| {
        let x = r.read("x")?;
        let mut all = x.iter();
        let n = dims.len();
        let y = over(&dims, |at| {
            let (x, above) = (*all.next().unwrap_or(&0.0), at[n - 1] - at[n - 2]);
            let kept = if upper { above >= diagonal } else { above <= diagonal };
            if kept { x } else { 0.0 }
        });
        r.write(out, &y)
    }))
}
