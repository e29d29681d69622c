//! The traits a plugin implements. The kit turns them into the ABI's tables and stops panics at the edge.
//!
//! Graphs, tensors and ranges that arrive here were checked by the host: ranges are inside tensors, tensors inside
//! buffers, buffers on devices that [`Device::accepts`]. A driver reports only errors that the host cannot foresee.

use crate::{
    DeviceInfo, DevmemLimits, Error, GraphView, Host, PeerView, PluginInfo, Reason, Result, Scratch,
    ScratchMemory, TensorView, Verdict,
};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A plugin: finds its devices.
pub trait Driver: Send + Sync + Sized + 'static {
    /// Name, version, vendor, needs.
    const INFO: PluginInfo;

    /// Looks which devices are there. Creates no context and takes no device memory.
    fn init(host: Host) -> Result<Self>;

    /// Units and limits of virtual memory, if scratch memory shall be managed by the host; then every device has
    /// [`Device::scratch_memory`].
    const DEVMEM: Option<DevmemLimits> = None;

    /// Whether devices may form a [`Group`]; then every device has [`Device::group`].
    const COLLECTIVE: bool = false;

    /// The devices; called once, after `init`.
    fn devices(&self) -> Vec<Arc<dyn Device>>;
}

/// A device. Every method may be called from any thread after [`Device::open`].
pub trait Device: Send + Sync + 'static {
    /// Its description; called once.
    fn info(&self) -> DeviceInfo;

    /// Creates contexts. Called before anything below.
    fn open(&self) -> Result<()> {
        Ok(())
    }

    /// Undoes `open`; all buffers, streams and events are gone by then.
    fn close(&self) {}

    /// Free and total bytes.
    fn memory(&self) -> Result<(u64, u64)>;

    /// Whether this device can run a node. Pure; tensors may have no buffer yet. A yes is a promise.
    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict;

    /// Verdicts of nodes `first..first + verdicts.len()`; for plugins that fuse nodes or price them together.
    fn supports_range(&self, graph: &GraphView<'_>, first: usize, verdicts: &mut [Verdict]) {
        for (i, verdict) in verdicts.iter_mut().enumerate() {
            *verdict = match graph.node(first + i).op() {
                // A custom op or one newer than this build is not ours unless the plugin overrides this method.
                None => Verdict::no(Reason::Op),
                Some(op) if graph.node(first + i).op_version() > op.info().version => {
                    Verdict::no(Reason::Version)
                }
                Some(_) => self.supports(graph, first + i),
            };
        }
    }

    /// Memory of buffer type `bt`; `usage` is one of `abi::types::USAGE_*`.
    fn alloc(&self, bt: u32, size: u64, usage: u32) -> Result<Box<dyn Buffer>>;

    /// A stream of work.
    fn stream(&self, params: &StreamParams) -> Result<Box<dyn Stream>>;

    /// Bytes a tensor takes in buffer type `bt`; at least [`TensorView::nbytes`].
    fn alloc_size(&self, _bt: u32, tensor: &TensorView<'_>) -> u64 {
        tensor.nbytes()
    }

    /// Whether this device can use buffers of buffer type `bt` of `owner` in place.
    fn accepts(&self, _owner: &PeerView<'_>, _bt: u32) -> bool {
        false
    }

    /// How the host takes scratch memory of this device; required if [`Driver::DEVMEM`] is some.
    fn scratch_memory(&self) -> Option<&dyn ScratchMemory> {
        None
    }

    /// These devices of this plugin, of which it is the first, as one group. Called if [`Driver::COLLECTIVE`] is set.
    fn group(&self, _members: &[PeerView<'_>]) -> Result<Box<dyn Group>> {
        Err(Error::unsupported("these devices put nothing together"))
    }

    /// A synchronisation point. Offered to the host when `CAP_EVENTS` is set.
    fn event(&self) -> Result<Box<dyn Event>> {
        Err(Error::unsupported("this device has no events"))
    }

    /// A buffer over `n` bytes of host memory at `ptr`. Offered to the host when `CAP_HOST_READ` is set.
    ///
    /// # Safety
    /// The memory outlives the buffer, and is not written by anyone else while the device works on it.
    unsafe fn import_host(&self, _ptr: *mut u8, _n: u64, _read_only: bool) -> Result<Box<dyn Buffer>> {
        Err(Error::unsupported("this device cannot use host memory in place"))
    }
}

/// How to make a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamParams {
    /// Threads of the host's pool to use; 0: all.
    pub n_threads: u32,
    /// Smaller runs earlier; 0 is normal.
    pub priority: i32,
    /// A stream of the vendor's library to work on, or NULL.
    pub native_stream: *mut core::ffi::c_void,
    /// Scratch memory, managed by the host.
    pub scratch: Option<Scratch>,
}

/// Memory of a device.
pub trait Buffer: Any + Send + Sync {
    /// Writes bytes `off..off + src.len()` of the tensor, canonical (GGUF) bytes. Done when it returns.
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()>;

    /// Reads bytes `off..off + dst.len()` of the tensor. `dst` may be uninitialised before and is not read.
    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()>;

    /// Sets bytes `off..off + n` of the buffer.
    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()>;

    /// After the last byte of a weight: the layout may change, once; returns the new one.
    fn seal(&self, tensor: &TensorView<'_>) -> Result<Layout> {
        Ok(Layout::canonical(tensor.nbytes()))
    }

