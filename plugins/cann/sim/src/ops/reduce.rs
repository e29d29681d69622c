//! Sums, means, norms and the place of the largest.

use super::check::*;
use super::*;
use crate::args::Args;
use crate::fault::Answer;
use crate::plan::Kernel;

ops! { cann_math;
    aclnnReduceSum(x: In, dims: Ints, keep_dim: bool, dtype: aclDataType, out: Out) "PbN" => |a| {
        typed(a)?;
        over_dims(a, |v| v.iter().sum())
    };
    aclnnMean(x: In, dims: Ints, keep_dim: bool, dtype: aclDataType, out: Out) "PbN" => |a| {
        typed(a)?;
        over_dims(a, |v| v.iter().sum::<f64>() / v.len() as f64)
    };
    aclnnNorm(x: In, p: Num, dims: Ints, keep_dim: bool, out: Out) "PBN" => |a| {
        let p = a.scalar("p")?;
        valid(p > 0.0, || format!("p {p}"))?;
        over_dims(a, move |v| v.iter().map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p))
    };
    aclnnCumsum(x: In, dim: i64, dtype: aclDataType, out: Out) "PBN" => |a| {
        typed(a)?;
        let dims = a.of("x", NUMBERS)?.dims.clone();
        let dim = a.dim("dim", dims.len())?;
        a.shaped("out", NUMBERS, &dims)?;
        let (n, inner) = (dims[dim] as usize, count(&dims[dim + 1..]));
        Ok(kernel(move |r| {
            let mut y = r.read("x")?;
            for block in y.chunks_exact_mut((n * inner).max(1)) {
                (inner..block.len()).for_each(|i| block[i] += block[i - inner]);
            }
            r.write("out", &y)
        }))
    };
    aclnnArgMax(x: In, dim: i64, keep_dim: bool, out: Out) "PbN" => |a| {
        let dims = a.of("x", NUMBERS)?.dims.clone();
        let dim = a.dim("dim", dims.len())?;
        valid(dims[dim] > 0, || "nothing to choose from".into())?;
        a.shaped("out", INDEX, &reduced(&dims, &[dim], a.int("keep_dim")? != 0))?;
        Ok(kernel(move |r| {
            let groups = grouped(&r.read("x")?, &dims, &[dim]);
            let largest = |v: &Vec<f64>| (1..v.len()).fold(0, |best, i| if v[i] > v[best] { i } else { best }) as f64;
            r.write("out", &groups.iter().map(largest).collect::<Vec<_>>())
        }))
    };
}

fn typed(a: &Args) -> Answer {
    let (requested, out) = (a.int("dtype")?, a.tensor("out")?.dtype);
    valid(requested == i64::from(out), || format!("dtype {requested}, `out` has {out}"))
}

fn over_dims(a: &Args, f: impl Fn(&[f64]) -> f64 + Send + Sync + 'static) -> Answer<Kernel> {
    let dims = a.of("x", NUMBERS)?.dims.clone();
    let rank = dims.len() as i64;
    let chosen = a.ints("dims")?;
    valid(chosen.iter().all(|d| (-rank..rank).contains(d)), || format!("dims {chosen:?} of {rank}"))?;
    // None stands for all.
    let chosen: Vec<usize> = match chosen.len() {
        0 => (0..dims.len()).collect(),
        _ => chosen.iter().map(|d| d.rem_euclid(rank) as usize).collect(),
    };
    a.shaped("out", NUMBERS, &reduced(&dims, &chosen, a.int("keep_dim")? != 0))?;
    Ok(kernel(move |r| {
        let groups = grouped(&r.read("x")?, &dims, &chosen);
        r.write("out", &groups.iter().map(|v| f(v)).collect::<Vec<_>>())
    }))
}

fn reduced(dims: &[i64], chosen: &[usize], keep: bool) -> Vec<i64> {
    let all = dims.iter().enumerate();
    match keep {
        true => all.map(|(d, n)| if chosen.contains(&d) { 1 } else { *n }).collect(),
        false => all.filter(|(d, _)| !chosen.contains(d)).map(|(_, n)| *n).collect(),
    }
}

/// The elements that make one of the result, for each, in order.
fn grouped(x: &[f64], dims: &[i64], chosen: &[usize]) -> Vec<Vec<f64>> {
    let kept = reduced(dims, chosen, true);
    let mut groups = vec![Vec::new(); count(&kept)];
    let mut values = x.iter();
    super::shape::over(dims, |at| {
        let place = at.iter().zip(&kept).fold(0, |place, (i, n)| place * n + if *n == 1 { 0 } else { *i });
        groups[place as usize].push(*values.next().unwrap_or(&0.0));
    });
    groups
}
