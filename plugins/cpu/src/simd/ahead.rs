//! What kernels ask memory for before they need it.

use super::Simd;

/// What is asked of memory while vectors are multiplied: a bit at each step, as the machine keeps few requests at a time.
pub trait Ahead: Copy {
    /// Asks for what goes with step `i`.
    fn ask<S: Simd>(self, s: S, i: usize);
}

/// Nothing.
impl Ahead for () {
    #[inline(always)]
    fn ask<S: Simd>(self, _s: S, _i: usize) {}
}

/// Bytes that lie in a row, as many at each step.
#[derive(Clone, Copy)]
pub struct Stream {
    /// Where they begin, which may be anywhere.
    pub at: *const u8,
    /// Bytes that go with a step.
    pub each: usize,
}

impl Ahead for Stream {
    #[inline(always)]
    fn ask<S: Simd>(self, s: S, i: usize) {
        for line in (0..self.each).step_by(64) {
            s.prefetch(self.at.wrapping_add(i * self.each + line));
        }
    }
}
