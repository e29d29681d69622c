//! What products do with numbers beyond F16, and which layouts of weights they take.

use super::{Probe, taken};
use crate::bench::{Bench, plan};
use crate::chip::Family;
use crate::repack;
use crate::stream::CardStream;
use crate::sys::*;
use crate::tune::{self, Kind, Shape};
use half::{bf16, f16};
use llmrt_plugin::Result;

/// Columns of the products: enough for every chip's units.
const K: i64 = 16;
/// Of x and w: the results are 90000, beyond F16.
const FACTOR: f32 = 75.0;
const SMALL: Shape = Shape { k: 256, m: 96, n: 1 };

pub fn report(probe: &Probe<'_>, stream: &mut CardStream) {
    let chip = probe.chip;
    let rounded = if chip.f32_products { "inf" } else { "90000" };
    let in_f32 = ("F32 rows that a product rounds to F16 (aclnnMm)", rounded);
    probe.of(stream, in_f32, |b| product(b, ACL_FLOAT, ACL_FLOAT16, 2, Weight::Plain));
    if chip.f32_products {
        let halves = ("F16 rows, F32 result (aclnnMm)", "90000");
        probe.of(stream, halves, |b| product(b, ACL_FLOAT16, ACL_FLOAT16, 0, Weight::Plain));
    }
    if chip.bf16 {
        let brains = ("BF16 rows and weights, F32 result (aclnnMm)", "90000");
        probe.of(stream, brains, |b| product(b, ACL_BF16, ACL_BF16, 0, Weight::Plain));
    }
    let is_wide = chip.f32_products && probe.runtime.has_wide_products();
    if chip.f32_products {
        let halves =
            ("F16 rows, several matrices, F32 result (aclnnMatmul)", if is_wide { "90000" } else { "inf" });
        probe.of(stream, halves, |b| product(b, ACL_FLOAT16, ACL_FLOAT16, 0, Weight::Several));
        let brains = (
            "BF16 rows, several matrices, F32 result (aclnnMatmul)",
            if is_wide { "90000" } else { "90112" },
        );
        probe.of(stream, brains, |b| product(b, ACL_BF16, ACL_BF16, 0, Weight::Several));
    }
    if !matches!(chip.family, Family::B310 | Family::A910) {
        let nz =
            ("F16 rows, FRACTAL_NZ weights, F32 result (aclnnMm)", if is_wide { "90000" } else { "inf" });
        probe.of(stream, nz, |b| product(b, ACL_FLOAT16, ACL_FLOAT16, 0, Weight::Nz));
        probe.of(stream, ("FRACTAL_NZ weights, transposed (aclnnMm)", "right"), turned);
    }
    if chip.lacks.contains(&"aclnnWeightQuantBatchMatmulV2") {
        return;
    }
    let right = |found: Result<()>| found.map(|()| "right".to_string());
    for kind in [Kind::Int4, Kind::Int8] {
        let bits = if kind == Kind::Int4 { 4 } else { 8 };
        for (other, order) in [(false, "rows"), (true, "columns")] {
            let what =
                format!("weights of {bits} bits in groups, by {order} (aclnnWeightQuantBatchMatmulV2)");
            probe.line(&what, "right", right(tune::check(stream, kind, other, SMALL)));
        }
    }
    probe.of(stream, ("scales of experts without offsets (aclnnGroupedMatmulV4)", "refused"), |b| {
        experts(b, false)
    });
    probe
        .of(stream, ("scales of experts with offsets (aclnnGroupedMatmulV4)", "taken"), |b| experts(b, true));
}

/// What rows are multiplied with.
#[derive(Clone, Copy, PartialEq)]
enum Weight {
    /// A matrix.
    Plain,
    /// A matrix in blocks.
    Nz,
    /// Two matrices, each with rows of its own.
    Several,
}

