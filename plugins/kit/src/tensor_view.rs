//! Tensors and devices of others as a plugin sees them: borrowed, checked by the host, cheap to copy.

use crate::entry::buffer as buffer_entry;
use crate::{Buffer, DType};
use llmrt_abi::types as c;
use std::any::Any;

/// A tensor: shape, strides and where its bytes are.
#[derive(Clone, Copy)]
pub struct TensorView<'a>(pub(crate) &'a c::Tensor);

// SAFETY: see `GraphView`.
unsafe impl Send for TensorView<'_> {}
// SAFETY: see `GraphView`.
unsafe impl Sync for TensorView<'_> {}

impl<'a> TensorView<'a> {
    /// Looks at a tensor of the host.
    ///
    /// # Safety
    /// The tensor does not change during `'a`, and its buffer is NULL or alive.
    pub unsafe fn new(tensor: &'a c::Tensor) -> TensorView<'a> {
        TensorView(tensor)
    }

    /// The struct itself.
    pub fn raw(&self) -> &'a c::Tensor {
        self.0
    }

    /// Its row in the graph's table.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// The dtype, if this build has it.
    pub fn dtype(&self) -> Option<DType> {
        DType::from_id(self.0.dtype)
    }

    /// The dtype's number.
    pub fn dtype_id(&self) -> u32 {
        self.0.dtype
    }

    /// `abi::types::ROLE_*`.
    pub fn role(&self) -> u32 {
        self.0.role
    }

    /// `abi::types::TENSOR_*` bits.
    pub fn flags(&self) -> u32 {
        self.0.flags
    }

    /// Layout made by `seal`; 0: canonical.
    pub fn layout_id(&self) -> u32 {
        self.0.layout_id
    }

    /// Elements per dim, innermost first.
    pub fn ne(&self) -> [usize; 4] {
        self.0.ne.map(|n| n as usize)
    }

    /// Bytes between elements (blocks for dim 0) of a dim.
    pub fn nb(&self) -> [usize; 4] {
        self.0.nb.map(|n| n as usize)
    }

    /// Elements.
    pub fn n_elements(&self) -> usize {
        self.ne().iter().product()
    }

    /// Rows of dim 0: elements of the other dims.
    pub fn n_rows(&self) -> usize {
        self.ne()[1..].iter().product()
    }

    /// Bytes from first to past-the-last element.
    pub fn nbytes(&self) -> u64 {
        self.0.nbytes
    }

    /// First byte in the buffer.
    pub fn offset(&self) -> u64 {
        self.0.offset
    }

    /// For logs only.
    pub fn name(&self) -> std::borrow::Cow<'a, str> {
        // SAFETY: a name has `len` bytes that do not change during `'a`.
        unsafe { crate::host::str_of(self.0.name) }
    }

    /// Whether memory was given to it.
    pub fn has_buffer(&self) -> bool {
        !self.0.buffer.is_null()
    }

    /// Its buffer, if it is this plugin's and of this type.
    pub fn buffer<B: Buffer>(&self) -> Option<&'a B> {
        // SAFETY: the buffer is NULL or alive during `'a`.
        let buffer: &'a dyn Any = unsafe { buffer_entry::own(self.0.buffer) }?;
        buffer.downcast_ref()
    }

    /// Address of its first byte, if its buffer is in memory that the CPU may read and write.
    pub fn host_ptr(&self) -> Option<*mut u8> {
        // SAFETY: the buffer is NULL or alive.
        let base = unsafe { buffer_entry::host_ptr_of(self.0.buffer) }?;
        Some(base.wrapping_add(self.0.offset as usize))
    }

    /// Whether elements follow each other without gaps in dim order.
    pub fn is_contiguous(&self) -> bool {
        let Some(info) = self.dtype().map(DType::info) else { return false };
        let (ne, nb) = (self.ne(), self.nb());
        let mut expected = info.block_bytes as usize;
        for dim in 0..4 {
            if ne[dim] != 1 && nb[dim] != expected {
                return false;
            }
            let n = if dim == 0 { ne[0] / info.block_elems as usize } else { ne[dim] };
            expected = expected.saturating_mul(n);
        }
        true
    }
}

/// A device of some plugin, as [`crate::Device::accepts`] sees it.
#[derive(Clone, Copy)]
pub struct PeerView<'a>(pub(crate) &'a c::Device);

impl<'a> PeerView<'a> {
    fn info(&self) -> &'a c::DeviceInfo {
        // SAFETY: a device's info is read-only data that lives as long as the device.
        unsafe { &*self.0.info }
    }

    /// `abi::types::DEVICE_*`.
    pub fn kind(&self) -> u32 {
        self.info().kind
    }

    /// `abi::types::CAP_*` bits.
    pub fn caps(&self) -> u64 {
        self.info().caps
    }

    /// Its name within its plugin.
    pub fn name(&self) -> std::borrow::Cow<'a, str> {
        // SAFETY: a device's texts live as long as the device.
        unsafe { crate::host::str_of(self.info().name) }
    }

    /// `abi::types::BUFFER_*` and `BT_*` of one of its buffer types.
    pub fn buffer_type(&self, bt: u32) -> Option<(u32, u32)> {
        let info = self.info();
        if bt >= info.n_buffer_types {
            return None;
        }
        let at = info.buffer_types.cast::<u8>().wrapping_add(bt as usize * info.bt_stride as usize);
        // SAFETY: row `bt` exists, and rows are `bt_stride` bytes apart.
        let row = unsafe { &*at.cast::<c::BufferType>() };
        Some((row.kind, row.flags))
    }

    /// Whether it is a device of this plugin.
    pub fn is_ours(&self) -> bool {
        crate::entry::device::is_ours(self.0)
    }
}