    /// Copies `src`, in another buffer of this plugin or one that the device accepts, to `dst` in this buffer.
    fn copy_from(&self, _dst: &TensorView<'_>, _src: &TensorView<'_>) -> Result<()> {
        Err(Error::unsupported("no copy between these buffers"))
    }

    /// Address of the first byte, if the CPU may read and write there.
    fn host_ptr(&self) -> Option<*mut u8> {
        None
    }
}

/// What `seal` made of a weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    pub name: &'static str,
}

impl Layout {
    /// GGUF's own layout: readable and sliceable at every row.
    pub const fn canonical(nbytes: u64) -> Layout {
        let flags = llmrt_abi::types::LAYOUT_INVERTIBLE | llmrt_abi::types::LAYOUT_ROW_SLICEABLE;
        Layout { id: 0, flags, stored_bytes: nbytes, row_granularity: 1, name: "canonical" }
    }
}

/// A kept graph; the plugin's own type.
pub type Plan = dyn Any + Send;

/// Which optional groups of [`Stream`]'s methods work; the host has its own way for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFeatures {
    /// `set_async`, `get_async`.
    pub transfers: bool,
    /// `copy_async`.
    pub copies: bool,
    /// `event_record`, `event_wait`.
    pub events: bool,
    /// `plan_create`, `plan_update`, `plan_compute`.
    pub plans: bool,
}

/// A stream of work: one thread at a time, any thread.
pub trait Stream: Any + Send {
    /// Enqueues the graph, or runs it. It stays valid until synchronised.
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()>;

    /// Waits for everything enqueued; an asynchronous error comes out here and sticks.
    fn synchronize(&mut self) -> Result<()>;

    /// Which of the methods below work.
    fn features(&self) -> StreamFeatures {
        StreamFeatures::default()
    }

    /// Like [`Buffer::set`], in stream order.
    ///
    /// # Safety
    /// The `n` bytes at `src` stay valid until an event after this, or `synchronize`.
    unsafe fn set_async(&mut self, _t: &TensorView<'_>, _src: *const u8, _n: u64, _off: u64) -> Result<()> {
        Err(Error::unsupported("set_async"))
    }

    /// Like [`Buffer::get`], in stream order.
    ///
    /// # Safety
    /// The `n` bytes at `dst` stay valid and are not touched until an event after this, or `synchronize`.
    unsafe fn get_async(&mut self, _t: &TensorView<'_>, _dst: *mut u8, _n: u64, _off: u64) -> Result<()> {
        Err(Error::unsupported("get_async"))
    }

    /// Copies a tensor of `from`'s device, after what `from` has enqueued; `from` is of this plugin.
    fn copy_async(
        &mut self,
        _from: &mut dyn Stream,
        _dst: &TensorView<'_>,
        _src: &TensorView<'_>,
    ) -> Result<()> {
        Err(Error::unsupported("copy_async"))
    }

    /// Marks everything enqueued so far.
    fn event_record(&mut self, _event: &dyn Event) -> Result<()> {
        Err(Error::unsupported("event_record"))
    }

    /// Later work waits for the event.
    fn event_wait(&mut self, _event: &dyn Event) -> Result<()> {
        Err(Error::unsupported("event_wait"))
    }

    /// Prepares a graph to be run often. The graph stays valid until the plan is destroyed, so a plan may keep
    /// what [`GraphView::detach`] gives.
    fn plan_create(&mut self, _graph: &GraphView<'_>) -> Result<Box<Plan>> {
        Err(Error::unsupported("plan_create"))
    }

    /// Only addresses moved; `plan_stale` if the plan must be created again.
    fn plan_update(&mut self, _plan: &mut Plan, _graph: &GraphView<'_>) -> Result<()> {
        Err(Error::plan_stale("this plan cannot be rebound"))
    }

    /// Enqueues a plan.
    fn plan_compute(&mut self, _plan: &mut Plan, _run_id: u64) -> Result<()> {
        Err(Error::unsupported("plan_compute"))
    }

    /// The vendor library's stream, or NULL.
    fn native_handle(&mut self) -> *mut core::ffi::c_void {
        core::ptr::null_mut()
    }
}

/// Devices that put their results together. Row i of every argument is of the group's device i: its stream, on which the
/// work is enqueued, and its tensors, which have no gaps and are alike.
pub trait Group: Send {
    /// Each `dst` becomes the sum of all `src`, F32, with equal bits everywhere and in every run.
    fn all_reduce(
        &mut self,
        streams: &mut [&mut dyn Stream],
        src: &[TensorView<'_>],
        dst: &[TensorView<'_>],
    ) -> Result<()>;

    /// Rows of dim 0 of each `dst` become those of all `src`, one after the other. F32.
    fn all_gather(
        &mut self,
        _streams: &mut [&mut dyn Stream],
        _src: &[TensorView<'_>],
        _dst: &[TensorView<'_>],
    ) -> Result<()> {
        Err(Error::unsupported("all_gather"))
    }

    /// Each tensor becomes a copy of that of `root`.
    fn broadcast(
        &mut self,
        _streams: &mut [&mut dyn Stream],
        _root: usize,
        _tensors: &[TensorView<'_>],
    ) -> Result<()> {
        Err(Error::unsupported("broadcast"))
    }
}

/// A synchronisation point between streams and with the host; re-recordable, binary; any thread.
pub trait Event: Any + Send + Sync {
    /// Whether it was reached. An event never recorded was.
    fn query(&self) -> Result<bool>;

    /// Waits at most this long; whether it was reached.
    fn wait(&self, timeout: Duration) -> Result<bool>;
}
