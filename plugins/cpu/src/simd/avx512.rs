//! The vector trait on AVX-512: one register.

use super::{RowSet, Simd, array};
use std::arch::x86_64::*;

/// Proof of AVX-512 F, BW, DQ and VL, with AVX2, FMA and F16C; with `VNNI` and `BF16`, of AVX-512 VNNI and BF16, too.
#[derive(Clone, Copy, Debug)]
pub struct Level<const VNNI: bool, const BF16: bool>(());

/// Bytes are multiplied in pairs.
pub type Avx512 = Level<false, false>;
/// Bytes are multiplied four at a time.
pub type Avx512Vnni = Level<true, false>;
/// The same, and bfloat16 numbers two at a time.
pub type Avx512Bf16 = Level<true, true>;

impl<const VNNI: bool, const BF16: bool> Level<VNNI, BF16> {
    /// # Safety
    /// The machine has the instruction sets named above.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Level(())
    }
}

/// Methods of one expression.
macro_rules! methods {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $ty),*) $(-> $ret)? {
            // SAFETY: a value of this type proves the instruction set; memory operands are arrays of the right size, or masked.
            unsafe { $body }
        }
    )*};
}

/// The first `n` lanes.
#[inline(always)]
fn first(n: usize) -> __mmask16 {
    assert!(n <= 16, "{n} numbers for 16 lanes");
    ((1u32 << n) - 1) as __mmask16
}

impl<const VNNI: bool, const BF16: bool> Simd for Level<VNNI, BF16> {
    type F = __m512;
    type I = __m512i;
    /// Sums of pairs in 16 bits; with `VNNI`, of four in 32.
    type Run = __m512i;
    const CENTRE: i32 = if VNNI { 0 } else { 128 };
    const WIDE: bool = true;
    const BY_WORDS: bool = !VNNI;

    methods! {
        fn splat(v: f32) -> __m512 = _mm512_set1_ps(v);
        fn load(v: &[f32; 16]) -> __m512 = _mm512_loadu_ps(v.as_ptr());
        fn store(v: __m512, to: &mut [f32; 16]) = _mm512_storeu_ps(to.as_mut_ptr(), v);
        fn load_part(v: &[f32]) -> __m512 = _mm512_maskz_loadu_ps(first(v.len()), v.as_ptr());
        fn store_part(v: __m512, to: &mut [f32]) = _mm512_mask_storeu_ps(to.as_mut_ptr(), first(to.len()), v);
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        fn above(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), y, x);
        fn ldexp(v: __m512, n: __m512i) -> __m512 = _mm512_scalef_ps(v, _mm512_cvtepi32_ps(n));
        fn sum(v: __m512) -> f32 = sum(v);
        fn sums(v: [__m512; 16]) -> __m512 = sums(v);
        fn peak(v: __m512) -> f32 = _mm512_reduce_max_ps(v);
        fn round(v: __m512) -> __m512i = _mm512_cvtps_epi32(v);
        fn float(v: __m512i) -> __m512 = _mm512_cvtepi32_ps(v);
        fn bits(v: __m512) -> __m512i = _mm512_castps_si512(v);
        fn from_bits(v: __m512i) -> __m512 = _mm512_castsi512_ps(v);

