//! Normalisation along the last dims, and softmax. Sums are F32 or better, whatever the type.

use super::check::*;
use super::*;

ops! { cann_nn;
    // The statistics have the rank of x, with the normalised dims 1, and are F32.
    aclnnRmsNorm(x: In, gamma: In, eps: f64, y: Out, rstd: Out) "Pn" => |a| {
        let (x, gamma, eps) = (a.of("x", FLOATS)?, a.of("gamma", FLOATS)?, a.double("eps")?);
        let outer = x.dims.len().checked_sub(gamma.dims.len());
        let outer = outer.filter(|outer| x.dims[*outer..] == gamma.dims);
        valid(outer.is_some(), || format!("`gamma` is {:?}, `x` {:?}", gamma.dims, x.dims))?;
        let outer = outer.unwrap_or(0);
        valid(a.shaped("y", FLOATS, &x.dims)?.dtype == x.dtype, || "another dtype".into())?;
        let stats: Vec<i64> = x.dims.iter().enumerate().map(|(d, n)| if d < outer { *n } else { 1 }).collect();
        a.shaped("rstd", &[ACL_FLOAT], &stats)?;
        let n = count(&gamma.dims);
        let bytes = n * crate::tensor::bits(x.dtype).unwrap_or(8) / 8;
        valid(a.world.chip.int4 || bytes >= 32, || format!("rows of {bytes} bytes, less than 32"))?;
        Ok(kernel(move |r| {
            let (x, gamma) = (r.read("x")?, r.read("gamma")?);
            let rows = x.chunks_exact(n.max(1));
            let rstd: Vec<f64> = rows.clone().map(|row| rms(row, eps)).collect();
            let y = rows.zip(&rstd).flat_map(|(row, s)| row.iter().zip(&gamma).map(move |(x, g)| x * s * g));
            r.write("y", &y.collect::<Vec<_>>())?;
            r.write("rstd", &rstd)
        }))
    };
    aclnnLayerNorm(
        x: In, normalised: Ints, weight_opt: In, bias_opt: In, eps: f64, out: Out, mean_opt: Out, rstd_opt: Out,
    ) "pBN" => |a| {
        let (x, shape, eps) = (a.of("x", FLOATS)?, a.ints("normalised")?.to_vec(), a.double("eps")?);
        valid(x.dims.ends_with(&shape) && !shape.is_empty(), || format!("{shape:?} of {:?}", x.dims))?;
        a.shaped("out", FLOATS, &x.dims)?;
        let (outer, n) = (x.dims.len() - shape.len(), count(&shape));
        let stats: Vec<i64> = x.dims.iter().enumerate().map(|(d, n)| if d < outer { *n } else { 1 }).collect();
        let given = |name: &'static str, dims: &[i64]| {
            a.opt(name).map(|_| a.shaped(name, FLOATS, dims).map(|_| name)).transpose()
        };
        let (weight, bias) = (given("weight_opt", &shape)?, given("bias_opt", &shape)?);
        let (mean_out, rstd_out) = (given("mean_opt", &stats)?, given("rstd_opt", &stats)?);
        Ok(kernel(move |r| {
            let x = r.read("x")?;
            let read = |name: Option<&str>, or: f64| name.map_or_else(|| Ok(vec![or; n]), |name| r.read(name));
            let (weight, bias) = (read(weight, 1.0)?, read(bias, 0.0)?);
            let stats: Vec<(f64, f64)> = x.chunks_exact(n.max(1)).map(|row| moments(row, eps)).collect();
            let y = x.iter().enumerate().map(|(i, x)| (x - stats[i / n].0) * stats[i / n].1 * weight[i % n] + bias[i % n]);
            r.write("out", &y.collect::<Vec<_>>())?;
            if let Some(name) = mean_out { r.write(name, &stats.iter().map(|s| s.0).collect::<Vec<_>>())? }
            if let Some(name) = rstd_out { r.write(name, &stats.iter().map(|s| s.1).collect::<Vec<_>>())? }
            Ok(())
        }))
    };
    // x is [n, c, hxw…]; the statistics are [n, groups] and of x's type.
    aclnnGroupNorm(
        x: In, gamma_opt: In, beta_opt: In, n: i64, c: i64, hxw: i64, groups: i64, eps: f64, out: Out, mean: Out, rstd: Out,
    ) "PbN" => |a| {
        let x = a.of("x", FLOATS)?;
        let (n, c, hxw, groups) = (a.int("n")?, a.int("c")?, a.int("hxw")?, a.int("groups")?);
        valid(groups > 0 && c % groups == 0 && n * c * hxw == x.n_elements() as i64, || format!("{n}·{c}·{hxw} in {groups} groups"))?;
        a.shaped("out", FLOATS, &x.dims)?;
        for name in ["mean", "rstd"] { a.shaped(name, &[x.dtype], &[n, groups])?; }
        for name in ["gamma_opt", "beta_opt"] { if a.opt(name).is_some() { a.shaped(name, FLOATS, &[c])?; } }
        let (eps, per_group, c, hxw) = (a.double("eps")?, (c / groups * hxw).max(1) as usize, c as usize, hxw as usize);
        Ok(kernel(move |r| {
            let x = r.read("x")?;
            let read = |name: &str, or: f64| if r.args.opt(name).is_some() { r.read(name) } else { Ok(vec![or; c]) };
            let (gamma, beta) = (read("gamma_opt", 1.0)?, read("beta_opt", 0.0)?);
            let stats: Vec<(f64, f64)> = x.chunks_exact(per_group).map(|group| moments(group, eps)).collect();
            let y = x.iter().enumerate().map(|(i, x)| {
                let ((mean, rstd), channel) = (stats[i / per_group], i / hxw % c);
                (x - mean) * rstd * gamma[channel] + beta[channel]
            });
            r.write("out", &y.collect::<Vec<_>>())?;
            r.write("mean", &stats.iter().map(|s| s.0).collect::<Vec<_>>())?;
            r.write("rstd", &stats.iter().map(|s| s.1).collect::<Vec<_>>())
        }))
    };
    aclnnSoftmax(x: In, dim: i64, out: Out) "PBN" => |a| {
        let dims = a.of("x", FLOATS)?.dims.clone();
        let dim = a.dim("dim", dims.len())?;
        a.shaped("out", FLOATS, &dims)?;
        let (n, inner) = (dims[dim] as usize, count(&dims[dim + 1..]));
        Ok(kernel(move |r| {
            let mut y = r.read("x")?;
            for block in y.chunks_exact_mut((n * inner).max(1)) {
                for i in 0..inner {
                    let mut row: Vec<f64> = block[i..].iter().step_by(inner).copied().collect();
                    softmax(&mut row);
                    row.iter().enumerate().for_each(|(j, v)| block[i + j * inner] = *v);
                }
            }
            r.write("out", &y)
        }))
    };
}

/// e^x / Σ e^x
pub fn softmax(row: &mut [f64]) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|x| *x = (*x - max).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
}

fn rms(row: &[f64], eps: f64) -> f64 {
    (row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64 + eps).sqrt().recip()
}

/// Mean and 1 / √(variance + eps).
fn moments(row: &[f64], eps: f64) -> (f64, f64) {
    let mean = row.iter().sum::<f64>() / row.len() as f64;
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / row.len() as f64;
    (mean, (variance + eps).sqrt().recip())
}
