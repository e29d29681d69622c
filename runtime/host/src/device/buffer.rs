//! Memory of a device. Clones share it; it is freed when the last one is gone.

use super::tensor::check_fits;
use super::{Device, TensorDesc, call};
use crate::error::{CallError, Error, Result};
use crate::plugin::table::{self, mandatory};
use crate::validate::{answers, fence::Fenced, inside, live};
use llmrt_abi::{Scope, Status, types as c};
use parking_lot::{Mutex, MutexGuard};
use std::ptr::NonNull;
use std::sync::Arc;

/// Host memory that devices may use in place.
///
/// # Safety
/// While the object lives, `len` bytes at `as_ptr` stay mapped at that address and are written only through buffers
/// made of it. `as_ptr` may be written through unless `is_read_only`.
pub unsafe trait HostMemory: Send + Sync {
    /// The first byte.
    fn as_ptr(&self) -> *const u8;
    /// Bytes.
    fn len(&self) -> u64;
    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Whether a write would fault.
    fn is_read_only(&self) -> bool;
}

/// Memory of a device.
#[derive(Clone)]
pub struct Buffer(Arc<Inner>);

struct Inner {
    raw: *mut c::Buffer,
    vt: c::BufferVt,
    size: u64,
    bt: u32,
    /// Taken by calls that touch the bytes.
    one_call: Mutex<()>,
    device: Arc<Device>,
    /// Outlives `raw`, which may point into it.
    _memory: Option<Arc<dyn HostMemory>>,
}

// SAFETY: the ABI allows calls from any thread; where it forbids two at once on one buffer, `one_call` orders them.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// The layout of a weight after `seal`.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The plugin's number; 0: canonical.
    pub id: u32,
    /// `abi::types::LAYOUT_*` bits.
    pub flags: u32,
    /// Bytes stored.
    pub stored_bytes: u64,
    /// Rows that slices must be multiples of.
    pub row_granularity: u64,
    /// For people.
    pub name: String,
}

impl Layout {
    /// GGUF's own layout, for a tensor of `nbytes` bytes.
    pub fn canonical(nbytes: u64) -> Layout {
        let flags = c::LAYOUT_INVERTIBLE | c::LAYOUT_ROW_SLICEABLE;
        Layout { id: 0, flags, stored_bytes: nbytes, row_granularity: 1, name: "canonical".into() }
    }

    /// Whether `get` still gives the canonical bytes.
    pub fn is_readable(&self) -> bool {
        self.flags & c::LAYOUT_OPAQUE == 0
    }
}

impl Buffer {
    pub(super) fn alloc(device: &Arc<Device>, bt: u32, size: u64, usage: u32) -> Result<Buffer> {
        device.open()?;
        let max = device.buffer_type(bt)?.max_size;
        if max > 0 && size > max {
            return Err(too_large(device, size, max).into());
        }
        let mut raw = std::ptr::null_mut();
        // Plugins never get a request for 0 bytes.
        let size = size.max(1);
        // SAFETY: an open device that has this buffer type; the output is ours.
        unsafe { call!(device, device.vt, buffer_alloc(device.raw, bt, size, usage, &mut raw))? };
        Buffer::adopt(device, raw, "buffer_alloc", size, bt, None)
    }

    pub(super) fn import(device: &Arc<Device>, memory: Arc<dyn HostMemory>) -> Result<Buffer> {
        device.open()?;
        let mut raw = std::ptr::null_mut();
        let (ptr, n) = (memory.as_ptr().cast_mut().cast(), memory.len());
        let flags = if memory.is_read_only() { c::IMPORT_READ_ONLY } else { 0 };
        // SAFETY: an open device; `HostMemory` promises the bytes as long as the buffer, which keeps it, lives.
        unsafe { call!(device, device.vt, import_host(device.raw, ptr, n, flags, &mut raw))? };
        Buffer::adopt(device, raw, "import_host", n, 0, Some(memory))
    }

