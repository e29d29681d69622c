//! y = f(x), elementwise.

use super::check::*;
use super::*;

ops! { cann_math;
    aclnnExp(x: In, out: Out) "pbn" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.exp());
    aclnnExpm1(x: In, out: Out) "PbN" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.exp_m1());
    aclnnCos(x: In, out: Out) "PBN" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.cos());
    aclnnSin(x: In, out: Out) "PBN" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.sin());
    aclnnSqrt(x: In, out: Out) "pbn" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.sqrt());
    aclnnRsqrt(x: In, out: Out) "PBN" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.sqrt().recip());
    aclnnLog(x: In, out: Out) "pbn" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.ln());
    aclnnNeg(x: In, out: Out) "pBN" => |a| map(a, NUMBERS, ["x"], "out", |[x]| -x);
    aclnnAbs(x: In, out: Out) "PbN" => |a| map(a, NUMBERS, ["x"], "out", |[x]| x.abs());
    aclnnSign(x: In, out: Out) "pbn" => |a| map(a, NUMBERS, ["x"], "out", |[x]| if x == 0.0 { 0.0 } else { x.signum() });
    aclnnTanh(x: In, out: Out) "pbn" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.tanh());
    aclnnFloor(x: In, out: Out) "pbN" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.floor());
    aclnnCeil(x: In, out: Out) "PbN" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.ceil());
    aclnnTrunc(x: In, out: Out) "Pn" => |a| map(a, FLOATS, ["x"], "out", |[x]| x.trunc());
}

/// 1 / (1 + e^-x)
pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// x · Φ(x), or its form with tanh.
pub fn gelu(x: f64, approximate: bool) -> f64 {
    match approximate {
        true => 0.5 * x * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * (x + 0.044715 * x * x * x)).tanh()),
        false => 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2)),
    }
}

/// The error function, by its series near 0 and by a continued fraction elsewhere.
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() || a > 6.0 {
        return if a.is_nan() { x } else { x.signum() };
    }
    if a < 2.5 {
        // Σ (-1)^n x^(2n+1) / (n! (2n+1)) · 2/√π
        let (mut term, mut sum, mut n) = (x, x, 0.0);
        while f64::abs(term) > 1e-18 * f64::abs(sum).max(1e-300) && n < 200.0 {
            n += 1.0;
            term *= -x * x / n;
            sum += term / (2.0 * n + 1.0);
        }
        return sum * std::f64::consts::FRAC_2_SQRT_PI;
    }
    // erfc(a) = e^(-a²)/√π · 1/(a + (1/2)/(a + 1/(a + (3/2)/(a + …))))
    let fraction = (1..60).rev().fold(a, |f, k| a + f64::from(k) / 2.0 / f);
    x.signum() * (1.0 - (-a * a).exp() * std::f64::consts::FRAC_2_SQRT_PI / 2.0 / fraction)
}

/// Activations, which are in another library.
pub mod activation {
    use super::super::check::*;
    use super::super::*;
    use super::{gelu, sigmoid};

