//! Memory of a card. Blocking copies are not ordered after streams: the host calls them when no work uses the bytes.

use crate::layout;
use crate::pinned::CardPinned;
use crate::repack;
use crate::runtime::{Runtime, acl};
use crate::sys::*;
use llmrt_plugin::{Buffer, Error, Layout, Result, TensorView};
use std::ffi::c_void;
use std::sync::Arc;

/// Memory of a card, freed with the object.
pub struct CardMemory {
    runtime: Arc<Runtime>,
    device: i32,
    base: *mut c_void,
    size: u64,
}

// SAFETY: an address of the card, which every thread may use after entering the card.
unsafe impl Send for CardMemory {}
// SAFETY: as above.
unsafe impl Sync for CardMemory {}

impl CardMemory {
    /// `size` bytes on a card.
    pub fn new(runtime: &Arc<Runtime>, device: i32, size: u64) -> Result<CardMemory> {
        runtime.enter(device)?;
        let base = runtime.alloc(size)?;
        Ok(CardMemory { runtime: runtime.clone(), device, base, size })
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The card.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// Address of byte `offset`, for the card only.
    pub fn address(&self, offset: u64) -> *mut c_void {
        self.base.cast::<u8>().wrapping_add(offset as usize).cast()
    }

    /// The whole tensor as it is stored.
    fn stored(&self, tensor: &TensorView<'_>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; layout::stored_bytes(tensor) as usize];
        // SAFETY: the host checked that the tensor as `alloc_size` measured it is in this buffer.
        unsafe { self.runtime.download(&mut bytes, self.address(tensor.offset()))? };
        Ok(bytes)
    }
}

impl Buffer for CardMemory {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        if tensor.layout_id() != 0 {
            return Err(Error::invalid(format!("`{}` is sealed", tensor.name())));
        }
        self.runtime.enter(self.device)?;
        // SAFETY: the host checked the range, and no work uses it.
        unsafe { self.runtime.upload(self.address(tensor.offset() + off), src) }
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        self.runtime.enter(self.device)?;
        if tensor.layout_id() != 0 {
            let canonical = repack::restore(tensor, &self.stored(tensor)?)?;
            dst.copy_from_slice(&canonical[off as usize..][..dst.len()]);
            return Ok(());
        }
        // SAFETY: the host checked the range, and no work uses it.
        unsafe { self.runtime.download(dst, self.address(tensor.offset() + off)) }
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        self.runtime.enter(self.device)?;
        // SAFETY: the host checked the range, and no work uses it.
        unsafe {
            acl!(
                self.runtime,
                aclrtMemset(self.address(off), (self.size - off) as usize, byte.into(), n as usize)
            )
        }
    }

    /// Weights that products use in another layout are rewritten, whole.
    fn seal(&self, tensor: &TensorView<'_>) -> Result<Layout> {
        let layout = layout::of_weight(tensor, self.runtime.layouts());
        let Some(layout) = layout else { return Ok(Layout::canonical(tensor.nbytes())) };
        self.runtime.enter(self.device)?;
        let mut canonical = vec![0; tensor.nbytes() as usize];
        // SAFETY: the host checked that the tensor is in this buffer, and no work uses it.
        unsafe { self.runtime.download(&mut canonical, self.address(tensor.offset()))? };
        let stored = repack::transform(tensor, layout.id, &canonical)?;
        // SAFETY: as above; `alloc_size` made room for the stored form.
        unsafe { self.runtime.upload(self.address(tensor.offset()), &stored)? };
        Ok(layout)
    }

    fn copy_from(&self, dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
        copy_blocking(dst, src)
    }
}

/// Where a tensor's bytes are.
pub struct Place {
    /// The card; none for memory of the host.
    pub card: Option<i32>,
    /// Address of the tensor.
    pub address: *mut c_void,
    runtime: Option<Arc<Runtime>>,
}

impl Place {
    /// Of a tensor in a buffer of this plugin.
    pub fn of(t: &TensorView<'_>) -> Result<Place> {
        if let Some(memory) = t.buffer::<CardMemory>() {
            let (runtime, address) = (Some(memory.runtime.clone()), memory.address(t.offset()));
            return Ok(Place { card: Some(memory.device), address, runtime });
        }
        let memory = t.buffer::<CardPinned>();
        let memory =
            memory.ok_or_else(|| Error::unsupported(format!("`{}` is on another plugin", t.name())))?;
        Ok(Place { card: None, address: memory.address(t.offset()).cast(), runtime: None })
    }

    /// The runtime's word for a copy from there to here.
    pub fn kind_from(&self, from: &Place) -> aclrtMemcpyKind {
        match (from.card, self.card) {
            (None, None) => ACL_MEMCPY_HOST_TO_HOST,
            (None, Some(_)) => ACL_MEMCPY_HOST_TO_DEVICE,
            (Some(_), None) => ACL_MEMCPY_DEVICE_TO_HOST,
            (Some(_), Some(_)) => ACL_MEMCPY_DEVICE_TO_DEVICE,
        }
    }
}

/// Two tensors of equal sizes without gaps: where they are. "Unsupported" otherwise.
pub fn places(dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<(Place, Place)> {
    if !(dst.is_contiguous() && src.is_contiguous()) {
        return Err(Error::unsupported("a copy of tensors with gaps"));
    }
    Ok((Place::of(dst)?, Place::of(src)?))
}

/// Copies a tensor between buffers of this plugin, which no work uses.
pub fn copy_blocking(dst: &TensorView<'_>, src: &TensorView<'_>) -> Result<()> {
    let (to, from) = places(dst, src)?;
    let n = src.nbytes() as usize;
    match (&to.runtime, &from.runtime) {
        _ if n == 0 => Ok(()),
        (Some(_), Some(_)) if to.card != from.card => {
            Err(Error::unsupported("a blocking copy between cards"))
        }
        (Some(runtime), _) | (_, Some(runtime)) => {
            runtime.enter(to.card.or(from.card).unwrap_or_default())?;
            let kind = to.kind_from(&from);
            // SAFETY: the host checked both tensors; they have equal sizes, and no work uses them.
            unsafe { acl!(runtime, aclrtMemcpy(to.address, n, from.address, n, kind)) }
        }
        (None, None) => {
            // SAFETY: as above, in memory of the host.
            unsafe { to.address.cast::<u8>().copy_from(from.address.cast(), n) };
            Ok(())
        }
    }
}

impl Drop for CardMemory {
    fn drop(&mut self) {
        if self.runtime.enter(self.device).is_ok() {
            // SAFETY: the host destroys a buffer after the work that uses it.
            unsafe { self.runtime.free(self.base) }
        }
    }
}
