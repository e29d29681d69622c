//! Devices and what they make, as safe objects: each keeps alive what it needs, each call is checked first.
//!
//! [`Device`] allocates [`Buffer`]s and makes [`Stream`]s, which run [`RawGraph`]s and [`BackendPlan`]s; [`Event`]s
//! order them.
//! Fallbacks for what a plugin lacks are here, so callers see one kind of device.
//!
//! Bytes of a buffer that several streams or threads touch at once without an event or a synchronisation between them
//! are unspecified, as with any device memory; ordering them is the executor's work.

pub mod buffer;
pub mod describe;
pub mod event;
mod failure;
pub mod graph;
pub mod group;
pub mod host_bytes;
pub mod plan;
pub mod staging;
pub mod stream;
pub mod tensor;
pub mod transfer;
mod watchdog;

pub use buffer::{Buffer, HostMemory, Layout};
pub use describe::{BufferTypeDesc, DeviceDesc, DeviceState, MAX_KV_BLOCK_SIZE};
pub use event::Event;
pub use graph::{NodeDesc, RawGraph, RawGraphBuilder};
pub use group::Group;
pub use host_bytes::HostBytes;
pub use plan::BackendPlan;
pub use staging::Staging;
pub use stream::Stream;
pub use tensor::TensorDesc;
pub use transfer::{EarlyRead, PendingRead};

use crate::cancel::Runs;
use crate::error::{Error, Result};
use crate::plugin::loaded::Loaded;
use crate::plugin::selftest;
use crate::plugin::table::{self, mandatory};
use crate::pool::{Devmem, PoolKind, PoolStats, Scratch};
use crate::validate::{answers, inside};
use llmrt_abi::{Scope, types as c};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};

/// A device of a plugin. Opened by the first call that needs it, closed when the last object on it is gone.
pub struct Device {
    /// For the objects that keep the device alive.
    this: Weak<Device>,
    pub(crate) raw: *mut c::Device,
    pub(crate) vt: c::DeviceVt,
    desc: DeviceDesc,
    id: String,
    pub(crate) plugin: Arc<Loaded>,
    /// Why it is not used, decided while loading.
    unused: OnceLock<String>,
    /// What broke it.
    broken: OnceLock<String>,
    /// Free bytes after the self-test, when calls are checked.
    pub(crate) free_at_start: OnceLock<u64>,
    /// Whether a call of it hangs, and may still use everything that was made on it.
    hangs: AtomicBool,
    /// The outcome of `open`, once.
    opened: Mutex<Option<Result<()>>>,
}

// SAFETY: the ABI makes all calls of a device thread-safe after `open`, and `opened` serialises `open`.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

/// Calls a function of a table: fills an error, checks the answer. NULL answers "unsupported".
/// To be used in an `unsafe` block whose SAFETY comment justifies the arguments.
macro_rules! call {
    ($device:expr, $table:expr, $function:ident($object:expr $(, $arg:expr)*)) => {
        match $crate::validate::enter(&$device.plugin, stringify!($function), $object) {
            Err(e) => Err(e),
            Ok(entered) => {
                let mut err = $crate::validate::fence::FencedError::empty();
                let status = match $table.$function {
                    Some(f) => f($object, $($arg,)* &mut err.error),
                    None => llmrt_abi::Status::Unsupported.code(),
                };
                let result = $device.check(stringify!($function), status, &err.error);
                entered.leave(status, &err, result)
            }
        }
    };
}
pub(crate) use call;

impl Device {
    /// Reads and checks a plugin's description of a device (checklist step 14).
    ///
    /// # Safety
    /// `raw` is a device that `plugin` enumerated, and lives until its `shutdown`.
    pub(crate) unsafe fn read(
        raw: *mut c::Device,
        plugin: Arc<Loaded>,
        n_devices: usize,
    ) -> Result<Arc<Device>, String> {
        if raw.is_null() || !raw.is_aligned() {
            return Err(format!("a device at {raw:?}"));
        }
        // SAFETY: the caller's promise; tables are read up to their `struct_size`.
        let (vt, desc) = unsafe { (table::read((*raw).vt)?, DeviceDesc::read((*raw).info)?) };
        mandatory!(vt, "device", open, close, memory, supports, buffer_alloc, backend_create)?;
        // The plugin's name, followed by the device's own if there are several.
        let id = match n_devices {
            1 => plugin.desc.name.clone(),
            _ => format!("{}:{}", plugin.desc.name, desc.name),
        };
        Ok(Arc::new_cyclic(|this| Device {
            this: this.clone(),
            raw,
            vt,
            desc,
            id,
            plugin,
            unused: OnceLock::new(),
            broken: OnceLock::new(),
            free_at_start: OnceLock::new(),
            hangs: AtomicBool::new(false),
            opened: Mutex::new(None),
        }))
    }