/// The sum of 16 products of 75 and 75.
fn product(
    bench: &mut Bench<'_, '_>,
    x_type: aclDataType,
    w_type: aclDataType,
    cube_math: i8,
    weight: Weight,
) -> Result<String> {
    let numbers = |dtype: aclDataType, n: i64| {
        let one = match dtype {
            ACL_FLOAT => FACTOR.to_le_bytes().to_vec(),
            ACL_FLOAT16 => f16::from_f32(FACTOR).to_le_bytes().to_vec(),
            _ => bf16::from_f32(FACTOR).to_le_bytes().to_vec(),
        };
        one.repeat(n as usize)
    };
    let ne = if weight == Weight::Several { &[K, K, 2][..] } else { &[K, K] };
    let n: i64 = ne.iter().product();
    let x = bench.tensor(x_type, ne, &numbers(x_type, n))?;
    let w = bench.operand(w_type, ne, &numbers(w_type, n))?;
    let w = if weight == Weight::Nz { bench.call.blocks(&w)? } else { bench.call.tensor(&w)? };
    let result = bench.operand(ACL_FLOAT, ne, &vec![0; 4 * n as usize])?;
    let y = bench.call.tensor(&result)?;
    let planned = match weight {
        Weight::Several => plan!(bench, nn.aclnnMatmul(x, w, y, cube_math))?,
        Weight::Plain | Weight::Nz => plan!(bench, nn.aclnnMm(x, w, y, cube_math))?,
    };
    bench.launch(&planned)?;
    let bytes = bench.read(&result, 4)?;
    Ok(f32::from_le_bytes(std::array::from_fn(|i| bytes[i])).to_string())
}

/// Rows of the unit matrix times a weight in blocks: its numbers, row after row.
fn turned(bench: &mut Bench<'_, '_>) -> Result<String> {
    let (k, m) = (32, 16);
    let halves = |n: i64, f: &dyn Fn(i64) -> i64| -> Vec<u8> {
        (0..n).flat_map(|i| f16::from_f32(f(i) as f32).to_le_bytes()).collect()
    };
    let unit = halves(k * k, &|i| i64::from(i % (k + 1) == 0));
    let x = bench.tensor(ACL_FLOAT16, &[k, k], &unit)?;
    let plain = halves(k * m, &|i| i);
    let w = bench.operand(ACL_FLOAT16, &[k, m], &repack::blocks(&plain, k as usize, m as usize))?;
    let result = bench.operand(ACL_FLOAT16, &[m, k], &[0; 2 * 32 * 16])?;
    let (w, y) = (bench.call.blocks(&w)?, bench.call.tensor(&result)?);
    let planned = plan!(bench, nn.aclnnMm(x, w, y, 0))?;
    bench.launch(&planned)?;
    let bytes = bench.read(&result, 2 * (k * m) as usize)?;
    let found = |i: i64| f16::from_le_bytes([bytes[2 * i as usize], bytes[2 * i as usize + 1]]).to_f32();
    let wrong = (0..k * m).find(|i| found(*i) != (i % m * k + i / m) as f32);
    Ok(match wrong {
        None => "right".into(),
        Some(i) => format!("element {i} is {}, expected {}", found(i), i % m * k + i / m),
    })
}

/// Two experts of 4 bits; the first phase only.
fn experts(bench: &mut Bench<'_, '_>, offsets: bool) -> Result<String> {
    let (k, m, n) = (64, 32, 2);
    let zeros = vec![0; 4 * (k * m * n) as usize];
    let w = bench.operand(ACL_INT4, &[k, m, n], &zeros)?.permute(&[1, 0, 2]);
    let x = bench.operand(ACL_FLOAT16, &[k, 4], &zeros)?;
    let y = bench.operand(ACL_FLOAT16, &[m, 4], &zeros)?;
    let scales = bench.operand(ACL_FLOAT16, &[m, k / 32, n], &zeros)?;
    let counts = bench.tensor(ACL_INT64, &[n], &[2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0])?;
    let mut list = |t| bench.call.tensors(&[t]).map(|t| t.cast_const());
    let (x, w, y, none) = (list(x)?, list(w)?, list(y)?.cast_mut(), std::ptr::null());
    let (offset, scale) = (if offsets { list(scales.clone())? } else { none }, list(scales)?);
    let no_result = std::ptr::null_mut();
    let planned = plan!(
        bench,
        transformer.aclnnGroupedMatmulV4(
            x, w, none, none, none, scale, offset, none, counts, none, none, none, 3, 0, 1, 0, y, no_result,
            no_result
        )
    );
    if let Ok(planned) = &planned {
        bench.launch(planned)?;
    }
    taken(planned)
}
