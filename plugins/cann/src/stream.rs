//! A stream of work on a card.

use crate::buffer::CardMemory;
use crate::call::{Call, Shared};
use crate::chip::Chip;
use crate::event::CardEvent;
use crate::ops;
use crate::runtime::{Runtime, acl};
use crate::sys::*;
use llmrt_plugin::{Error, Event, GraphView, Result, Scratch, Stream, StreamFeatures, TensorView};
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

/// A stream.
pub struct CardStream {
    /// The libraries.
    pub(crate) runtime: Arc<Runtime>,
    /// The card.
    pub(crate) device: i32,
    /// What its chip can do.
    pub(crate) chip: Chip,
    /// The runtime's handle.
    pub(crate) raw: aclrtStream,
    /// Memory for workspaces and intermediate results.
    pub(crate) scratch: Option<Scratch>,
    /// What the nodes of the graph at hand share.
    pub(crate) shared: Shared,
    /// Events that enqueued work may still come to: destroying one does not wait.
    kept: Vec<CardEvent>,
}

// SAFETY: a handle that every thread may use after entering the card, one at a time, as the ABI says.
unsafe impl Send for CardStream {}

impl CardStream {
    /// A stream on a card.
    pub fn new(
        runtime: &Arc<Runtime>,
        device: i32,
        chip: Chip,
        scratch: Option<Scratch>,
    ) -> Result<CardStream> {
        runtime.enter(device)?;
        let mut raw = std::ptr::null_mut();
        let flags = (ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC) as u32;
        // SAFETY: the output is ours.
        unsafe { acl!(runtime, aclrtCreateStreamWithConfig(&mut raw, 0, flags))? };
        Ok(CardStream {
            runtime: runtime.clone(),
            device,
            chip,
            raw,
            scratch,
            shared: Shared::default(),
            kept: Vec::new(),
        })
    }

    /// Address of a byte of a tensor on this card.
    fn address(&self, t: &TensorView<'_>, off: u64) -> Result<*mut c_void> {
        let memory = t.buffer::<CardMemory>().filter(|memory| memory.device() == self.device);
        let memory = memory.ok_or_else(|| Error::invalid(format!("`{}` is not on this card", t.name())))?;
        Ok(memory.address(t.offset() + off))
    }
}

impl Stream for CardStream {
    fn features(&self) -> StreamFeatures {
        StreamFeatures { transfers: true, copies: true, events: true, plans: false }
    }

    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        self.runtime.enter(self.device)?;
        let enqueued = graph.nodes().enumerate().try_for_each(|(i, node)| {
            if node.dst().n_elements() == 0 {
                return Ok(());
            }
            Call::new(self).finish(|call| ops::compute(call, &node)).map_err(|e| e.at_node(i))
        });
        self.shared.clear(self.scratch.as_mut());
        enqueued
    }

    fn synchronize(&mut self) -> Result<()> {
        self.runtime.enter(self.device)?;
        // SAFETY: a live stream of the entered card.
        unsafe { acl!(self.runtime, aclrtSynchronizeStream(self.raw))? };
        self.kept.clear();
        Ok(())
    }

    unsafe fn set_async(&mut self, t: &TensorView<'_>, src: *const u8, n: u64, off: u64) -> Result<()> {
        self.runtime.enter(self.device)?;
        let (dst, n, kind) = (self.address(t, off)?, n as usize, ACL_MEMCPY_HOST_TO_DEVICE);
        // SAFETY: the host checked the range and keeps the source.
        unsafe { acl!(self.runtime, aclrtMemcpyAsync(dst, n, src.cast(), n, kind, self.raw)) }
    }

    unsafe fn get_async(&mut self, t: &TensorView<'_>, dst: *mut u8, n: u64, off: u64) -> Result<()> {
        if t.layout_id() != 0 {
            return Err(Error::unsupported("an asynchronous read of a sealed weight"));
        }
        self.runtime.enter(self.device)?;
        let (src, n, kind) = (self.address(t, off)?, n as usize, ACL_MEMCPY_DEVICE_TO_HOST);
        // SAFETY: the host checked the range and keeps the target.
        unsafe { acl!(self.runtime, aclrtMemcpyAsync(dst.cast(), n, src, n, kind, self.raw)) }
    }

    fn copy_async(
        &mut self,
        from: &mut dyn Stream,
        dst: &TensorView<'_>,
        src: &TensorView<'_>,
    ) -> Result<()> {
        let from = (from as &mut dyn Any).downcast_mut::<CardStream>();
        let from = from.ok_or_else(|| Error::unsupported("the source is a stream of another plugin"))?;
        if !(dst.is_contiguous() && src.is_contiguous()) {
            return Err(Error::unsupported("a copy of tensors with gaps"));
        }
        if from.device != self.device {
            self.reach(from.device)?;
        }
        let done = CardEvent::new(&from.runtime, from.device)?;
        from.event_record(&done)?;
        self.event_wait(&done)?;
        self.kept.push(done);
        let (to, at, n) = (self.address(dst, 0)?, from.address(src, 0)?, src.nbytes() as usize);
        let kind = ACL_MEMCPY_DEVICE_TO_DEVICE;
        // SAFETY: the host checked both tensors, which have equal sizes.
        unsafe { acl!(self.runtime, aclrtMemcpyAsync(to, n, at, n, kind, self.raw)) }
    }

    fn event_record(&mut self, event: &dyn Event) -> Result<()> {
        self.runtime.enter(self.device)?;
        let event = ours(event)?;
        // SAFETY: a live stream and a live event of one card.
        unsafe { acl!(self.runtime, aclrtRecordEvent(event, self.raw)) }
    }

    fn event_wait(&mut self, event: &dyn Event) -> Result<()> {
        self.runtime.enter(self.device)?;
        let event = ours(event)?;
        // SAFETY: a live stream; a live event, maybe of another card, which the runtime allows.
        unsafe { acl!(self.runtime, aclrtStreamWaitEvent(self.raw, event)) }
    }

    fn native_handle(&mut self) -> *mut c_void {
        self.raw
    }
}

impl CardStream {
    /// Lets this card read another one's memory; "unsupported" where the cards cannot.
    fn reach(&self, peer: i32) -> Result<()> {
        self.runtime.enter(self.device)?;
        let mut can = 0;
        // SAFETY: the output is ours; the card is entered.
        unsafe {
            acl!(self.runtime, aclrtDeviceCanAccessPeer(&mut can, self.device, peer))?;
            if can == 0 || !self.chip.peers {
                return Err(Error::unsupported(format!("card {} cannot reach card {peer}", self.device)));
            }
            acl!(self.runtime, aclrtDeviceEnablePeerAccess(peer, 0))
        }
    }
}

fn ours(event: &dyn Event) -> Result<aclrtEvent> {
    let event = (event as &dyn Any).downcast_ref::<CardEvent>();
    event.map(CardEvent::as_raw).ok_or_else(|| Error::invalid("an event of another plugin"))
}

impl Drop for CardStream {
    fn drop(&mut self) {
        // A stream is destroyed in its own card's context.
        if self.runtime.enter(self.device).is_ok() {
            // SAFETY: a live stream; destroying waits for its work.
            let _ = unsafe { acl!(self.runtime, aclrtDestroyStream(self.raw)) };
        }
    }
}
