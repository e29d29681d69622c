//! Q8_0: d F16, 32 signed bytes, q · d. The bytes are made unsigned by adding 128.

use super::{Format, Group, Rows, words_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// q · d.
pub enum Q8_0 {}

impl Format for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const OFFSET: i32 = 128;
    const GROUPS: usize = 1;
    const UNITS: &[(usize, usize)] = &[(2, 1), (4, 8)];
    type Group = Group<1, 0, 8>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: impl Rows, out: &mut [Self::Group]) {
        let out = &mut out[0];
        let flip = s.splat_i(0x8080_8080_u32 as i32);
        let q = words_32(s, rows, 2);
        for (q, to) in q.into_iter().zip(&mut out.q) {
            s.store_b(s.xor(q, flip), to);
        }
        s.store(rows.f16(s, 0), &mut out.d[0]);
    }
}