    /// The id, such as `cpu` or `cuda:0`.
    pub fn name(&self) -> &str {
        &self.id
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceDesc {
        &self.desc
    }

    /// Name of its plugin.
    pub fn plugin(&self) -> &str {
        &self.plugin.desc.name
    }

    /// Version of its plugin.
    pub fn plugin_version(&self) -> &str {
        &self.plugin.desc.version
    }

    /// Its plugin's priority, from the manifest; with a negative one the device is used only when named.
    pub fn priority(&self) -> i32 {
        self.plugin.desc.priority
    }

    /// Whether it can be used.
    pub fn state(&self) -> DeviceState {
        if let Some(reason) = self.plugin.quarantined.get().or(self.broken.get()) {
            return DeviceState::Quarantined(reason.clone());
        }
        if let Some(reason) = self.unused.get() {
            return DeviceState::Unused(reason.clone());
        }
        match &*self.opened() {
            None => DeviceState::Ready,
            Some(Ok(())) => DeviceState::Open,
            Some(Err(e)) => DeviceState::Unused(e.to_string()),
        }
    }

    /// Opens and tests the device if nothing did yet. Every call that needs it does this.
    pub fn open(&self) -> Result<()> {
        self.alive()?;
        let mut opened = self.opened();
        if let Some(outcome) = &*opened {
            return outcome.clone();
        }
        // SAFETY: a live device; the lock makes this the only `open`.
        let outcome = unsafe { call!(self, self.vt, open(self.raw)) };
        *opened = Some(outcome.clone());
        // The test opens the device like any caller.
        drop(opened);
        outcome?;
        if let Some(this) = self.this.upgrade()
            && let Err(reason) = selftest::run(&this)
        {
            self.set_unused(reason);
        }
        self.note_free();
        self.alive()
    }

    /// Free and total bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.open()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: an open device; the outputs are ours.
        unsafe { call!(self, self.vt, memory(self.raw, &mut free, &mut total))? };
        self.check_answer("memory", Scope::Call, || answers::memory(free, total))?;
        Ok((free, total))
    }

    /// Which of the nodes in `range` the device can run.
    pub fn supports(&self, graph: &RawGraph, range: Range<usize>) -> Result<Vec<c::Verdict>> {
        self.open()?;
        if range.start > range.end || range.end > graph.n_nodes() {
            return Err(Error::invalid("supports", format!("nodes {range:?} of {}", graph.n_nodes())));
        }
        let (first, n) = (range.start as u32, range.len() as u32);
        if self.validates() {
            // SAFETY: an open device; `RawGraph` is self-consistent and has these nodes.
            return unsafe { self.supports_fenced(graph.as_ptr(), first, n) };
        }
        let mut verdicts = vec![c::Verdict::default(); range.len()];
        // SAFETY: an open device; `RawGraph` is self-consistent and has these nodes; `verdicts` has `n` rows.
        unsafe { call!(self, self.vt, supports(self.raw, graph.as_ptr(), first, n, verdicts.as_mut_ptr()))? };
        Ok(verdicts)
    }

    /// `size` bytes of buffer type `bt`; `usage` is one of `abi::types::USAGE_*`.
    pub fn alloc(self: &Arc<Device>, bt: u32, size: u64, usage: u32) -> Result<Buffer> {
        Buffer::alloc(self, bt, size, usage)
    }

    /// A buffer over host memory, which it keeps alive. "Unsupported" where the device cannot read it in place.
    pub fn import_host(self: &Arc<Device>, memory: Arc<dyn HostMemory>) -> Result<Buffer> {
        Buffer::import(self, memory)
    }

    /// A stream of work on `n_threads` threads of the pool (0: all), for devices that compute on them.
    pub fn stream(self: &Arc<Device>, n_threads: usize) -> Result<Stream> {
        Stream::new(self, n_threads, None)
    }

    /// The same with this kind of scratch pool, whatever the host's options. An error where the device has no virtual
    /// memory and `pool` requires it.
    pub fn stream_with_pool(self: &Arc<Device>, n_threads: usize, pool: PoolKind) -> Result<Stream> {
        Stream::new(self, n_threads, Some(pool))
    }

