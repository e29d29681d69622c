//! Mixtures of experts: choosing them, and products of groups of rows with a matrix each.

use super::check::*;
use super::matmul::multiply;
use super::norm::softmax;
use super::*;
use crate::args::Args;
use crate::fault::{Answer, ensure};
use crate::number::round_to;
use crate::plan::Kernel;

ops! { cann_transformer;
    // The numbers of rows run down the columns: choice j of row i is j · rows + i.
    aclnnMoeGatingTopKSoftmax(x: In, finished_opt: In, k: i64, y: Out, expert: Out, row: Out) "" => |a| {
        let (x, k) = (a.of("x", FLOATS)?, a.int("k")?);
        valid(x.dims.len() == 2 && (1..=x.dims[1].min(1024)).contains(&k), || format!("{k} of {:?}", x.dims))?;
        valid(a.opt("finished_opt").is_none(), || "the simulator has no `finished`".into())?;
        let (rows, n, limited) = (x.dims[0] as usize, x.dims[1] as usize, !a.world.chip.bf16);
        valid(!limited || (x.dtype == ACL_FLOAT16 && n.is_multiple_of(16) && n <= 256), || format!("{n} experts on this chip"))?;
        a.shaped("y", &[x.dtype], &[rows as i64, k])?;
        for name in ["expert", "row"] { a.shaped(name, &[ACL_INT32], &[rows as i64, k])?; }
        let k = k as usize;
        Ok(kernel(move |r| {
            let x = r.read("x")?;
            let (mut y, mut expert) = (Vec::new(), Vec::new());
            for row in x.chunks_exact(n) {
                let mut p = row.to_vec();
                softmax(&mut p);
                let mut order: Vec<usize> = (0..n).collect();
                order.sort_by(|i, j| p[*j].total_cmp(&p[*i]));
                y.extend(order[..k].iter().map(|i| p[*i]));
                expert.extend(order[..k].iter().map(|i| *i as f64));
            }
            let place = |i: usize| if limited { 0.0 } else { (i % k * rows + i / k) as f64 };
            r.write("y", &y)?;
            r.write("expert", &expert)?;
            r.write("row", &(0..rows * k).map(place).collect::<Vec<_>>())
        }))
    };
    #[cube] aclnnGroupedMatmulV4(
        x: List, weight: List, bias_opt: List, scale_opt: List, offset_opt: List, antiquant_scale_opt: List,
        antiquant_offset_opt: List, per_token_scale_opt: List, group_list_opt: In, act_in_opt: List,
        act_quant_scale_opt: List, act_quant_offset_opt: List, split_item: i64, group_type: i64, group_list_type: i64,
        act_type: i64, out: List, act_feature_out_opt: List, dyn_quant_scale_out_opt: List,
    ) "" => |a| grouped(a);
}

/// Rows of x in groups, each with its matrix of [experts, k, n]. Rows of no group are left as they were.
fn grouped(a: &Args) -> Answer<Kernel> {
    let lacks = |text: &str| crate::fault::Fault {
        code: ACLNN_ERR_INNER_FIND_KERNEL_ERROR,
        text: format!("the simulator has no {text}"),
    };
    let ([x], [weight], [out]) = (a.list("x")?, a.list("weight")?, a.list("out")?) else {
        return Err(lacks("more than one tensor per list"));
    };
    let plain = a.int("group_type")? == 0 && matches!(a.int("split_item")?, 2 | 3) && a.int("act_type")? == 0;
    let kind = a.int("group_list_type")?;
    ensure(plain && (0..=1).contains(&kind), ACLNN_ERR_INNER_FIND_KERNEL_ERROR, || {
        lacks("groups but of rows").text
    })?;
    let ([m, k], [n_experts, k2, n]) =
        (x.dims[..].try_into().unwrap_or([0, 0]), weight.dims[..].try_into().unwrap_or([0, -1, 0]));
    valid(k == k2 && out.dims == [m, n], || format!("{:?} · {:?} into {:?}", x.dims, weight.dims, out.dims))?;
    tiles(k < 65_536 && n < 65_536 && n_experts <= 1024, || format!("k {k}, n {n}, {n_experts} experts"))?;
    let groups = a.shaped("group_list_opt", &[ACL_INT64], &[n_experts])?;
    valid(groups.is_contiguous() && out.dtype == x.dtype, || "`out` of another dtype".into())?;
    let scale = a.list("antiquant_scale_opt")?.first();
    let per = match (weight.dtype, scale.map(|s| &s.dims[..])) {
        (dtype, None) => {
            valid(dtype == x.dtype, || format!("dtypes {} and {dtype}", x.dtype))?;
            k
        }
        (ACL_INT4, Some([e, g, cols]))
            if (*e, *cols) == (n_experts, n) && *g > 0 && k % g == 0 && k / g % 2 == 0 =>
        {
            k / g
        }
        (ACL_INT4 | ACL_INT8, Some([e, cols])) if (*e, *cols) == (n_experts, n) => k,
        (dtype, scale) => {
            return crate::fault::fault(
                ACLNN_ERR_PARAM_INVALID,
                format!("dtype {dtype} with scales of {scale:?}"),
            );
        }
    };
    if let Some(scale) = scale {
        // ops-transformer 8.5, op_api/aclnn_grouped_matmul.cpp: with antiquantisation the offset must not be NULL.
        let offset = a.list("antiquant_offset_opt")?.first();
        let absent = offset.is_none() && !a.world.config.keeps("offsets");
        valid(
            absent || offset.is_some_and(|offset| (offset.dtype, &offset.dims) == (scale.dtype, &scale.dims)),
            || format!("offsets {offset:?} for scales of {:?}", scale.dims),
        )?;
    }
    let (k, n, per, has_scale) = (k as usize, n as usize, per as usize, scale.is_some());
    Ok(kernel(move |r| {
        let (x, out) = (&r.args.list("x")?[0], &r.args.list("out")?[0]);
        let weight = &r.args.list("weight")?[0];
        let mut at = 0;
        for (e, group) in r.read("group_list_opt")?.into_iter().enumerate() {
            let rows = if kind == 0 { group as i64 - at } else { group as i64 };
            if rows < 0 || at + rows > x.dims[0] {
                return Err(r.fault(&format!("{rows} rows from {at} on, of {}", x.dims[0])));
            }
            if rows == 0 {
                continue;
            }
            let part = |t: &crate::tensor::Tensor, start: i64, n: i64| {
                let mut t = t.clone();
                t.offset += start * t.strides[0];
                t.dims[0] = n;
                t
            };
            let mut w = r.numbers(&part(weight, e as i64, 1))?;
            if has_scale {
                let of = |name: &str| match r.args.list(name)?.first() {
                    Some(t) => r.numbers(&part(t, e as i64, 1)),
                    None => Ok(vec![0.0; k / per * n]),
                };
                let (scale, offset) = (of("antiquant_scale_opt")?, of("antiquant_offset_opt")?);
                for (i, w) in w.iter_mut().enumerate() {
                    let group = i / n / per * n + i % n;
                    *w = round_to(x.dtype, (*w + offset[group]) * scale[group]);
                }
            }
            let y = multiply(&r.numbers(&part(x, at, rows))?, &w, rows as usize, k, n);
            r.write_numbers(&part(out, at, rows), &y)?;
            at += rows;
        }
        Ok(())
    }))
}
