//! Memory of a device. Blocking copies are not ordered after streams: the host calls them when no work uses the bytes.

use crate::driver::cu;
use crate::gpu::Gpu;
use crate::layout;
use crate::pinned::GpuPinned;
use crate::sys::*;
use llmrt_plugin::{Buffer, Error, Layout, Result, TensorView};
use std::sync::Arc;

/// Bytes of a weight that are on the host at a time while it is sealed, about.
const SEALED_AT_ONCE: usize = 16 << 20;

/// Memory of a device, freed with the object.
pub struct GpuMemory {
    gpu: Arc<Gpu>,
    base: CUdeviceptr,
}

impl GpuMemory {
    /// `size` bytes on a device.
    pub fn new(gpu: &Arc<Gpu>, size: u64) -> Result<GpuMemory> {
        gpu.enter()?;
        let base = gpu.alloc(size)?;
        Ok(GpuMemory { gpu: gpu.clone(), base })
    }

    /// The file's bytes of a sealed weight, from the eights that they are in.
    fn get_sealed(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        let dtype = tensor.dtype().ok_or_else(|| Error::invalid("an unknown dtype"))?;
        let (eight, off) = (layout::eight_bytes(dtype), off as usize);
        let first = off / eight * eight;
        let mut bytes = vec![0; (off + dst.len()).next_multiple_of(eight) - first];
        // SAFETY: the host checked the range, a sealed tensor is whole eights, and no work uses it.
        unsafe { self.gpu.download(&mut bytes, self.address(tensor.offset() + first as u64))? };
        layout::restore(dtype, &mut bytes);
        dst.copy_from_slice(&bytes[off - first..][..dst.len()]);
        Ok(())
    }

    /// Address of byte `offset`, for the device only.
    pub fn address(&self, offset: u64) -> CUdeviceptr {
        self.base + offset
    }
}

impl Buffer for GpuMemory {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        if tensor.layout_id() != 0 {
            return Err(Error::invalid(format!("`{}` is sealed", tensor.name())));
        }
        self.gpu.enter()?;
        // SAFETY: the host checked the range, and no work uses it.
        unsafe { self.gpu.upload(self.address(tensor.offset() + off), src) }
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        self.gpu.enter()?;
        if tensor.layout_id() != 0 {
            return self.get_sealed(tensor, dst, off);
        }
        // SAFETY: the host checked the range, and no work uses it.
        unsafe { self.gpu.download(dst, self.address(tensor.offset() + off)) }
    }

    /// The driver's fill may return before it is done, and later work is on streams that do not wait for it.
    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        self.gpu.enter()?;
        // SAFETY: the host checked the range, and no work uses it.
        unsafe {
            cu!(self.gpu.driver, cuMemsetD8_v2(self.address(off), byte, n as usize))?;
            cu!(self.gpu.driver, cuStreamSynchronize(std::ptr::null_mut()))
        }
    }

    /// Some eights after others, so that the host needs little memory for them.
    fn seal(&self, tensor: &TensorView<'_>) -> Result<Layout> {
        let layout = layout::of_weight(tensor);
        let (Some(dtype), true) = (tensor.dtype(), layout.id != 0) else { return Ok(layout) };
        self.gpu.enter()?;
        let step = (SEALED_AT_ONCE / layout::eight_bytes(dtype)).max(1) * layout::eight_bytes(dtype);
        let mut part = vec![0; step.min(tensor.nbytes() as usize)];
        for at in (0..tensor.nbytes()).step_by(step) {
            let n = step.min((tensor.nbytes() - at) as usize);
            let (address, part) = (self.address(tensor.offset() + at), &mut part[..n]);
            // SAFETY: the host checked that the tensor is in this buffer, and no work uses it.
            unsafe { self.gpu.download(part, address)? };
            layout::transform(dtype, part);
            // SAFETY: as above.
            unsafe { self.gpu.upload(address, part)? };
        }
        Ok(layout)
    }

    fn copy_from(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        copy_blocking(dst, src)
    }
}

impl Drop for GpuMemory {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: the host destroys a buffer after the work that uses it.
            unsafe { self.gpu.free(self.base) }
        }
    }
}

/// Where a tensor's bytes are.
pub struct Place {
    /// The device; none for memory of the host.
    pub gpu: Option<Arc<Gpu>>,
    /// Address of the tensor.
    pub address: u64,
}

impl Place {
    /// Of a tensor in a buffer of this plugin.
    pub fn of(t: &TensorView<'_>) -> Result<Place> {
        if let Some(memory) = t.buffer::<GpuMemory>() {
            return Ok(Place { gpu: Some(memory.gpu.clone()), address: memory.address(t.offset()) });
        }
        match t.buffer::<GpuPinned>() {
            Some(memory) => Ok(Place { gpu: None, address: memory.address(t.offset()) as u64 }),
            None => Err(Error::unsupported(format!("`{}` is on another plugin", t.name()))),
        }
    }

    /// Whether it is on this device.
    pub fn is_on(&self, gpu: &Gpu) -> bool {
        self.gpu.as_ref().is_some_and(|own| own.number == gpu.number)
    }
}

/// Two tensors of equal sizes without gaps: where they are. "Unsupported" otherwise.
pub fn places(dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<(Place, Place)> {
    if !(dst.is_contiguous() && src.is_contiguous()) {
        return Err(Error::unsupported("a copy of tensors with gaps"));
    }
    if dst.layout_id() != src.layout_id() {
        return Err(Error::unsupported("a copy between layouts"));
    }
    Ok((Place::of(dst)?, Place::of(src)?))
}

/// Copies a tensor between buffers of this plugin, which no work uses.
pub fn copy_blocking(dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
    let (to, from) = places(dst, src)?;
    let n = src.nbytes() as usize;
    // SAFETY: the host checked both tensors; they have equal sizes, and no work uses them. A copy on one device, or out of
    // memory of the host that is not pinned, may return before it is done, so it is waited for.
    unsafe {
        match (&to.gpu, &from.gpu) {
            _ if n == 0 => Ok(()),
            (Some(a), Some(b)) if a.number != b.number => {
                Err(Error::unsupported("a blocking copy between devices"))
            }
            (Some(gpu), Some(_)) => {
                gpu.enter()?;
                cu!(gpu.driver, cuMemcpyDtoD_v2(to.address, from.address, n))?;
                cu!(gpu.driver, cuStreamSynchronize(std::ptr::null_mut()))
            }
            (Some(gpu), None) => {
                gpu.enter()?;
                cu!(gpu.driver, cuMemcpyHtoD_v2(to.address, from.address as *const _, n))?;
                cu!(gpu.driver, cuStreamSynchronize(std::ptr::null_mut()))
            }
            (None, Some(gpu)) => {
                gpu.enter()?;
                cu!(gpu.driver, cuMemcpyDtoH_v2(to.address as *mut _, from.address, n))
            }
            (None, None) => {
                (to.address as *mut u8).copy_from(from.address as *const u8, n);
                Ok(())
            }
        }
    }
}
