//! Lays tensors out in buffers: one after the other, aligned, a new buffer where the largest size is reached. Pure.

/// Where a tensor goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// Which buffer.
    pub buffer: usize,
    /// First byte in it.
    pub offset: u64,
}

/// Slots of tensors of these sizes, and the sizes of the buffers they need.
///
/// `alignment` is a power of two; `max_size` 0 means no limit. A tensor larger than the limit gets a buffer of its
/// own, which the device will refuse in its own words.
pub fn pack(sizes: &[u64], alignment: u64, max_size: u64) -> (Vec<Slot>, Vec<u64>) {
    let limit = if max_size == 0 { u64::MAX } else { max_size };
    let mut buffers: Vec<u64> = Vec::new();
    let mut slots = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let place = buffers.last().map(|&end| end.next_multiple_of(alignment.max(1)));
        let fits = place.filter(|at| at.checked_add(size).is_some_and(|end| end <= limit));
        let offset = fits.unwrap_or_else(|| {
            buffers.push(0);
            0
        });
        let buffer = buffers.len() - 1;
        buffers[buffer] = offset + size;
        slots.push(Slot { buffer, offset });
    }
    (slots, buffers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots as `buffer:offset`, then the buffers' sizes.
    fn check(sizes: &[u64], alignment: u64, max_size: u64, expected: &str) {
        let (slots, buffers) = pack(sizes, alignment, max_size);
        let slots: Vec<_> = slots.iter().map(|s| format!("{}:{}", s.buffer, s.offset)).collect();
        assert_eq!(format!("{} {buffers:?}", slots.join(" ")), expected);
    }

    #[test]
    fn tensors_follow_each_other_at_the_alignment() {
        check(&[10, 64, 1], 64, 0, "0:0 0:64 0:128 [129]");
    }

    #[test]
    fn a_full_buffer_is_followed_by_another() {
        check(&[60, 40, 30], 32, 100, "0:0 1:0 1:64 [60, 94]");
    }

    #[test]
    fn a_tensor_larger_than_any_buffer_stands_alone() {
        check(&[10, 200, 10], 32, 100, "0:0 1:0 2:0 [10, 200, 10]");
    }
}