    ops! { cann_nn;
        aclnnLeakyRelu(x: In, slope: Num, out: Out) "pbN" => |a| {
            let slope = a.scalar("slope")?;
            map(a, FLOATS, ["x"], "out", move |[x]| if x < 0.0 { x * slope } else { x })
        };
        aclnnSilu(x: In, out: Out) "PbN" => |a| map(a, FLOATS, ["x"], "out", |[x]| x * sigmoid(x));
        aclnnRelu(x: In, out: Out) "pbN" => |a| map(a, FLOATS, ["x"], "out", |[x]| if x < 0.0 { 0.0 } else { x });
        aclnnSigmoid(x: In, out: Out) "PbN" => |a| map(a, FLOATS, ["x"], "out", |[x]| sigmoid(x));
        aclnnHardsigmoid(x: In, out: Out) "pbN" => |a| {
            map(a, FLOATS, ["x"], "out", |[x]| ((x + 3.0) / 6.0).clamp(0.0, 1.0))
        };
        aclnnHardswish(x: In, out: Out) "pbN" => |a| {
            map(a, FLOATS, ["x"], "out", |[x]| x * ((x + 3.0) / 6.0).clamp(0.0, 1.0))
        };
        // 0 is the error function, 1 tanh.
        aclnnGeluV2(x: In, approximate: i64, out: Out) "PbN" => |a| {
            let approximate = a.int("approximate")?;
            valid((0..=1).contains(&approximate), || format!("approximate {approximate}"))?;
            map(a, FLOATS, ["x"], "out", move |[x]| gelu(x, approximate == 1))
        };
        aclnnFastGelu(x: In, out: Out) "pbn" => |a| map(a, FLOATS, ["x"], "out", |[x]| x * sigmoid(1.702 * x));
        aclnnElu(x: In, alpha: Num, scale: Num, input_scale: Num, out: Out) "PbN" => |a| {
            let (alpha, scale, input) = (a.scalar("alpha")?, a.scalar("scale")?, a.scalar("input_scale")?);
            map(a, FLOATS, ["x"], "out", move |[x]| {
                scale * if x > 0.0 { x } else { alpha * (x * input).exp_m1() }
            })
        };
        aclnnSoftplus(x: In, beta: Num, threshold: Num, out: Out) "PbN" => |a| {
            let (beta, threshold) = (a.scalar("beta")?, a.scalar("threshold")?);
            map(a, FLOATS, ["x"], "out", move |[x]| {
                if x * beta > threshold { x } else { (x * beta).exp().ln_1p() / beta }
            })
        };
        aclnnSwiGlu(x: In, dim: i64, out: Out) "P" => |a| {
            a.whole("out")?;
            let t = a.whole("x")?;
            let row = t.dims.last().copied().unwrap_or(0) * crate::tensor::bits(t.dtype).unwrap_or(8) as i64 / 8;
            let p310 = !a.world.chip.int4;
            valid(!p310 || (row % 64 == 0 && t.n_elements() > 0), || format!("rows of {row} bytes, or none"))?;
            halves(a, "out", None, |left, right| (left * sigmoid(left) * right, 0.0))
        };
        aclnnGeGluV3(x: In, dim: i64, approximate: i64, activate_left: bool, out: Out, out_gelu: Out) "P" => |a| {
            let (tanh, left) = (a.int("approximate")? == 1, a.int("activate_left")? != 0);
            halves(a, "out", Some("out_gelu"), move |l, r| {
                let (gate, up) = if left { (l, r) } else { (r, l) };
                (gelu(gate, tanh) * up, gelu(gate, tanh))
            })
        };
    }

    /// f of the two halves of `x` along `dim`; a second result where there is one.
    fn halves(
        a: &crate::args::Args,
        out: &'static str,
        second: Option<&'static str>,
        f: impl Fn(f64, f64) -> (f64, f64) + Send + Sync + 'static,
    ) -> crate::fault::Answer<crate::plan::Kernel> {
        let t = a.of("x", FLOATS)?;
        let dim = a.dim("dim", t.dims.len())?;
        valid(t.dims[dim] % 2 == 0, || format!("an odd dim in {:?}", t.dims))?;
        let mut dims = t.dims.clone();
        dims[dim] /= 2;
        for name in [Some(out), second].into_iter().flatten() {
            valid(a.shaped(name, FLOATS, &dims)?.dtype == t.dtype, || "another dtype".into())?;
        }
        let half = count(&dims[dim..]);
        Ok(kernel(move |r| {
            let x = r.read("x")?;
            let pairs =
                x.chunks_exact(2 * half.max(1)).flat_map(|both| both[..half].iter().zip(&both[half..]));
            let (y, gelu): (Vec<f64>, Vec<f64>) = pairs.map(|(l, r)| f(*l, *r)).unzip();
            if let Some(name) = second {
                r.write(name, &gelu)?;
            }
            r.write(out, &y)
        }))
    }
}