    /// How scratch memory of its streams is managed, with what a new stream holds; `None` if its plugin manages it
    /// alone.
    pub fn pool(self: &Arc<Device>) -> Result<Option<PoolStats>> {
        self.open()?;
        Ok(Scratch::new(self, None)?.map(|scratch| scratch.stats()))
    }

    /// Whether scratch memory of its streams is managed by the host.
    pub(crate) fn has_pools(self: &Arc<Device>) -> bool {
        self.open().is_ok() && Devmem::of(self).is_ok_and(|devmem| devmem.is_some())
    }

    /// Bytes of its memory that the pool of a stream takes for nodes with these workspaces (of `supports`); 0 if its
    /// plugin manages scratch memory alone.
    pub(crate) fn pool_room(self: &Arc<Device>, workspaces: &BTreeSet<u64>) -> Result<u64> {
        if workspaces.is_empty() {
            return Ok(0);
        }
        self.open()?;
        Ok(Scratch::new(self, None)?.map_or(0, |scratch| scratch.room(workspaces)))
    }

    /// A synchronisation point.
    pub fn event(self: &Arc<Device>) -> Result<Event> {
        Event::new(self)
    }

    /// Whether the CPU cannot reach buffers of type 0, so that their contents are read by copies.
    pub fn has_own_memory(&self) -> bool {
        self.desc.buffer_types[0].flags & c::BT_HOST_PTR == 0
    }

    /// Multiples of this are good offsets for tensors in buffer type 0.
    pub fn alignment(&self) -> u64 {
        self.desc.buffer_types[0].alignment
    }

    /// Bytes that a tensor takes in buffer type `bt`; at least its own.
    pub fn alloc_size(&self, bt: u32, tensor: &TensorDesc<'_>) -> Result<u64> {
        self.open()?;
        let nbytes = tensor.nbytes()?;
        let Some(alloc_size) = self.vt.alloc_size else { return Ok(nbytes) };
        self.buffer_type(bt)?;
        let tensor = TensorDesc { view: None, ..*tensor }.to_abi(nbytes);
        let _inside = inside::enter();
        // SAFETY: an open device with this buffer type; the tensor names no buffer.
        let size = unsafe { alloc_size(self.raw, bt, &tensor) };
        let too_small = || (size < nbytes).then(|| format!("{size} bytes for a tensor of {nbytes}"));
        self.check_answer("alloc_size", Scope::Call, too_small)?;
        Ok(size.max(nbytes))
    }

    /// Whether this device can use buffers of buffer type `bt` of `owner` in place.
    pub fn accepts(&self, owner: &Device, bt: u32) -> bool {
        if std::ptr::eq(self, owner) {
            return true;
        }
        let (Some(accepts), Ok(()), Ok(_)) = (self.vt.accepts, self.open(), owner.buffer_type(bt)) else {
            return false;
        };
        // SAFETY: an open device, and another one that both live during the call.
        unsafe { accepts(self.raw, owner.raw, bt) == 1 }
    }

    /// Writes a line of the host's own to the log.
    pub(crate) fn log(&self, level: u32, text: &str) {
        self.plugin.services.log_line(level, text);
    }

    /// The runs that its plugin's callbacks look up.
    pub(crate) fn runs(&self) -> &Runs {
        &self.plugin.services.runs
    }

    /// Marks the device as one not to use; the first reason stays.
    pub(crate) fn set_unused(&self, reason: String) {
        let _ = self.unused.set(reason);
    }

    pub(crate) fn buffer_type(&self, bt: u32) -> Result<&BufferTypeDesc> {
        let types = &self.desc.buffer_types;
        types.get(bt as usize).ok_or_else(|| {
            Error::invalid(self.id.as_str(), format!("buffer type {bt}; the device has {}", types.len()))
        })
    }

    fn opened(&self) -> MutexGuard<'_, Option<Result<()>>> {
        self.opened.lock()
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("id", &self.id).field("state", &self.state()).finish()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let open = matches!(*self.opened(), Some(Ok(())));
        if let (true, true, Some(close)) = (open, self.may_destroy(), self.vt.close) {
            self.check_leaks();
            let _inside = inside::enter();
            // SAFETY: an open device; buffers, streams and events hold it, so none is left.
            unsafe { close(self.raw) }
        }
    }
}
