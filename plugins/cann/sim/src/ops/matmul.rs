//! Matrix products. `cube_math` sets how F32 inputs may be rounded: 0 and 4 not at all, 1 as the chip chooses (10
//! bits of fraction on A2, F16 on 310P), 2 to F16, 3 to 10 bits. On chips with products of F32, 2 also makes the result
//! F16, whatever `out` is; on others `out` keeps its own type (SetMmSupportDType in matmul_util.cpp of ops-nn, 8.5 to 9.1).
//! Products of several 16-bit matrices have results of that type first, but for [`crate::release::Release::has_wide_batches`].
//! A weight of the layout FRACTAL_NZ gives the result its own type, but for [`crate::release::Release::has_wide_nz`].

use super::check::*;
use super::*;
use crate::args::Args;
use crate::fault::Answer;
use crate::number::round_to;
use crate::plan::Kernel;
use crate::tensor::Tensor;
use crate::view::broadcast;

ops! { cann_nn;
    #[cube] aclnnMm(x: In, mat2: In, out: Out, cube_math: i8) "PbN" => |a| {
        ranks(a, 2..=2)?;
        product(a)
    };
    #[cube] aclnnBatchMatMul(x: In, mat2: In, out: Out, cube_math: i8) "PbN" => |a| {
        ranks(a, 3..=3)?;
        product(a)
    };
    #[cube] aclnnMatmul(x: In, mat2: In, out: Out, cube_math: i8) "PbN" => |a| {
        ranks(a, 2..=6)?;
        product(a)
    };
}

fn ranks(a: &Args, allowed: std::ops::RangeInclusive<usize>) -> Answer {
    ["x", "mat2"].iter().try_for_each(|name| {
        let rank = a.tensor(name)?.dims.len();
        valid(allowed.contains(&rank), || format!("`{name}` has {rank} dims, expected {allowed:?}"))
    })
}

/// What happens to an element on its way in.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rounding {
    Keep,
    Half,
    /// 10 bits of fraction at F32's range.
    Tf32,
}

fn rounding(a: &Args, dtype: aclDataType) -> Answer<Rounding> {
    let (mode, full) = (a.int("cube_math")?, a.world.chip.f32_products);
    valid((0..=4).contains(&mode), || format!("cube_math {mode}"))?;
    valid(mode != 2 || dtype != ACL_BF16, || "cube_math 2 with BF16".into())?;
    let refused = dtype == ACL_FLOAT && !full && matches!(mode, 0 | 3 | 4);
    valid(!refused, || format!("cube_math {mode} with F32 on this chip"))?;
    Ok(match (mode, dtype) {
        (1, ACL_FLOAT) if !full => Rounding::Half,
        (1 | 3, ACL_FLOAT) => Rounding::Tf32,
        (2, ACL_FLOAT) => Rounding::Half,
        _ => Rounding::Keep,
    })
}

