//! Pooling and convolution over [n, channels, height, width] or without n.

use super::check::*;
use super::shape::over;
use super::*;
use crate::args::Args;
use crate::fault::Answer;
use crate::plan::Kernel;

ops! { cann_nn;
    aclnnAvgPool2d(
        x: In, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, count_padding: bool, divisor: i64, cube_math: i8,
        out: Out,
    ) "PbN" => |a| {
        // The page of AvgPool2d (ops-nn 9.0): F32 is not kept where products round it.
        let kept = a.int("cube_math")? == 0 && a.tensor("x")?.dtype == ACL_FLOAT;
        valid(!kept || a.world.chip.f32_products, || "cube_math 0 with F32 on this chip".into())?;
        let (k, p) = (pair(a, "kernel")?, pair(a, "padding")?);
        valid((0..2).all(|d| p[d] * 2 <= k[d]), || format!("padding {p:?} of {k:?}"))?;
        let (count_padding, divisor) = (a.int("count_padding")? != 0, a.int("divisor")?);
        pool(a, k, [p[0], p[1], p[0], p[1]], move |window, size| {
            let n = if divisor != 0 { divisor } else if count_padding { size } else { window.len() as i64 };
            window.iter().sum::<f64>() / n as f64
        })
    };
    // Pads are top, left, bottom, right.
    aclnnMaxPool(
        x: In, kernel: Ints, stride: Ints, auto_pad: i64, padding: Ints, dilation: Ints, ceil_mode: i64, out: Out,
    ) "pbN" => |a| {
        // F16 alone but on A2 and A3 (aclnn_max_pool.cpp of ops-nn, 9.1).
        let types = if a.world.chip.is_a2() { FLOATS } else { &[ACL_FLOAT16] };
        a.of("x", types)?;
        let pads: [i64; 4] = a.ints("padding")?.try_into().unwrap_or([-1; 4]);
        valid(a.int("auto_pad")? == 0 && pads.iter().all(|p| *p >= 0), || format!("pads {pads:?}"))?;
        valid(a.ints("dilation")?.iter().all(|d| *d == 1), || "a dilation".into())?;
        pool(a, pair(a, "kernel")?, pads, |window, _| window.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    };
    #[cube] aclnnConvolution(
        x: In, weight: In, bias_opt: In, stride: Ints, padding: Ints, dilation: Ints, transposed: bool, output_padding: Ints,
        groups: i64, out: Out, cube_math: i8,
    ) "PBn" => |a| convolution(a);
}

/// Two numbers, or one for both.
pub fn pair(a: &Args, name: &str) -> Answer<[i64; 2]> {
    match a.ints(name)? {
        [x] => Ok([*x, *x]),
        [x, y] => Ok([*x, *y]),
        other => crate::fault::fault(ACLNN_ERR_PARAM_INVALID, format!("`{name}` is {other:?}")),
    }
}

fn pool(
    a: &Args,
    k: [i64; 2],
    pads: [i64; 4],
    f: impl Fn(&[f64], i64) -> f64 + Send + Sync + 'static,
) -> Answer<Kernel> {
    let dims = a.of("x", FLOATS)?.dims.clone();
    let stride = if a.ints("stride")?.is_empty() { k } else { pair(a, "stride")? };
    valid((3..=4).contains(&dims.len()) && k.iter().chain(&stride).all(|n| *n > 0), || {
        format!("{k:?} over {dims:?}")
    })?;
    let (n, up) = (dims.len(), a.int("ceil_mode")? != 0);
    let (h, w) = (dims[n - 2], dims[n - 1]);
    let size = |len: i64, k: i64, s: i64, before: i64, after: i64| {
        let room = len + before + after - k;
        let n = (room + if up { s - 1 } else { 0 }).div_euclid(s) + 1;
        // The last window begins inside.
        if up && (n - 1) * s >= len + before { n - 1 } else { n }
    };
    let mut whole = dims[..n - 2].to_vec();
    whole.extend([size(h, k[0], stride[0], pads[0], pads[2]), size(w, k[1], stride[1], pads[1], pads[3])]);
    a.shaped("out", FLOATS, &whole)?;
    Ok(kernel(move |r| {
        let x = r.read("x")?;
        let y = over(&whole, |at| {
            let plane = at[..n - 2].iter().zip(&dims).fold(0, |place, (i, n)| place * n + i) * h * w;
            let (top, left) = (at[n - 2] * stride[0] - pads[0], at[n - 1] * stride[1] - pads[1]);
            let rows = top.max(0)..(top + k[0]).min(h);
            let cols = left.max(0)..(left + k[1]).min(w);
            let window: Vec<f64> = rows
                .flat_map(|i| cols.clone().map(move |j| (i, j)))
                .map(|(i, j)| x[(plane + i * w + j) as usize])
                .collect();
            f(&window, k[0] * k[1])
        });
        r.write("out", &y)
    }))
}