        fn splat_i(v: i32) -> __m512i = _mm512_set1_epi32(v);
        fn load_b(v: &[u8; 64]) -> __m512i = _mm512_loadu_si512(v.as_ptr().cast());
        fn store_b(v: __m512i, to: &mut [u8; 64]) = _mm512_storeu_si512(to.as_mut_ptr().cast(), v);
        fn add_i(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        fn sub_i(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        fn mul_i(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        fn and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        fn or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        fn xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        fn shl(a: __m512i, n: u32) -> __m512i = _mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn shr(a: __m512i, n: u32) -> __m512i = _mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32));
        fn begin(acc: __m512i) -> __m512i = if VNNI { acc } else { _mm512_setzero_si512() };
        fn dot4(run: __m512i, u: __m512i, i: __m512i) -> __m512i = match VNNI {
            true => _mm512_dpbusd_epi32(run, u, i),
            false => _mm512_add_epi16(run, _mm512_maddubs_epi16(u, i)),
        };
        fn end(run: __m512i, acc: __m512i) -> __m512i = if VNNI { run } else { add_pairs(acc, run) };
        fn dot4_full(acc: __m512i, u: __m512i, i: __m512i) -> __m512i = match VNNI {
            true => _mm512_dpbusd_epi32(acc, u, i),
            false => dot4_centred(acc, u, i),
        };
        fn dot2_words(acc: __m512i, u: __m512i, i: __m512i) -> __m512i =
            _mm512_add_epi32(acc, _mm512_madd_epi16(u, i));
        fn lut(table: &[u8; 16], index: __m512i) -> __m512i =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), index);

        fn zip_strip(columns: [&[u8; 64]; 4], k: usize) -> __m512i = {
            let column = |i: usize| _mm512_loadu_si512(columns[i].as_ptr().cast());
            let (a, b, c, d) = (column(0), column(1), column(2), column(3));
            let (ab, cd) = match k {
                0 | 1 => (_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d)),
                _ => (_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d)),
            };
            if k & 1 == 0 { _mm512_unpacklo_epi16(ab, cd) } else { _mm512_unpackhi_epi16(ab, cd) }
        };
        fn halves(v: __m512i) -> __m512 = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
        fn load_f16(v: &[u8; 32]) -> __m512 = _mm512_cvtph_ps(_mm256_loadu_si256(v.as_ptr().cast()));
        fn store_f16(v: __m512, to: &mut [u8; 32]) = _mm256_storeu_si256(
            to.as_mut_ptr().cast(),
            _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v),
        );
        fn splat_f16(bits: u16) -> __m512 = _mm512_cvtph_ps(_mm256_set1_epi16(bits as i16));
        fn load_u16(v: &[u8; 32]) -> __m512i = _mm512_cvtepu16_epi32(_mm256_loadu_si256(v.as_ptr().cast()));
        fn load_i8(v: &[u8; 16]) -> __m512i = _mm512_cvtepi8_epi32(_mm_loadu_si128(v.as_ptr().cast()));
        fn store_i8(v: __m512i, to: &mut [u8; 16]) =
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(v));
    }

    #[inline(always)]
    fn scaled_nibbles(self, v: __m512i, d: __m512) -> __m512 {
        const NUMBERS: [f32; 16] = [-8., -7., -6., -5., -4., -3., -2., -1., 0., 1., 2., 3., 4., 5., 6., 7.];
        let products = self.fma(self.load(&NUMBERS), d, self.zero());
        // SAFETY: the features are proven by `self`; of an index the low four bits count.
        unsafe { _mm512_permutexvar_ps(v, products) }
    }

    #[inline(always)]
    fn dot2_bf16(self, a: __m512i, b: __m512i, acc: __m512) -> __m512 {
        if !BF16 {
            return super::dot2_bf16_by_halves(self, a, b, acc);
        }
        // SAFETY: `BF16` proves the instruction; the casts change the type of 64 bytes.
        unsafe {
            _mm512_dpbf16_ps(
                acc,
                std::mem::transmute::<__m512i, __m512bh>(a),
                std::mem::transmute::<__m512i, __m512bh>(b),
            )
        }
    }

    #[inline(always)]
    fn transpose(self, rows: &[u8], stride: usize) -> [__m512i; 4] {
        assert!(15 * stride + 16 <= rows.len(), "16 rows {stride} apart in {} bytes", rows.len());
        // SAFETY: the assertion covers the last of the loads; the features are proven by `self`.
        unsafe { transpose(array(|r| rows.as_ptr().wrapping_add(r * stride))) }
    }

    #[inline(always)]
    fn transpose_set(self, rows: &RowSet<'_>, at: usize) -> [__m512i; 4] {
        // SAFETY: each row has 16 bytes there; the features are proven by `self`.
        unsafe { transpose(rows.pointers(at, 16)) }
    }

    #[inline(always)]
    fn gather_f16(self, rows: &[u8], stride: usize) -> __m512 {
        assert!(15 * stride + 2 <= rows.len(), "16 rows {stride} apart in {} bytes", rows.len());
        let rows = array(|r| rows.as_ptr().wrapping_add(r * stride));
        // SAFETY: the assertion covers the last of the loads; the features are proven by `self`.
        unsafe { _mm512_cvtph_ps(super::avx2::gather_u16(rows)) }
    }

    #[inline(always)]
    fn gather_f16_set(self, rows: &RowSet<'_>, at: usize) -> __m512 {
        // SAFETY: each row has two bytes there; the features are proven by `self`.
        unsafe { _mm512_cvtph_ps(super::avx2::gather_u16(rows.pointers(at, 2))) }
    }
}

