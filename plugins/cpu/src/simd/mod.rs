//! Vectors of 16 lanes on every machine: one register of AVX-512, two of AVX2, four of NEON, an array elsewhere.
//!
//! A kernel is written once over [`Simd`] and made callable with [`dispatch!`]. Since the lanes, the fused
//! multiply-adds and the order of sums are the same everywhere, so are the bits of the results.

mod ahead;
mod isa;
pub mod math;
mod row_set;
mod scalar;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "aarch64")]
mod neon_dot;

pub use ahead::{Prefetcher, Stream, prefetch, prefetch_all, prefetch_bytes};
#[cfg(target_arch = "x86_64")]
pub use avx2::{Avx2, AvxVnni};
#[cfg(target_arch = "x86_64")]
pub use avx512::{Avx512, Avx512Bf16, Avx512Vnni};
pub use isa::{Isa, UnknownIsa};
pub(crate) use isa::{Set, dispatch, dispatch_also};
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
#[cfg(target_arch = "aarch64")]
pub use neon_dot::{Dotprod, I8mm, Pairs};
pub use row_set::RowSet;
pub use scalar::{Scalar, f16_to_f32, f32_to_bf16, f32_to_f16};

/// Lanes of a vector.
pub const LANES: usize = 16;

/// The lowest bit of each byte, that of the first byte lowest.
#[inline(always)]
pub(crate) fn lowest_bits(bytes: u64) -> u8 {
    ((bytes & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// `[f(0), f(1), …]`: as the standard library's, but certain to be inlined into a kernel.
#[inline(always)]
pub(crate) fn array<T: Copy, const N: usize>(f: impl Fn(usize) -> T) -> [T; N] {
    let mut all = [f(0); N];
    for (i, v) in all.iter_mut().enumerate().skip(1) {
        *v = f(i);
    }
    all
}

/// [`Simd::dot2_bf16`] where there is no instruction for it.
#[inline(always)]
fn dot2_bf16_by_halves<S: Simd>(s: S, a: S::I, b: S::I, acc: S::F) -> S::F {
    let mask = s.splat_i(0xffff_0000_u32 as i32);
    let high = s.fma(s.from_bits(s.and(a, mask)), s.from_bits(s.and(b, mask)), acc);
    s.fma(s.from_bits(s.shl(a, 16)), s.from_bits(s.shl(b, 16)), high)
}

/// 2ⁿ, n from -126 to 127.
#[inline(always)]
fn power_of_two<S: Simd>(s: S, n: S::I) -> S::F {
    s.from_bits(s.shl(s.add_i(n, s.splat_i(127)), 23))
}

/// Rows of a strip.
pub const STRIP: usize = 64;

/// Which byte of a column of a strip is that of a row, and the other way round: where instructions that zip 16 bytes by 16
/// leave the rows of a panel in their order.
#[inline(always)]
pub const fn in_strip(row: usize) -> usize {
    row % 16 / 4 * 16 + row / 16 * 4 + row % 4
}

/// An instruction set; a value of it is the proof that this machine has it.
///
/// `F` is 16 f32, `I` is 16 i32 or 64 bytes. Integer adds and products wrap.
pub trait Simd: Copy + Send + Sync + 'static {
    /// 16 floats.
    type F: Copy;
    /// 16 integers of 32 bits, or 64 bytes.
    type I: Copy;
    /// Dot products of bytes on their way to 32 bits.
    type Run: Copy;
    /// What [`Simd::dot4_full`] takes off the unsigned bytes: 0, or 128 where bytes are best multiplied as signed ones.
    const CENTRE: i32;
    /// Whether some 30 vectors fit the registers; otherwise about 6 do.
    const WIDE: bool;
    /// Whether bytes are best multiplied as words, where columns are many enough to pay for the conversion.
    const BY_WORDS: bool = false;
    /// Whether kernels have register tiles of several columns or rows. Without, they compute one at a time: the same bits,
    /// from a fraction of the code.
    const TILED: bool = true;

    /// `v` in all lanes.
    fn splat(self, v: f32) -> Self::F;
    /// 16 floats of memory.
    fn load(self, v: &[f32; 16]) -> Self::F;
    /// To memory.
    fn store(self, v: Self::F, to: &mut [f32; 16]);
    /// a + b.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// a - b.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a / b.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// a · b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// a if a > b, otherwise b: b where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// a if a < b, otherwise b: b where either is NaN.
    #[inline(always)]
    fn min(self, a: Self::F, b: Self::F) -> Self::F {
        self.above(b, a, a, b)
    }
    /// x where a > b, otherwise y.
    fn above(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// Sum of the lanes: upper half onto lower half, until one is left.
    fn sum(self, v: Self::F) -> f32;
    /// Nearest integers, ties to even; for values that fit.
    fn round(self, v: Self::F) -> Self::I;
    /// Integers as floats.
    fn float(self, v: Self::I) -> Self::F;
    /// The bits of floats.
    fn bits(self, v: Self::F) -> Self::I;
    /// Floats of bits.
    #[allow(clippy::wrong_self_convention)]
    fn from_bits(self, v: Self::I) -> Self::F;

    /// `v` in all lanes.
    fn splat_i(self, v: i32) -> Self::I;
    /// 64 bytes of memory.
    fn load_b(self, v: &[u8; 64]) -> Self::I;
    /// To memory.
    fn store_b(self, v: Self::I, to: &mut [u8; 64]);
    /// a + b.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// a - b.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// a · b.
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// a & b.
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    /// a | b.
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    /// a ^ b.
    fn xor(self, a: Self::I, b: Self::I) -> Self::I;
    /// a << n in 32-bit lanes.
    fn shl(self, a: Self::I, n: u32) -> Self::I;
    /// a >> n in 32-bit lanes, zeros coming in.
    fn shr(self, a: Self::I, n: u32) -> Self::I;
    /// (q - 8) · d for the low four bits q of each lane; 0 is positive.
    #[inline(always)]
    fn scaled_nibbles(self, v: Self::I, d: Self::F) -> Self::F {
        let q = self.sub_i(self.and(v, self.splat_i(15)), self.splat_i(8));
        self.fma(self.float(q), d, self.zero())
    }
    /// A run of dot products that `acc` is to get. It is as long as the sums of its pairs fit 16 bits:
    /// Σ 2 · max u · max |i| < 2¹⁵.
    fn begin(self, acc: Self::I) -> Self::Run;
    /// One more: Σ u·i over the four bytes of each lane, u from 0 to 127, i from -127 to 127.
    fn dot4(self, run: Self::Run, u: Self::I, i: Self::I) -> Self::Run;
    /// What the run comes to, `acc` being what it began with.
    fn end(self, run: Self::Run, acc: Self::I) -> Self::I;
    /// acc + Σ (u - CENTRE)·i over the four bytes of each lane, u from 0 to 255, i from -127 to 127.
    fn dot4_full(self, acc: Self::I, u: Self::I, i: Self::I) -> Self::I;
    /// acc + Σ u·i over the two words of each lane, u from 0 to 255, i from -127 to 127.
    #[inline(always)]
    fn dot2_words(self, acc: Self::I, u: Self::I, i: Self::I) -> Self::I {
        let (low, sign) = (self.splat_i(0xffff), self.splat_i(0x8000));
        let signed = |word| self.sub_i(self.xor(word, sign), sign);
        let first = self.mul_i(self.and(u, low), signed(self.and(i, low)));
        let second = self.mul_i(self.shr(u, 16), signed(self.shr(i, 16)));
        self.add_i(acc, self.add_i(first, second))
    }
    /// Each byte of `index` (below 16) replaced by that byte of the table.
    fn lut(self, table: &[u8; 16], index: Self::I) -> Self::I;

    /// 16 bytes of each of 16 rows that are `stride` bytes apart; lane r of vector j has bytes 4j.. of row r.
    /// Panics if the rows are not inside `rows`.
    fn transpose(self, rows: &[u8], stride: usize) -> [Self::I; 4];
    /// The same of rows that are anywhere, from byte `at` of each on.
    #[inline(always)]
    fn transpose_set(self, rows: &RowSet<'_>, at: usize) -> [Self::I; 4] {
        self.transpose(rows.bytes::<16>(at).as_flattened(), 16)
    }
    /// Rows 16 · k to 16 · k + 16 of a strip of 64 rows, of which four columns are given; lane r has the four bytes of row
    /// 16 · k + r. `k` is below 4.
    #[inline(always)]
    fn zip_strip(self, columns: [&[u8; STRIP]; 4], k: usize) -> Self::I {
        let mut zipped = [0; 64];
        for (r, lane) in zipped.chunks_exact_mut(4).enumerate() {
            for i in 0..4 {
                lane[i] = columns[i][in_strip(16 * k + r)];
            }
        }
        self.load_b(&zipped)
    }
    /// The F16 number at the start of each of 16 rows that are `stride` bytes apart.
    /// Panics if the rows are not inside `rows`.
    fn gather_f16(self, rows: &[u8], stride: usize) -> Self::F;
    /// The same at byte `at` of rows that are anywhere.
    #[inline(always)]
    fn gather_f16_set(self, rows: &RowSet<'_>, at: usize) -> Self::F {
        self.gather_f16(rows.bytes::<2>(at).as_flattened(), 2)
    }
    /// The low halves of the lanes as F16 numbers.
    fn halves(self, v: Self::I) -> Self::F;
    /// 16 F16 numbers of memory.
    fn load_f16(self, v: &[u8; 32]) -> Self::F;
    /// To memory as F16, rounded to nearest, ties to even.
    fn store_f16(self, v: Self::F, to: &mut [u8; 32]);
    /// An F16 number, given by its bits, in all lanes.
    #[inline(always)]
    fn splat_f16(self, bits: u16) -> Self::F {
        self.splat(f16_to_f32(bits))
    }
    /// 16 unsigned 16-bit numbers of memory.
    fn load_u16(self, v: &[u8; 32]) -> Self::I;
    /// 16 signed bytes of memory.
    fn load_i8(self, v: &[u8; 16]) -> Self::I;
    /// To memory as bytes; the values fit.
    fn store_i8(self, v: Self::I, to: &mut [u8; 16]);

    /// Lanes as pairs of bfloat16 numbers: acc plus the product of the high halves, plus that of the low ones, each rounded
    /// once. Numbers below 2⁻¹²⁶ may count as zeros.
    #[inline(always)]
    fn dot2_bf16(self, a: Self::I, b: Self::I, acc: Self::F) -> Self::F {
        dot2_bf16_by_halves(self, a, b, acc)
    }

    /// Lane r is the sum of the lanes of vector r, each as [`Simd::sum`] makes it.
    #[inline(always)]
    fn sums(self, v: [Self::F; LANES]) -> Self::F {
        self.load(&array(|r| self.sum(v[r])))
    }

    /// 16 zeros.
    #[inline(always)]
    fn zero(self) -> Self::F {
        self.splat(0.0)
    }

    /// At most 16 floats of memory, followed by zeros.
    #[inline(always)]
    fn load_part(self, v: &[f32]) -> Self::F {
        let mut padded = [0.0; LANES];
        padded[..v.len()].copy_from_slice(v);
        self.load(&padded)
    }

    /// The first `to.len()` lanes to memory.
    #[inline(always)]
    fn store_part(self, v: Self::F, to: &mut [f32]) {
        let mut padded = [0.0; LANES];
        self.store(v, &mut padded);
        to.copy_from_slice(&padded[..to.len()]);
    }

    /// 16 bfloat16 numbers of memory.
    #[inline(always)]
    fn load_bf16(self, v: &[u8; 32]) -> Self::F {
        self.from_bits(self.shl(self.load_u16(v), 16))
    }

    /// v · 2ⁿ, rounded once; v from ½ to 2, n from -126 to 200; NaN with any n is NaN.
    #[inline(always)]
    fn ldexp(self, v: Self::F, n: Self::I) -> Self::F {
        // In two factors: one alone would leave the range of exponents.
        let half = self.sub_i(self.shr(self.add_i(n, self.splat_i(1024)), 1), self.splat_i(512));
        let rest = self.sub_i(n, half);
        self.mul(self.mul(v, power_of_two(self, half)), power_of_two(self, rest))
    }

    /// The largest lane; with NaN among them, any.
    #[inline(always)]
    fn peak(self, v: Self::F) -> f32 {
        let mut lanes = [0.0; LANES];
        self.store(v, &mut lanes);
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }
}