    /// Checks what a plugin gave and takes it over.
    fn adopt(
        device: &Arc<Device>,
        raw: *mut c::Buffer,
        call: &'static str,
        size: u64,
        bt: u32,
        memory: Option<Arc<dyn HostMemory>>,
    ) -> Result<Buffer> {
        if raw.is_null() {
            return Err(device.breach(call, "returned OK and no buffer".into()));
        }
        // SAFETY: the plugin made this buffer just now; its table is read up to its `struct_size`.
        let vt = unsafe { table::read((*raw).vt) }
            .and_then(|vt: c::BufferVt| mandatory!(vt, "buffer", destroy, set, get, fill).map(|()| vt));
        let vt = vt.map_err(|e| device.breach(call, e))?;
        // SAFETY: as above; the handle starts with the address of its table.
        unsafe { live::born(&device.plugin, call, live::Kind::Buffer, raw)? };
        let one_call = Mutex::new(());
        Ok(Buffer(Arc::new(Inner { raw, vt, size, bt, one_call, device: device.clone(), _memory: memory })))
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// The device that owns the buffer.
    pub fn device(&self) -> &Arc<Device> {
        &self.0.device
    }

    /// Its buffer type on that device.
    pub fn buffer_type(&self) -> u32 {
        self.0.bt
    }

    /// Whether two handles are the same memory.
    pub fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether this is the only handle.
    pub(super) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// Writes canonical bytes at `off` of a tensor in this buffer.
    pub fn set(&self, tensor: &TensorDesc<'_>, src: &[u8], off: u64) -> Result<()> {
        let t = self.place(tensor, off, src.len() as u64)?;
        self.0.device.check_sealed("set", &t, live::Use::Write)?;
        let concurrent = self.0.device.buffer_type(self.0.bt)?.flags & c::BT_CONCURRENT_SET != 0;
        let _one = (!concurrent).then(|| self.one_call());
        let (ptr, n) = (src.as_ptr().cast(), src.len() as u64);
        // SAFETY: a live buffer; `place` checked tensor and range; `src` has `n` bytes.
        unsafe { call!(self.0.device, self.0.vt, set(self.0.raw, &t, ptr, off, n)) }
    }

    /// Reads canonical bytes at `off` of a tensor in this buffer.
    pub fn get(&self, tensor: &TensorDesc<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        let t = self.place(tensor, off, dst.len() as u64)?;
        self.0.device.check_sealed("get", &t, live::Use::Read)?;
        let _one = self.one_call();
        let n = dst.len() as u64;
        let read = |ptr: *mut u8| {
            // SAFETY: a live buffer; `place` checked tensor and range; `ptr` has `n` bytes.
            unsafe { call!(self.0.device, self.0.vt, get(self.0.raw, &t, ptr.cast(), off, n)) }
        };
        if !self.0.device.validates() {
            return read(dst.as_mut_ptr());
        }
        let mut bytes = Fenced::<u8>::new(dst.len());
        let result = read(bytes.as_mut_ptr());
        let damaged =
            || (!bytes.is_whole()).then(|| format!("wrote outside the {} bytes requested", dst.len()));
        self.0.device.check_answer("get", Scope::Plugin, damaged)?;
        dst.copy_from_slice(bytes.rows());
        result
    }

    /// Writes plain bytes at `offset` of the buffer.
    pub fn write(&self, offset: u64, src: &[u8]) -> Result<()> {
        match src.len() {
            0 => Ok(()),
            n => self.set(&TensorDesc::bytes(offset, n as u64), src, 0),
        }
    }

    /// Reads plain bytes at `offset` of the buffer.
    pub fn read(&self, offset: u64, dst: &mut [u8]) -> Result<()> {
        match dst.len() {
            0 => Ok(()),
            n => self.get(&TensorDesc::bytes(offset, n as u64), dst, 0),
        }
    }

    /// Sets `n` bytes from `off` of the buffer.
    pub fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        self.0.device.alive()?;
        check_fits("(fill)", off, n, self)?;
        let _one = self.one_call();
        // SAFETY: a live buffer that has these bytes.
        unsafe { call!(self.0.device, self.0.vt, fill(self.0.raw, off, n, byte)) }
    }

    /// Announces that a sealed weight will be written again, from its first byte to its last, as one that was never sealed.
    pub fn unseal(&self, tensor: &TensorDesc<'_>) -> Result<()> {
        let t = self.place(tensor, 0, 0)?;
        self.0.device.forget_seal(self.0.raw, &t);
        Ok(())
    }

    /// Marks a weight as fully uploaded; the plugin may then change the layout.
    pub fn seal(&self, tensor: &TensorDesc<'_>) -> Result<Layout> {
        let t = self.place(tensor, 0, 0)?;
        let mut out = c::Layout {
            struct_size: size_of::<c::Layout>() as u32,
            layout_id: 0,
            flags: 0,
            reserved: 0,
            stored_bytes: 0,
            row_granularity: 1,
            name: c::Str::EMPTY,
        };
        let _one = self.one_call();
        // SAFETY: a live buffer with this tensor; the output is ours.
        let result = unsafe { call!(self.0.device, self.0.vt, seal(self.0.raw, &t, &mut out)) };
        match result {
            Ok(()) => {}
            Err(e) if e.is_unsupported() => return Ok(Layout::canonical(t.nbytes)),
            Err(e) => return Err(e),
        }
        let n_rows = tensor.ne[1..].iter().product();
        self.0.device.check_answer("seal", Scope::Call, || answers::layout(&out, t.nbytes, n_rows))?;
        self.0.device.note_seal(self.0.raw, &t, &out)?;
        // SAFETY: the name is data of the plugin.
        let name =
            unsafe { table::text(out.name, "layout name") }.map_err(|e| self.0.device.breach("seal", e))?;
        Ok(Layout {
            id: out.layout_id,
            flags: out.flags,
            stored_bytes: out.stored_bytes,
            row_granularity: out.row_granularity.max(1),
            name,
        })
    }