fn product(a: &Args) -> Answer<Kernel> {
    let (x, mat2) = (a.of("x", FLOATS)?, a.of("mat2", FLOATS)?);
    let out = a.whole("out")?;
    let mixed = (x.dtype == ACL_BF16) != (mat2.dtype == ACL_BF16);
    valid(!mixed, || format!("dtypes {} and {}", x.dtype, mat2.dtype))?;
    let (rank_x, rank_b) = (x.dims.len(), mat2.dims.len());
    let (m, k) = (x.dims[rank_x - 2], x.dims[rank_x - 1]);
    let (k2, n) = (mat2.dims[rank_b - 2], mat2.dims[rank_b - 1]);
    valid(k == k2, || format!("{:?} · {:?}", x.dims, mat2.dims))?;
    let batch = &out.dims[..out.dims.len().saturating_sub(2)];
    valid(out.dims.ends_with(&[m, n]) && batch.len() + 2 == rank_x.max(rank_b), || {
        format!("`out` is {:?}", out.dims)
    })?;
    valid(FLOATS.contains(&out.dtype), || format!("`out` has dtype {}", out.dtype))?;
    let with = |rows: i64, cols: i64| batch.iter().copied().chain([rows, cols]).collect::<Vec<_>>();
    let (dims_x, dims_b) = (with(m, k), with(k, n));
    broadcast(x, &dims_x)?;
    if mat2.format == ACL_FORMAT_FRACTAL_NZ {
        super::nz::check_storage(mat2)?;
        tiles(k <= 256 || a.world.config.keeps("large"), || format!("rows of {k}"))?;
        valid(batch.is_empty() || dims_b == mat2.dims, || "a layout of blocks that broadcasts".into())?;
    } else {
        broadcast(mat2, &dims_b)?;
    }
    let (round_x, round_b) = (rounding(a, x.dtype)?, rounding(a, mat2.dtype)?);
    let round_out = rounded_to(a, x.dtype, mat2, out.dtype)?;
    let is_right = mat2.format != ACL_FORMAT_FRACTAL_NZ || a.world.config.keeps("nz-right");
    let (m, k, n) = (m as usize, k as usize, n as usize);
    Ok(kernel(move |r| {
        let mut x = r.read_as("x", &dims_x)?;
        let nz = r.args.tensor("mat2")?.format == ACL_FORMAT_FRACTAL_NZ;
        let mut b = if nz { r.read("mat2")? } else { r.read_as("mat2", &dims_b)? };
        round(&mut x, round_x);
        round(&mut b, round_b);
        let mut y = multiply(&x, &b, m, k, n);
        if let Some(dtype) = round_out {
            y.iter_mut().for_each(|y| *y = round_to(dtype, *y));
        }
        if !is_right {
            y.iter_mut().for_each(|y| *y *= 1.25);
        }
        r.write("out", &y)
    }))
}

/// The type that results have before they become `out`'s.
fn rounded_to(a: &Args, x: aclDataType, mat2: &Tensor, out: aclDataType) -> Answer<Option<aclDataType>> {
    let (chip, config) = (&a.world.chip, &a.world.config);
    let (alike, wide) = (x == mat2.dtype && x != ACL_FLOAT, out == ACL_FLOAT);
    if mat2.format == ACL_FORMAT_FRACTAL_NZ {
        let keeps = config.release.has_wide_nz() && chip.is_a2() && alike && wide;
        return Ok((keeps != config.keeps("nz-out")).then_some(mat2.dtype));
    }
    if a.int("cube_math")? == 2 && x != ACL_BF16 {
        return Ok((chip.f32_products == config.keeps("use-fp16")).then_some(ACL_FLOAT16));
    }
    if a.tensor("out")?.dims.len() > 2 {
        let keeps = config.release.has_wide_batches() || !chip.is_a2();
        return Ok((alike && keeps != config.keeps("batch-out")).then_some(x));
    }
    let rule = if x == ACL_BF16 { "bf16-out" } else { "f16-out" };
    Ok((alike && !config.keeps(rule)).then_some(x))
}

fn round(values: &mut [f64], how: Rounding) {
    let one = |v: f64| match how {
        Rounding::Keep => v,
        Rounding::Half => round_to(ACL_FLOAT16, v),
        // Half of the lowest kept bit is added, and what is below cut off.
        Rounding::Tf32 => f32::from_bits(((v as f32).to_bits() + 0x1000) & !0x1fff).into(),
    };
    if how != Rounding::Keep {
        values.iter_mut().for_each(|v| *v = one(*v));
    }
}

/// [m, k] · [k, n], as often as there are matrices. Sums are F32.
pub fn multiply(x: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    if m * n == 0 {
        return Vec::new();
    }
    if k == 0 {
        return vec![0.0; m * n];
    }
    let mut out = vec![0.0; x.len() / k * n];
    for (i, row) in out.chunks_exact_mut(n).enumerate() {
        let mut sums = vec![0f32; n];
        let b = &b[i / m * k * n..][..k * n];
        for (x, b) in x[i * k..][..k].iter().zip(b.chunks_exact(n)) {
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += (*x * *b) as f32);
        }
        row.iter_mut().zip(&sums).for_each(|(y, sum)| *y = f64::from(*sum));
    }
    out
}