/// One or two dims beside channels; transposed: every input spreads over the outputs that it would have come from.
fn convolution(a: &Args) -> Answer<Kernel> {
    let (x, weight) = (a.of("x", FLOATS)?, a.of("weight", FLOATS)?);
    valid(x.dims.len() == weight.dims.len() && (3..=4).contains(&x.dims.len()), || {
        format!("{:?} by {:?}", x.dims, weight.dims)
    })?;
    let flat = x.dims.len() == 3;
    // A single dim is the second of two.
    let four = |dims: &[i64]| {
        if flat { [dims[0], dims[1], 1, dims[2]] } else { [dims[0], dims[1], dims[2], dims[3]] }
    };
    let both = |name: &str, or: i64| {
        Ok(match (flat, a.ints(name)?) {
            (true, [x, ..]) => [or, *x],
            (_, []) => [or; 2],
            _ => pair(a, name)?,
        })
    };
    let (stride, pad, dilation) = (both("stride", 1)?, both("padding", 0)?, both("dilation", 1)?);
    let (more, transposed, groups) =
        (both("output_padding", 0)?, a.int("transposed")? != 0, a.int("groups")?);
    let (i, w, out) = (four(&x.dims), four(&weight.dims), a.of("out", FLOATS)?.dims.clone());
    let c_out = if transposed { w[1] * groups } else { w[0] };
    let channels = groups > 0 && i[1] % groups == 0 && c_out % groups == 0;
    let good = channels && if transposed { w[0] == i[1] } else { w[1] * groups == i[1] };
    valid(good && stride.iter().chain(&dilation).all(|n| *n > 0), || {
        format!("{:?} by {:?} in {groups} groups", x.dims, weight.dims)
    })?;
    let size = |d: usize| {
        let span = dilation[d] * (w[2 + d] - 1) + 1;
        match transposed {
            true => (i[2 + d] - 1) * stride[d] - 2 * pad[d] + span + more[d],
            false => (i[2 + d] + 2 * pad[d] - span) / stride[d] + 1,
        }
    };
    let whole = [i[0], c_out, size(0), size(1)];
    let expected = if flat { vec![whole[0], whole[1], whole[3]] } else { whole.to_vec() };
    valid(out == expected, || format!("`out` is {out:?}, expected {expected:?}"))?;
    if a.opt("bias_opt").is_some() {
        a.shaped("bias_opt", FLOATS, &[c_out])?;
    }
    Ok(kernel(move |r| {
        let (x, weight) = (r.read("x")?, r.read("weight")?);
        let bias =
            if r.args.opt("bias_opt").is_some() { r.read("bias_opt")? } else { vec![0.0; c_out as usize] };
        let (in_group, out_group) = (i[1] / groups, c_out / groups);
        // Where a tap of the window is in the input, if it is on an element.
        let source = |d: usize, o: i64, tap: i64| {
            let at = match transposed {
                true => o + pad[d] - tap * dilation[d],
                false => {
                    return Some(o * stride[d] - pad[d] + tap * dilation[d])
                        .filter(|at| (0..i[2 + d]).contains(at));
                }
            };
            (at >= 0 && at % stride[d] == 0 && at / stride[d] < i[2 + d]).then_some(at / stride[d])
        };
        let y = over(&whole, |at| {
            let (group, mut sum) = (at[1] / out_group, 0.0);
            for c in 0..in_group {
                let channel = group * in_group + c;
                for (u, v) in (0..w[2]).flat_map(|u| (0..w[3]).map(move |v| (u, v))) {
                    let (Some(row), Some(col)) = (source(0, at[2], u), source(1, at[3], v)) else { continue };
                    let (o, c) = if transposed { (channel, at[1] % out_group) } else { (at[1], c) };
                    let tap = weight[(((o * w[1] + c) * w[2] + u) * w[3] + v) as usize];
                    sum += tap * x[(((at[0] * i[1] + channel) * i[2] + row) * i[3] + col) as usize];
                }
            }
            sum + bias[at[1] as usize]
        });
        r.write("out", &y)
    }))
}

