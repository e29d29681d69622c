//! y = x · ((w + offset) · scale) + bias, with w of 4 or 8 bits and scales per tensor, column or group of rows.

use super::check::*;
use super::matmul::multiply;
use super::*;
use crate::args::Args;
use crate::fault::{Answer, ensure};
use crate::number::round_to;
use crate::plan::Kernel;
use crate::tensor::Tensor;

ops! { cann_nn;
    #[cube] aclnnWeightQuantBatchMatmulV2(
        x: In, weight: In, scale: In, offset_opt: In, quant_scale_opt: In, quant_offset_opt: In, bias_opt: In,
        group_size: i32, y: Out,
    ) "P" => |a| product(a);
    #[cube] aclnnWeightQuantBatchMatmulV3(
        x: In, weight: In, scale: In, offset_opt: In, quant_scale_opt: In, quant_offset_opt: In, bias_opt: In,
        group_size: i32, inner_precise: i32, y: Out,
    ) "" => |a| product(a);
}

fn product(a: &Args) -> Answer<Kernel> {
    let halves: Types = &[ACL_FLOAT16, ACL_BF16];
    let (x, weight, group) = (a.of("x", halves)?, a.tensor("weight")?, a.int("group_size")?);
    let is_a2 = a.world.chip.int4;
    valid(matches!(weight.dtype, ACL_INT4 | ACL_INT8), || format!("`weight` has dtype {}", weight.dtype))?;
    valid(x.dims.len() == 2 && weight.dims.len() == 2, || format!("{:?} · {:?}", x.dims, weight.dims))?;
    let (m, k, n) = (x.dims[0], x.dims[1], weight.dims[1]);
    valid(weight.dims[0] == k, || format!("{:?} · {:?}", x.dims, weight.dims))?;
    tiles((1..=65_535).contains(&k) && (1..=65_535).contains(&n) && m > 0, || {
        format!("m {m}, k {k}, n {n}")
    })?;
    for name in ["x", "weight", "scale"] {
        let t = a.tensor(name)?;
        valid(t.is_contiguous() || is_turned(t), || {
            format!("`{name}` has strides {:?} over {:?}", t.strides, t.dims)
        })?;
    }
    for name in ["quant_scale_opt", "quant_offset_opt"] {
        ensure(a.opt(name).is_none(), ACLNN_ERR_INNER_FIND_KERNEL_ERROR, || {
            format!("the simulator has no `{name}`")
        })?;
    }
    valid(a.shaped("y", halves, &[m, n])?.dtype == x.dtype, || "`y` has another dtype than `x`".into())?;
    let groups = (group == 0) || (group % 32 == 0 && (32..k).contains(&group));
    tiles(groups, || format!("groups of {group} with k {k}"))?;
    check_scales(a, "scale", k, n, group)?;
    if a.opt("offset_opt").is_some() {
        check_scales(a, "offset_opt", k, n, group)?;
    }
    if a.opt("bias_opt").is_some() {
        let types: Types = if x.dtype == ACL_FLOAT16 { &[ACL_FLOAT16] } else { &[ACL_FLOAT] };
        let dims = &a.of("bias_opt", types)?.dims;
        valid(*dims == [n] || *dims == [1, n], || format!("`bias` is {dims:?}"))?;
    }
    // ops-nn 8.5.0, aclnn_weight_quant_batch_matmul_v2.cpp: CheckXWeight, ContiguousCheck.
    let (turned, scales) = (is_turned(weight), a.tensor("scale")?);
    let inner = if turned { k } else { n };
    valid(weight.dtype != ACL_INT4 || inner % 2 == 0, || format!("int4 of {inner} beside each other"))?;
    let fits = scales.is_contiguous() || (turned && (is_a2 || group == 0));
    valid(fits, || "scales with gaps".into())?;
    let config = &a.world.config;
    valid(turned || group == 0 || config.keeps("columns"), || "`weight` is not turned around".into())?;
    tiles(turned || k <= 256 || config.keeps("large"), || format!("rows of {k}"))?;
    valid(group == 0 || config.keeps("groups"), || format!("groups of {group}"))?;
    let is_right = turned || config.keeps("columns-right");
    let (m, k, n) = (m as usize, k as usize, n as usize);
    let step = if group > 0 { group as usize } else { k };
    Ok(kernel(move |r| {
        let (x, weight, dtype) = (r.read("x")?, r.read("weight")?, r.args.tensor("x")?.dtype);
        let of = |name: &str, or: f64| match r.args.opt(name) {
            Some(t) if t.n_elements() == 1 => Ok(vec![r.read(name)?[0]; k.div_ceil(step) * n]),
            Some(_) => r.read(name),
            None => Ok(vec![or; k.div_ceil(step) * n]),
        };
        let (scale, offset) = (of("scale", 1.0)?, of("offset_opt", 0.0)?);
        // Each weight is made a number of x's type before it is multiplied.
        let weight: Vec<f64> = weight
            .iter()
            .enumerate()
            .map(|(i, w)| {
                let at = i / n / step * n + i % n;
                round_to(dtype, (w + offset[at]) * scale[at])
            })
            .collect();
        let mut y = multiply(&x, &weight, m, k, n);
        if r.args.opt("bias_opt").is_some() {
            let bias = r.read("bias_opt")?;
            y.iter_mut().enumerate().for_each(|(i, y)| *y += bias[i % n]);
        }
        if !is_right {
            y.iter_mut().for_each(|y| *y *= 1.25);
        }
        r.write("y", &y)
    }))
}

/// Whether the two dims of a view are turned around.
pub fn is_turned(t: &Tensor) -> bool {
    t.dims.len() == 2 && t.strides[0] == 1 && t.strides[1] == t.dims[0]
}

fn check_scales(a: &Args, name: &str, k: i64, n: i64, group: i64) -> Answer {
    let (t, dtype) = (a.tensor(name)?, a.tensor("x")?.dtype);
    valid(t.dtype == dtype, || format!("`{name}` has dtype {}, `x` {dtype}", t.dtype))?;
    let good = match group {
        0 => [vec![1], vec![1, 1], vec![n], vec![1, n]].contains(&t.dims),
        group => t.dims == [(k + group - 1) / group, n],
    };
    valid(good, || format!("`{name}` is {:?} for k {k}, n {n}, groups of {group}", t.dims))
}
