//! The vector trait on AVX2 with FMA and F16C: two registers.

use super::{RowSet, Simd, array};
use std::arch::x86_64::*;

/// Proof of AVX2, FMA and F16C; with `VNNI`, of AVX-VNNI, too.
#[derive(Clone, Copy, Debug)]
pub struct Level<const VNNI: bool>(());

/// Bytes are multiplied in pairs.
pub type Avx2 = Level<false>;
/// Bytes are multiplied four at a time.
pub type AvxVnni = Level<true>;

impl<const VNNI: bool> Level<VNNI> {
    /// # Safety
    /// The machine has the instruction sets named above.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Level(())
    }
}

type F = [__m256; 2];
type I = [__m256i; 2];

/// The first `n` lanes.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn first(n: usize) -> I {
    static LANES: [i32; 32] = {
        let (mut lanes, mut i) = ([0; 32], 0);
        while i < 16 {
            (lanes[i], i) = (-1, i + 1);
        }
        lanes
    };
    let lanes = LANES[16 - n..].as_ptr();
    // SAFETY: 16 numbers are left of the table; the caller has AVX2.
    unsafe { [_mm256_loadu_si256(lanes.cast()), _mm256_loadu_si256(lanes.add(8).cast())] }
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

impl<const VNNI: bool> Simd for Level<VNNI> {
    type F = F;
    type I = I;
    /// Sums of pairs in 16 bits; with `VNNI`, of four in 32.
    type Run = I;
    const CENTRE: i32 = if VNNI { 0 } else { 128 };
    const WIDE: bool = false;
    const BY_WORDS: bool = !VNNI;

