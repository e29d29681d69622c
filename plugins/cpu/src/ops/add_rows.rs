//! y += Σᵢ rowᵢ · factorᵢ for a few rows of a matrix, in their order.
//!
//! An element of y is loaded and stored once for all of them, and no row becomes f32 in memory. Bits are those of
//! [`super::out_prod::add_scaled`] for one row after the other, as [`super::rows::read`] gives it.

use super::rows::{F16, Numbers, Q4_0, Q8_0, STEP};
use crate::simd::{Isa, LANES, Simd, dispatch};
use llmrt_plugin::DType;

/// Rows that are added together.
pub const AT_ONCE: usize = 4;

/// How many bytes have the elements of a step; `None` for dtypes without this kernel.
pub fn step_bytes(dtype: DType) -> Option<usize> {
    match dtype {
        DType::F16 => Some(F16::BYTES),
        DType::Q8_0 => Some(Q8_0::BYTES),
        DType::Q4_0 => Some(Q4_0::BYTES),
        _ => None,
    }
}

/// Adds rows of a dtype that has the kernel to `y`, whole steps of elements.
pub fn add_rows(isa: Isa, dtype: DType, rows: [&[u8]; AT_ONCE], factors: [f32; AT_ONCE], y: &mut [f32]) {
    match dtype {
        DType::F16 => add::<F16>(isa, rows, factors, y),
        DType::Q8_0 => add::<Q8_0>(isa, rows, factors, y),
        DType::Q4_0 => add::<Q4_0>(isa, rows, factors, y),
        _ => {}
    }
}

dispatch! {
    fn add<N: Numbers>(rows: [&[u8]; AT_ONCE], factors: [f32; AT_ONCE], y: &mut [f32]) = add_with;
}

#[inline(always)]
fn add_with<S: Simd, N: Numbers>(s: S, rows: [&[u8]; AT_ONCE], factors: [f32; AT_ONCE], y: &mut [f32]) {
    let factors = [s.splat(factors[0]), s.splat(factors[1]), s.splat(factors[2]), s.splat(factors[3])];
    let y = y.as_chunks_mut::<STEP>().0;
    let n = y.len() * N::BYTES;
    let [a, b, c, d] = rows.map(|row| row[..n].chunks_exact(N::BYTES));
    for ((((y, a), b), c), d) in y.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        let y = y.as_chunks_mut::<LANES>().0;
        let mut sums = [s.load(&y[0]), s.load(&y[1])];
        for (row, factor) in [a, b, c, d].into_iter().zip(factors) {
            let x = N::load(s, row);
            sums = [s.fma(x[0], factor, sums[0]), s.fma(x[1], factor, sums[1])];
        }
        s.store(sums[0], &mut y[0]);
        s.store(sums[1], &mut y[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::{out_prod, rows};

    #[test]
    fn bits_are_those_of_one_row_after_the_other() {
        let mut seed = 7u32;
        let mut byte = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        for isa in Isa::available() {
            for dtype in [DType::F16, DType::Q8_0, DType::Q4_0] {
                let size = step_bytes(dtype).unwrap();
                let n = 7 * STEP;
                let bytes: [Vec<u8>; AT_ONCE] = std::array::from_fn(|_| {
                    let mut row: Vec<u8> = (0..7 * size).map(|_| byte()).collect();
                    // Exponents of small numbers, so that nothing is infinite; zeros and subnormal numbers among them.
                    let every = if dtype == DType::F16 { 2 } else { size };
                    row.iter_mut().skip(1).step_by(every).for_each(|b| *b &= 0b1011_1111);
                    row
                });
                let factors = [0.5, -1.25, 3e-3, 1.0 / 3.0];
                let mut found: Vec<f32> = (0..n).map(|i| (i as f32).sin()).collect();
                let mut expected = found.clone();
                for (row, factor) in bytes.iter().zip(factors) {
                    let mut numbers = vec![0.0; n];
                    rows::decode(isa, dtype, row, &mut numbers);
                    out_prod::add_scaled(isa, &mut expected, &numbers, factor);
                }
                add_rows(isa, dtype, bytes.each_ref().map(|row| &row[..]), factors, &mut found);
                let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&found), bits(&expected), "{isa:?} {dtype}");
            }
        }
    }
}