/// Larger images.
pub mod resize {
    use super::super::check::*;
    use super::super::*;
    use super::over;

    ops! { cann_cv;
        aclnnUpsampleNearest2d(x: In, size: Ints, out: Out) "PbN" => |a| {
            let (dims, size) = (a.of("x", FLOATS)?.dims.clone(), a.ints("size")?.to_vec());
            valid(dims.len() == 4 && size.len() == 2, || format!("{dims:?} to {size:?}"))?;
            let whole = vec![dims[0], dims[1], size[0], size[1]];
            a.shaped("out", FLOATS, &whole)?;
            Ok(kernel(move |r| {
                let x = r.read("x")?;
                let y = over(&whole, |at| {
                    let (row, col) = (at[2] * dims[2] / whole[2], at[3] * dims[3] / whole[3]);
                    x[(((at[0] * dims[1] + at[1]) * dims[2] + row) * dims[3] + col) as usize]
                });
                r.write("out", &y)
            }))
        };
    }
}

/// Windows as columns.
pub mod columns {
    use super::super::check::*;
    use super::super::*;
    use super::{over, pair};

    ops! { cann_math;
        // [n, c, h, w] to [n, c · kh · kw, windows].
        aclnnIm2col(x: In, kernel: Ints, dilation: Ints, padding: Ints, stride: Ints, out: Out) "p" => |a| {
            let mut dims = a.of("x", FLOATS)?.dims.clone();
            valid((3..=4).contains(&dims.len()), || format!("{dims:?}"))?;
            let single = dims.len() == 3;
            if single { dims.insert(0, 1) }
            let [k, dilation, pad, stride] = [pair(a, "kernel")?, pair(a, "dilation")?, pair(a, "padding")?, pair(a, "stride")?];
            valid(k.iter().chain(&dilation).chain(&stride).all(|n| *n > 0), || "a number below 1".into())?;
            let size = |d: usize| (dims[2 + d] + 2 * pad[d] - dilation[d] * (k[d] - 1) - 1).div_euclid(stride[d]) + 1;
            let (rows, cols) = (size(0), size(1));
            let whole = [dims[0], dims[1] * k[0] * k[1], rows * cols];
            a.shaped("out", FLOATS, if single { &whole[1..] } else { &whole })?;
            Ok(kernel(move |r| {
                let x = r.read("x")?;
                let y = over(&whole, |at| {
                    let (c, u, v) = (at[1] / (k[0] * k[1]), at[1] / k[1] % k[0], at[1] % k[1]);
                    let row = at[2] / cols * stride[0] - pad[0] + u * dilation[0];
                    let col = at[2] % cols * stride[1] - pad[1] + v * dilation[1];
                    let inside = (0..dims[2]).contains(&row) && (0..dims[3]).contains(&col);
                    if inside { x[(((at[0] * dims[1] + c) * dims[2] + row) * dims[3] + col) as usize] } else { 0.0 }
                });
                r.write("out", &y)
            }))
        };
    }
}