    methods! {
        fn splat(v: f32) -> F = [_mm256_set1_ps(v); 2];
        fn load(v: &[f32; 16]) -> F = [_mm256_loadu_ps(v.as_ptr()), _mm256_loadu_ps(v.as_ptr().add(8))];
        fn store(v: F, to: &mut [f32; 16]) = {
            _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
        };
        fn load_part(v: &[f32]) -> F = {
            let (mask, p) = (first(v.len()), v.as_ptr());
            [_mm256_maskload_ps(p, mask[0]), _mm256_maskload_ps(p.wrapping_add(8), mask[1])]
        };
        fn store_part(v: F, to: &mut [f32]) = {
            let (mask, p) = (first(to.len()), to.as_mut_ptr());
            _mm256_maskstore_ps(p, mask[0], v[0]);
            _mm256_maskstore_ps(p.wrapping_add(8), mask[1], v[1]);
        };
        fn add(a: F, b: F) -> F = [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])];
        fn sub(a: F, b: F) -> F = [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])];
        fn mul(a: F, b: F) -> F = [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])];
        fn div(a: F, b: F) -> F = [_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])];
        fn fma(a: F, b: F, c: F) -> F =
            [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])];
        fn max(a: F, b: F) -> F = [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])];
        fn min(a: F, b: F) -> F = [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])];
        fn above(a: F, b: F, x: F, y: F) -> F = [
            _mm256_blendv_ps(y[0], x[0], _mm256_cmp_ps::<_CMP_GT_OQ>(a[0], b[0])),
            _mm256_blendv_ps(y[1], x[1], _mm256_cmp_ps::<_CMP_GT_OQ>(a[1], b[1])),
        ];
        fn sum(v: F) -> f32 = sum8(_mm256_add_ps(v[0], v[1]));
        fn sums(v: [F; 16]) -> F = [sums8(&v[..8]), sums8(&v[8..])];
        fn peak(v: F) -> f32 = peak8(_mm256_max_ps(v[0], v[1]));
        fn round(v: F) -> I = [_mm256_cvtps_epi32(v[0]), _mm256_cvtps_epi32(v[1])];
        fn float(v: I) -> F = [_mm256_cvtepi32_ps(v[0]), _mm256_cvtepi32_ps(v[1])];
        fn bits(v: F) -> I = [_mm256_castps_si256(v[0]), _mm256_castps_si256(v[1])];
        fn from_bits(v: I) -> F = [_mm256_castsi256_ps(v[0]), _mm256_castsi256_ps(v[1])];

        fn splat_i(v: i32) -> I = [_mm256_set1_epi32(v); 2];
        fn load_b(v: &[u8; 64]) -> I =
            [_mm256_loadu_si256(v.as_ptr().cast()), _mm256_loadu_si256(v.as_ptr().add(32).cast())];
        fn store_b(v: I, to: &mut [u8; 64]) = {
            _mm256_storeu_si256(to.as_mut_ptr().cast(), v[0]);
            _mm256_storeu_si256(to.as_mut_ptr().add(32).cast(), v[1]);
        };
        fn add_i(a: I, b: I) -> I = [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])];
        fn sub_i(a: I, b: I) -> I = [_mm256_sub_epi32(a[0], b[0]), _mm256_sub_epi32(a[1], b[1])];
        fn mul_i(a: I, b: I) -> I = [_mm256_mullo_epi32(a[0], b[0]), _mm256_mullo_epi32(a[1], b[1])];
        fn and(a: I, b: I) -> I = [_mm256_and_si256(a[0], b[0]), _mm256_and_si256(a[1], b[1])];
        fn or(a: I, b: I) -> I = [_mm256_or_si256(a[0], b[0]), _mm256_or_si256(a[1], b[1])];
        fn xor(a: I, b: I) -> I = [_mm256_xor_si256(a[0], b[0]), _mm256_xor_si256(a[1], b[1])];
        fn shl(a: I, n: u32) -> I = {
            let n = _mm_cvtsi32_si128(n as i32);
            [_mm256_sll_epi32(a[0], n), _mm256_sll_epi32(a[1], n)]
        };
        fn shr(a: I, n: u32) -> I = {
            let n = _mm_cvtsi32_si128(n as i32);
            [_mm256_srl_epi32(a[0], n), _mm256_srl_epi32(a[1], n)]
        };
        fn begin(acc: I) -> I = if VNNI { acc } else { [_mm256_setzero_si256(); 2] };
        fn dot4(run: I, u: I, i: I) -> I =
            [dot4::<VNNI>(run[0], u[0], i[0]), dot4::<VNNI>(run[1], u[1], i[1])];
        fn end(run: I, acc: I) -> I =
            if VNNI { run } else { [add_pairs(acc[0], run[0]), add_pairs(acc[1], run[1])] };
        fn dot4_full(acc: I, u: I, i: I) -> I =
            [dot4_full::<VNNI>(acc[0], u[0], i[0]), dot4_full::<VNNI>(acc[1], u[1], i[1])];
        fn dot2_words(acc: I, u: I, i: I) -> I = [
            _mm256_add_epi32(acc[0], _mm256_madd_epi16(u[0], i[0])),
            _mm256_add_epi32(acc[1], _mm256_madd_epi16(u[1], i[1])),
        ];
        fn lut(table: &[u8; 16], index: I) -> I = {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, index[0]), _mm256_shuffle_epi8(table, index[1])]
        };

        fn zip_strip(columns: [&[u8; 64]; 4], k: usize) -> I =
            [zip_half(columns, 0, k), zip_half(columns, 32, k)];
        fn halves(v: I) -> F = [halves(v[0]), halves(v[1])];
        fn load_f16(v: &[u8; 32]) -> F = widen(_mm256_loadu_si256(v.as_ptr().cast()));
        fn store_f16(v: F, to: &mut [u8; 32]) = {
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[0]));
            _mm_storeu_si128(to.as_mut_ptr().add(16).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v[1]));
        };
        fn splat_f16(bits: u16) -> F = [_mm256_cvtph_ps(_mm_set1_epi16(bits as i16)); 2];
        fn load_u16(v: &[u8; 32]) -> I = [
            _mm256_cvtepu16_epi32(_mm_loadu_si128(v.as_ptr().cast())),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(v.as_ptr().add(16).cast())),
        ];
        fn load_i8(v: &[u8; 16]) -> I = {
            let v = _mm_loadu_si128(v.as_ptr().cast());
            [_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128::<8>(v))]
        };
        fn store_i8(v: I, to: &mut [u8; 16]) =
            _mm_storeu_si128(to.as_mut_ptr().cast(), _mm_packs_epi16(narrow(v[0]), narrow(v[1])));
    }

    #[inline(always)]
    fn transpose(self, rows: &[u8], stride: usize) -> [I; 4] {
        assert!(15 * stride + 16 <= rows.len(), "16 rows {stride} apart in {} bytes", rows.len());
        // SAFETY: the assertion covers the last of the loads; the features are proven by `self`.
        unsafe { transpose(array(|r| rows.as_ptr().wrapping_add(r * stride))) }
    }

    #[inline(always)]
    fn transpose_set(self, rows: &RowSet<'_>, at: usize) -> [I; 4] {
        // SAFETY: each row has 16 bytes there; the features are proven by `self`.
        unsafe { transpose(rows.pointers(at, 16)) }
    }

    #[inline(always)]
    fn gather_f16(self, rows: &[u8], stride: usize) -> F {
        assert!(15 * stride + 2 <= rows.len(), "16 rows {stride} apart in {} bytes", rows.len());
        // SAFETY: the assertion covers the last of the loads; the features are proven by `self`.
        unsafe { widen(gather_u16(array(|r| rows.as_ptr().wrapping_add(r * stride)))) }
    }

    #[inline(always)]
    fn gather_f16_set(self, rows: &RowSet<'_>, at: usize) -> F {
        // SAFETY: each row has two bytes there; the features are proven by `self`.
        unsafe { widen(gather_u16(rows.pointers(at, 2))) }
    }
}