/// # Safety
/// AVX-512 BW.
#[inline(always)]
unsafe fn add_pairs(acc: __m512i, pairs: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe { _mm512_add_epi32(acc, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1))) }
}

/// acc + Σ (u - 128)·i over the four bytes of each lane. With w = u - 128, w·i = |w| · (i with the sign of w), and 2 · 128 · 127
/// fits 16 bits.
///
/// # Safety
/// AVX-512 BW.
#[inline(always)]
unsafe fn dot4_centred(acc: __m512i, u: __m512i, i: __m512i) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let w = _mm512_xor_si512(u, _mm512_set1_epi8(-128));
        let signed = _mm512_mask_sub_epi8(i, _mm512_movepi8_mask(w), _mm512_setzero_si512(), i);
        add_pairs(acc, _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed))
    }
}

/// # Safety
/// AVX-512 F and DQ.
#[inline(always)]
unsafe fn sum(v: __m512) -> f32 {
    // SAFETY: the caller's promise.
    unsafe { super::avx2::sum8(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v))) }
}

/// 16 bytes of rows 0, 4, 8 and 12. A function, since a closure would not always be inlined.
///
/// # Safety
/// AVX-512 F; 16 bytes of each of these rows are readable.
#[inline(always)]
unsafe fn every_fourth_row(rows: [*const u8; 16], first: usize) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let row = |i: usize| _mm_loadu_si128(rows[first + 4 * i].cast());
        let v = _mm512_castsi128_si512(row(0));
        let v = _mm512_inserti32x4::<1>(v, row(1));
        let v = _mm512_inserti32x4::<2>(v, row(2));
        _mm512_inserti32x4::<3>(v, row(3))
    }
}

/// The sums of 16 vectors: their halves added, four vectors' quarters, and so on, in the order of [`sum`].
///
/// # Safety
/// AVX-512 F.
#[inline(always)]
unsafe fn sums(v: [__m512; 16]) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        // One half for each of two vectors, four apart.
        let mut halves = [_mm512_setzero_ps(); 8];
        for i in 0..8 {
            let (a, b) = (v[i % 4 + i / 4 * 8], v[i % 4 + i / 4 * 8 + 4]);
            halves[i] = _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
        }
        // One quarter for each of four.
        let mut quarters = [_mm512_setzero_ps(); 4];
        for i in 0..4 {
            let (a, b) = (halves[i], halves[i + 4]);
            quarters[i] =
                _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b));
        }
        // Two lanes of each quarter for each of eight.
        let mut pairs = [_mm512_setzero_ps(); 2];
        for i in 0..2 {
            let (a, b) = (quarters[2 * i], quarters[2 * i + 1]);
            pairs[i] = _mm512_add_ps(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xee>(a, b));
        }
        let [a, b] = pairs;
        _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b))
    }
}

/// # Safety
/// AVX-512 F; 16 bytes of each row are readable.
#[inline(always)]
unsafe fn transpose(rows: [*const u8; 16]) -> [__m512i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        // After the 4x4 transposition within each quarter, lane r is row r.
        let (a, b) = (every_fourth_row(rows, 0), every_fourth_row(rows, 1));
        let (c, d) = (every_fourth_row(rows, 2), every_fourth_row(rows, 3));
        let (ab_low, ab_high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (cd_low, cd_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(ab_low, cd_low),
            _mm512_unpackhi_epi64(ab_low, cd_low),
            _mm512_unpacklo_epi64(ab_high, cd_high),
            _mm512_unpackhi_epi64(ab_high, cd_high),
        ]
    }
}
