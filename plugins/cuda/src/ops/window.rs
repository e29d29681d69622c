//! Windows that slide over dims: how many positions they have, and how they are passed to kernels.

use super::check::ensure;
use crate::call::Args;
use llmrt_plugin::Reason;

/// `size` taps, `dilation` apart, that move on by `stride` over a dim with `pad` elements more at both ends.
#[derive(Clone, Copy)]
pub struct Window {
    pub size: usize,
    pub stride: usize,
    pub pad: usize,
    pub dilation: usize,
}

impl Window {
    /// Sees each element alone: the window of a dim that is not there.
    const ONE: Window = Window { size: 1, stride: 1, pad: 0, dilation: 1 };

    /// Its positions on `n` elements; a window longer than the padded dim is refused.
    pub fn n_out(&self, n: usize) -> Result<usize, Reason> {
        let Window { size, stride, pad, dilation } = *self;
        ensure(stride > 0 && dilation > 0, Reason::Param)?;
        // A kernel without taps: its shape is wrong. Pools, whose size is a param, check it before.
        ensure(size > 0, Reason::Shape)?;
        let reach = (size - 1).checked_mul(dilation).and_then(|reach| reach.checked_add(1));
        let padded = n.checked_add(2 * pad).ok_or(Reason::Shape)?;
        let reach = reach.filter(|reach| *reach <= padded).ok_or(Reason::Shape)?;
        Ok((padded - reach) / stride + 1)
    }
}

/// Windows of three dims.
pub struct Windows([Window; 3]);

/// How a kernel moves in its first D dims; the others are not there.
pub fn windows<const D: usize>(
    kernel: [usize; 4],
    stride: [u32; D],
    pad: [u32; D],
    dilation: [u32; D],
) -> Windows {
    Windows(std::array::from_fn(|d| match d < D {
        true => Window {
            size: kernel[d],
            stride: stride[d] as usize,
            pad: pad[d] as usize,
            dilation: dilation[d] as usize,
        },
        false => Window::ONE,
    }))
}

impl Windows {
    /// Positions on so many elements of each dim.
    pub fn n_out(&self, n: [usize; 3]) -> Result<[usize; 3], Reason> {
        Ok([self.0[0].n_out(n[0])?, self.0[1].n_out(n[1])?, self.0[2].n_out(n[2])?])
    }

    /// Taps of all dims together.
    pub fn n_taps(&self) -> Result<usize, Reason> {
        self.0.iter().try_fold(1usize, |n, w| n.checked_mul(w.size)).ok_or(Reason::Shape)
    }

    /// `struct Window [3]` of the kernels.
    pub fn put(&self, args: Args) -> Args {
        let numbers = self.0.iter().flat_map(|w| [w.size, w.stride, w.pad, w.dilation]);
        numbers.fold(args, Args::count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(size: usize, [stride, pad, dilation]: [usize; 3], n: usize, expected: Option<usize>) {
        assert_eq!(Window { size, stride, pad, dilation }.n_out(n).ok(), expected);
    }

    #[test]
    fn positions_are_counted_as_in_the_op_table() {
        check(3, [1, 0, 1], 10, Some(8));
        check(3, [2, 1, 1], 10, Some(5));
        check(3, [1, 0, 3], 7, Some(1));
        check(3, [1, 0, 3], 6, None);
        check(0, [1, 0, 1], 6, None);
        check(1, [0, 0, 1], 6, None);
        check(usize::MAX, [1, 0, 2], 6, None);
    }

    #[test]
    fn an_empty_kernel_is_a_wrong_shape_and_a_stride_of_0_a_wrong_param() {
        let of = |size, stride| Window { size, stride, ..Window::ONE }.n_out(6);
        assert_eq!((of(0, 1), of(1, 0)), (Err(Reason::Shape), Err(Reason::Param)));
    }
}