/// # Safety
/// AVX.
#[inline(always)]
pub(super) unsafe fn sum8(v: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

/// The sums of 8 vectors, in the order of [`sum8`].
///
/// # Safety
/// AVX; there are 8 vectors.
#[inline(always)]
unsafe fn sums8(v: &[F]) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        // One half for each of two vectors.
        let mut halves = [_mm256_setzero_ps(); 4];
        for i in 0..4 {
            let (a, b) = (_mm256_add_ps(v[i][0], v[i][1]), _mm256_add_ps(v[i + 4][0], v[i + 4][1]));
            halves[i] =
                _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b));
        }
        // Two lanes of each half for each of four.
        let mut pairs = [_mm256_setzero_ps(); 2];
        for i in 0..2 {
            let (a, b) = (halves[2 * i], halves[2 * i + 1]);
            pairs[i] = _mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xee>(a, b));
        }
        let [a, b] = pairs;
        _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xdd>(a, b))
    }
}

/// # Safety
/// AVX.
#[inline(always)]
unsafe fn peak8(v: __m256) -> f32 {
    // SAFETY: the caller's promise.
    unsafe {
        let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
        let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
        _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
    }
}

/// # Safety
/// AVX2; 2 bytes of each row are readable.
#[inline(always)]
pub(super) unsafe fn gather_u16(rows: [*const u8; 16]) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let at = |r: usize| rows[r].cast::<i16>().read_unaligned();
        _mm256_setr_epi16(
            at(0),
            at(1),
            at(2),
            at(3),
            at(4),
            at(5),
            at(6),
            at(7),
            at(8),
            at(9),
            at(10),
            at(11),
            at(12),
            at(13),
            at(14),
            at(15),
        )
    }
}

