//! Q8_0: d F16, 32 signed bytes, q · d. The bytes are made unsigned by adding 128.

use super::{Format, Group, transpose_32};
use crate::simd::Simd;
use llmrt_plugin::DType;

/// q · d.
pub enum Q8_0 {}

impl Format for Q8_0 {
    const DTYPE: DType = DType::Q8_0;
    const OFFSET: i32 = 128;
    const GROUPS: usize = 1;
    type Group = Group<1, 0, true>;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: &[u8], stride: usize, out: &mut [Self::Group]) {
        let out = &mut out[0];
        let flip = s.splat_i(0x8080_8080_u32 as i32);
        let q = transpose_32(s, &rows[2..], stride);
        for (q, to) in q.into_iter().zip(&mut out.q) {
            s.store_b(s.xor(q, flip), to);
        }
        s.store(s.gather_f16(rows, stride), &mut out.d[0]);
    }
}
