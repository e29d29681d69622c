//! Working memory of a stream: one piece per thread and one for the team. It grows and is kept.

use bytemuck::{Pod, Zeroable};
use std::cell::UnsafeCell;

/// A cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory that grows and is handed out as slices of numbers.
#[derive(Default)]
pub struct Arena {
    lines: Vec<Line>,
}

impl Arena {
    /// `n` numbers, with whatever is there.
    pub fn take<T: Pod>(&mut self, n: usize) -> &mut [T] {
        let n_bytes = n * size_of::<T>();
        self.grow(n_bytes);
        bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<_, u8>(&mut self.lines)[..n_bytes])
    }

    /// `n` numbers that are zero.
    pub fn zeroed(&mut self, n: usize) -> &mut [f32] {
        let floats = self.take(n);
        floats.fill(0.0);
        floats
    }

    fn grow(&mut self, bytes: usize) {
        let n = bytes.div_ceil(64);
        if self.lines.len() < n {
            self.lines.resize(n, Line([0; 64]));
        }
    }
}

/// Working memory of one thread; what each piece is for is the op's choice.
#[derive(Default)]
pub struct Scratch {
    /// Unpacked weights.
    pub panel: Arena,
    /// Columns of a product in words, or one after the other.
    pub activations: Arena,
    /// Rows that need padding.
    pub rows: Arena,
    /// Sums.
    pub sums: Arena,
    /// Activations of few columns, quantised: what a product leaves to the next; no other code writes it.
    pub x: Arena,
    /// The same, packed.
    pub packed: Arena,
    /// Columns of a product.
    pub columns: Vec<crate::ops::Column>,
    /// First query of each sequence, in order.
    pub starts: Arena,
    /// Slots of the keys that a query chose.
    pub slots: Arena,
    /// Rows of weights that were picked, or their numbers, and their products.
    pub gathered: [Arena; 2],
    /// More floats, for attention and rope.
    pub floats: [Arena; 6],
}

/// Working memory of the team.
#[derive(Default)]
pub struct Shared(UnsafeCell<Arena>);

// SAFETY: access goes through `reserve`, which has the only reference, and the unsafe slices below.
unsafe impl Sync for Shared {}

impl Shared {
    /// Makes room before the team starts.
    pub fn reserve(&mut self, bytes: usize) {
        self.0.get_mut().grow(bytes);
    }

    fn lines(&self) -> (*mut u8, usize) {
        // SAFETY: the arena does not grow during a run, so its vector is only read.
        let lines = unsafe { &(*self.0.get()).lines };
        (lines.as_ptr().cast_mut().cast(), lines.len() * 64)
    }

    /// `n` numbers from the start, to read.
    ///
    /// # Safety
    /// All writes were followed by a barrier, and none happen until the next one.
    pub unsafe fn get<T: Pod>(&self, n: usize) -> &[T] {
        let (ptr, len) = self.lines();
        assert!(n * size_of::<T>() <= len, "the plan reserved {len} bytes");
        // SAFETY: in bounds by the assertion, aligned to 64, any bits are values; the caller orders the accesses.
        unsafe { std::slice::from_raw_parts(ptr.cast(), n) }
    }

    /// Numbers `part`, to write.
    ///
    /// # Safety
    /// No other thread uses them until the next barrier.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn part_mut<T: Pod>(&self, part: std::ops::Range<usize>) -> &mut [T] {
        let (ptr, len) = self.lines();
        assert!(part.end * size_of::<T>() <= len, "the plan reserved {len} bytes");
        // SAFETY: in bounds by the assertion, aligned to 64, any bits are values; the caller is the only user.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast::<T>().add(part.start), part.len()) }
    }
}