/// 32 bytes of each of four columns, from byte `at` on: part `k` of 4 of them, byte by byte.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn zip_half(columns: [&[u8; 64]; 4], at: usize, k: usize) -> __m256i {
    let [a, b, c, d] = columns.map(|column| column[at..][..32].as_ptr().cast());
    // SAFETY: the caller's promise, and each address has 32 bytes.
    unsafe {
        let (a, b) = (_mm256_loadu_si256(a), _mm256_loadu_si256(b));
        let (c, d) = (_mm256_loadu_si256(c), _mm256_loadu_si256(d));
        let (ab, cd) = match k {
            0 | 1 => (_mm256_unpacklo_epi8(a, b), _mm256_unpacklo_epi8(c, d)),
            _ => (_mm256_unpackhi_epi8(a, b), _mm256_unpackhi_epi8(c, d)),
        };
        if k & 1 == 0 { _mm256_unpacklo_epi16(ab, cd) } else { _mm256_unpackhi_epi16(ab, cd) }
    }
}

/// # Safety
/// F16C and AVX2.
#[inline(always)]
unsafe fn widen(v: __m256i) -> F {
    // SAFETY: the caller's promise.
    unsafe { [_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(v))] }
}

/// # Safety
/// F16C and AVX2.
#[inline(always)]
unsafe fn halves(v: __m256i) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
        let packed = _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256::<1>(low));
        _mm256_cvtph_ps(packed)
    }
}

/// 8 numbers that fit bytes, as 16-bit numbers.
///
/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn narrow(v: __m256i) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe { _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v)) }
}

/// # Safety
/// AVX2; with `VNNI`, AVX-VNNI.
#[inline(always)]
unsafe fn dot4<const VNNI: bool>(run: __m256i, u: __m256i, i: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        match VNNI {
            true => _mm256_dpbusd_avx_epi32(run, u, i),
            false => _mm256_add_epi16(run, _mm256_maddubs_epi16(u, i)),
        }
    }
}

/// # Safety
/// AVX2.
#[inline(always)]
unsafe fn add_pairs(acc: __m256i, pairs: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))) }
}

/// # Safety
/// AVX2; with `VNNI`, AVX-VNNI.
#[inline(always)]
unsafe fn dot4_full<const VNNI: bool>(acc: __m256i, u: __m256i, i: __m256i) -> __m256i {
    if VNNI {
        // SAFETY: the caller's promise.
        return unsafe { _mm256_dpbusd_avx_epi32(acc, u, i) };
    }
    // SAFETY: the caller's promise. With w = u - 128, w·i = |w| · (i with the sign of w), and 2 · 128 · 127 fits 16 bits.
    unsafe {
        let w = _mm256_xor_si256(u, _mm256_set1_epi8(-128));
        add_pairs(acc, _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(i, w)))
    }
}

/// Lane r of vector j has bytes 4j.. of row r.
///
/// # Safety
/// AVX2; 16 bytes of each row are readable.
#[inline(always)]
unsafe fn transpose(rows: [*const u8; 16]) -> [I; 4] {
    // SAFETY: the caller's promise.
    let (a, b) = unsafe { (transpose_8(rows, 0), transpose_8(rows, 8)) };
    array(|j| [a[j], b[j]])
}

/// The same of the 8 rows from `first` on.
///
/// # Safety
/// AVX2; 16 bytes of each of these rows are readable.
#[inline(always)]
unsafe fn transpose_8(rows: [*const u8; 16], first: usize) -> [__m256i; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let row = |r: usize| _mm_loadu_si128(rows[first + r].cast());
        let half = |i: usize| _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(i)), row(i + 4));
        let (a, b, c, d) = (half(0), half(1), half(2), half(3));
        let (ab_low, ab_high) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (cd_low, cd_high) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(ab_low, cd_low),
            _mm256_unpackhi_epi64(ab_low, cd_low),
            _mm256_unpacklo_epi64(ab_high, cd_high),
            _mm256_unpackhi_epi64(ab_high, cd_high),
        ]
    }
}