    /// Copies a tensor of another buffer here: on the device where it can, through host memory otherwise.
    /// Both are contiguous and have the same bytes.
    pub fn copy(&self, dst: &TensorDesc<'_>, src_buf: &Buffer, src: &TensorDesc<'_>) -> Result<()> {
        let (d, s) = (self.place(dst, 0, 0)?, src_buf.place(src, 0, 0)?);
        if d.nbytes != s.nbytes {
            let problem = format!("{} bytes to copy to a tensor of {}", s.nbytes, d.nbytes);
            return Err(Error::invalid(format!("tensor `{}`", dst.name), problem));
        }
        if self.0.device.accepts(src_buf.device(), src_buf.buffer_type()) {
            // In the order of addresses, so that two copies crossing each other cannot wait for each other.
            let (first, second) =
                if self.as_ptr() <= src_buf.as_ptr() { (self, src_buf) } else { (src_buf, self) };
            let _first = first.one_call();
            let _second = (!self.is_same(src_buf)).then(|| second.one_call());
            // SAFETY: two live buffers with these tensors, and the device accepts the source.
            let result = unsafe { call!(self.0.device, self.0.vt, copy(self.0.raw, &d, src_buf.0.raw, &s)) };
            if !matches!(&result, Err(e) if e.is_unsupported()) {
                return result;
            }
        }
        let mut bytes = vec![0; STAGING.min(s.nbytes) as usize];
        let mut at = 0;
        while at < s.nbytes {
            let n = STAGING.min(s.nbytes - at) as usize;
            src_buf.get(src, &mut bytes[..n], at)?;
            self.set(dst, &bytes[..n], at)?;
            at += n as u64;
        }
        Ok(())
    }

    /// The turn to touch the buffer's bytes. Calls of one buffer come one after the other, except `set` where the
    /// buffer type allows several on disjoint ranges.
    fn one_call(&self) -> MutexGuard<'_, ()> {
        self.0.one_call.lock()
    }

    /// Address of the first byte, where the CPU may read and write.
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        let host_ptr = self.0.vt.host_ptr.filter(|_| self.0.device.alive().is_ok())?;
        // SAFETY: a live buffer.
        NonNull::new(unsafe { host_ptr(self.0.raw) }.cast())
    }

    /// Where the bytes `off..off + n` of a tensor in this buffer are, if the CPU reaches them and they are what
    /// [`Buffer::get`] would give: of a tensor in the canonical layout. Valid as long as the buffer is.
    pub(crate) fn host_bytes(
        &self,
        tensor: &TensorDesc<'_>,
        off: u64,
        n: u64,
    ) -> Result<Option<NonNull<[u8]>>> {
        let t = self.place(tensor, off, n)?;
        let base = self.host_ptr().filter(|_| t.layout_id == 0 && !self.0.device.validates());
        // SAFETY: `place` found the bytes inside the buffer.
        let first = base.map(|base| unsafe { base.add((t.offset + off) as usize) });
        Ok(first.map(|first| NonNull::slice_from_raw_parts(first, n as usize)))
    }

    /// For the tables of graphs.
    pub(crate) fn as_ptr(&self) -> *mut c::Buffer {
        self.0.raw
    }

    /// The tensor in this buffer, after checking it and bytes `off..off + n` of it.
    pub(super) fn place(&self, tensor: &TensorDesc<'_>, off: u64, n: u64) -> Result<c::Tensor> {
        self.0.device.alive()?;
        let nbytes = tensor.nbytes()?;
        check_fits(tensor.name, tensor.offset, nbytes, self)?;
        if off.checked_add(n).is_none_or(|end| end > nbytes) {
            let problem = format!("{n} bytes from byte {off} end past its {nbytes}");
            return Err(Error::invalid(format!("tensor `{}`", tensor.name), problem));
        }
        let alone = TensorDesc { view: None, ..*tensor };
        Ok(c::Tensor { buffer: self.0.raw, ..alone.to_abi(nbytes) })
    }
}

/// Bytes of host memory that a copy between devices passes through at a time.
pub(crate) const STAGING: u64 = 4 << 20;

fn too_large(device: &Device, size: u64, max: u64) -> CallError {
    CallError {
        who: device.name().to_string(),
        call: "buffer_alloc",
        status: Status::OomDevice,
        scope: Scope::Call,
        vendor_code: 0,
        node: None,
        bytes_requested: size,
        bytes_available: max,
        message: "larger than this buffer type allows".into(),
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes on {})", self.0.size, self.0.device.name())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A broken plugin is not called again; its memory stays where it is.
        if let (true, Some(destroy)) = (self.device.may_destroy(), self.vt.destroy) {
            let _inside = inside::enter();
            live::dies(&self.device.plugin, self.raw);
            // SAFETY: the last handle: graphs, plans and streams that use the buffer hold one.
            unsafe { destroy(self.raw) }
        } else if let Some(memory) = self._memory.take() {
            // The plugin may still point into it.
            std::mem::forget(memory);
        }
    }
}
