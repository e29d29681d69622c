//! Windows that slide over a dim: which elements are under which taps, for convolutions, pools and im2col.

use llmrt_plugin::Reason;
use std::ops::Range;

/// `size` taps, `dilation` apart, that move on by `stride` over a dim with `pad` elements more at both ends.
#[derive(Clone, Copy)]
pub struct Window {
    /// Taps.
    pub size: usize,
    /// Elements from a position to the next.
    pub stride: usize,
    /// Elements added at both ends.
    pub pad: usize,
    /// Elements from a tap to the next.
    pub dilation: usize,
}

impl Window {
    /// Sees each element alone: the window of a dim that is not there.
    pub const ONE: Window = Window { size: 1, stride: 1, pad: 0, dilation: 1 };

    /// A window from fields of a params struct.
    pub fn new(size: usize, stride: u32, pad: u32, dilation: u32) -> Window {
        Window { size, stride: stride as usize, pad: pad as usize, dilation: dilation as usize }
    }

    /// Its positions on `n_in` elements. After this answer no arithmetic below overflows for these positions.
    pub fn n_out(&self, n_in: usize) -> Result<usize, Reason> {
        if self.stride == 0 || self.dilation == 0 {
            return Err(Reason::Param);
        }
        // A kernel without taps: its shape is wrong. Pools, whose size is a param, check it before.
        if self.size == 0 {
            return Err(Reason::Shape);
        }
        let reach = (self.size - 1).checked_mul(self.dilation).and_then(|reach| reach.checked_add(1));
        let padded = self.pad.checked_mul(2).and_then(|pad| pad.checked_add(n_in));
        let steps = padded.ok_or(Reason::Shape)?.checked_sub(reach.ok_or(Reason::Shape)?);
        Ok(steps.ok_or(Reason::Shape)? / self.stride + 1)
    }

    /// Positions among `out` at which `tap` is over one of `n_in` elements.
    pub fn inside(&self, tap: usize, n_in: usize, out: Range<usize>) -> Range<usize> {
        overlap(self.pad, n_in, tap * self.dilation, self.stride, out)
    }

    /// Taps that are over one of `n_in` elements at position `out`.
    pub fn taps(&self, out: usize, n_in: usize) -> Range<usize> {
        overlap(self.pad, n_in, out * self.stride, self.dilation, 0..self.size)
    }

    /// The element under `tap` at position `out`, which is one by [`Window::inside`] or [`Window::taps`].
    pub fn at(&self, out: usize, tap: usize) -> usize {
        out * self.stride + tap * self.dilation - self.pad
    }

    /// The element under `tap` at position `out`; `None` in the padding.
    pub fn find(&self, out: usize, tap: usize, n_in: usize) -> Option<usize> {
        (out * self.stride + tap * self.dilation).checked_sub(self.pad).filter(|&i| i < n_in)
    }
}

/// How a kernel moves in its first D dims; the others are not there.
pub fn windows<const D: usize>(
    kernel: [usize; 4],
    stride: [u32; D],
    pad: [u32; D],
    dilation: [u32; D],
) -> [Window; 3] {
    std::array::from_fn(|d| match d < D {
        true => Window::new(kernel[d], stride[d], pad[d], dilation[d]),
        false => Window::ONE,
    })
}

/// Positions of windows on `n_in` elements of each dim.
pub fn n_out([w0, w1, w2]: &[Window; 3], n_in: [usize; 3]) -> Result<[usize; 3], Reason> {
    Ok([w0.n_out(n_in[0])?, w1.n_out(n_in[1])?, w2.n_out(n_in[2])?])
}

/// Those i of `all` with from + i·step in pad..pad + n.
fn overlap(pad: usize, n: usize, from: usize, step: usize, all: Range<usize>) -> Range<usize> {
    let (before, until) = (pad.saturating_sub(from), (pad + n).saturating_sub(from));
    let (start, end) = match step {
        1 => (before, until),
        step => (before.div_ceil(step), until.div_ceil(step)),
    };
    let start = start.clamp(all.start, all.end);
    start..end.clamp(start, all.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_kernel_is_a_wrong_shape_and_a_stride_of_0_a_wrong_param() {
        let of = |size, stride| Window { size, stride, ..Window::ONE }.n_out(6);
        assert_eq!((of(0, 1), of(1, 0)), (Err(Reason::Shape), Err(Reason::Param)));
    }
}
