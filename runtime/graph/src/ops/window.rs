//! Windows that slide over a dim: how convolutions, pools and im2col count positions (ggml's rule, without its
//! rounding of a negative quotient towards 0: a window longer than the padded input is refused).

use crate::tensor::Shape;

/// `size` taps, `dilation` apart, that move on by `stride` over a dim with `pad` elements more at both ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub size: u64,
    pub stride: u64,
    pub pad: u64,
    pub dilation: u64,
}

impl Window {
    /// Sees each element alone: the window of a dim that is not there.
    pub const ONE: Window = Window { size: 1, stride: 1, pad: 0, dilation: 1 };

    /// A window from fields of a params struct.
    pub fn new(size: u64, stride: u32, pad: u32, dilation: u32) -> Window {
        Window { size, stride: stride.into(), pad: pad.into(), dilation: dilation.into() }
    }

    /// Its positions on `n_in` elements.
    pub fn n_out(&self, n_in: u64) -> Result<u64, String> {
        let Window { size, stride, pad, dilation } = *self;
        if size == 0 || stride == 0 || dilation == 0 {
            return Err(format!(
                "a window of {size} taps, stride {stride}, dilation {dilation}: none may be 0"
            ));
        }
        let reach = (size - 1).checked_mul(dilation).and_then(|reach| reach.checked_add(1));
        let padded = n_in.checked_add(2 * pad);
        match (reach, padded) {
            (Some(reach), Some(padded)) if reach <= padded => Ok((padded - reach) / stride + 1),
            _ => Err(format!(
                "a window of {size} taps, {dilation} apart, is longer than {n_in} elements with {pad} more at both ends"
            )),
        }
    }

    /// The element under `tap` at position `out`; `None` in the padding.
    pub fn at(&self, out: u64, tap: u64, n_in: u64) -> Option<u64> {
        (out * self.stride + tap * self.dilation).checked_sub(self.pad).filter(|&i| i < n_in)
    }
}

/// How a kernel moves in its first D dims; the others are not there.
pub(super) fn windows<const D: usize>(
    kernel: Shape,
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
pub(super) fn n_out([w0, w1, w2]: &[Window; 3], n_in: [u64; 3]) -> Result<[u64; 3], String> {
    Ok([w0.n_out(n_in[0])?, w1.n_out(n_in[1])?, w2.n_out(n_in[2])?])
}

/// The element under `tap` at position `out`; `None` in the padding.
pub(super) fn at(windows: &[Window; 3], out: [u64; 3], tap: [u64; 3], n_in: [u64; 3]) -> Option<[u64; 3]> {
    let at = |d: usize| windows[d].at(out[d], tap[d], n_in[d]);
    Some([at(0)?, at(1)?, at(2)?])
}

/// All indices of three dims, the first one running fastest.
pub(super) fn indices([n0, n1, n2]: [u64; 3]) -> impl Iterator<Item = [u64; 3]> {
    (0..n2).flat_map(move |i2| (0..n1).flat_map(move |i1| (0..n0).map(move |i0| [i0, i1, i2])))
}

/// The place of an index among all of its dims.
pub(super) fn place([i0, i1, i2]: [u64; 3], [n0, n1, _]: [u64; 3]) -> u64 {
    (i2 * n1 + i1) * n0 + i0
}
