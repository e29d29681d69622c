//! Pages, copies in captures, and copies between cards.

use super::{Probe, taken};
use crate::bench::trial;
use crate::memory::CardScratch;
use crate::runtime::acl;
use crate::sys::*;
use llmrt_plugin::Result;

pub fn report(probe: &Probe<'_>) {
    let scratch = CardScratch::new(probe.runtime, probe.device);
    let mapped = |is: bool| if is { "mapped" } else { "refused" };
    let found = |for_huge: bool| Ok(mapped(scratch.can_map(for_huge)).into());
    // Flags of addresses are sizes of pages from 8.1 on (acl_rt.h), as captures are there.
    let is_8_1 = probe.runtime.cann.acl.aclmdlRICaptureBegin.is_some();
    probe.line("huge pages at addresses without a size of pages", mapped(!is_8_1), found(false));
    probe.line("huge pages at addresses for them", mapped(is_8_1), found(true));
    if probe.chip.graphs && is_8_1 {
        probe.line("a copy of pageable memory in a capture", "refused", in_capture(probe));
    }
    if probe.device == 0 && probe.chip.peers && probe.runtime.n_devices() > 1 {
        peers(probe);
    }
}

/// On a stream of its own, because the capture is of no use afterwards.
fn in_capture(probe: &Probe<'_>) -> Result<String> {
    let mut stream = probe.stream()?;
    trial(&mut stream, |bench| {
        let (to, from, runtime) = (bench.put(&[0; 64])?, [0u8; 64], bench.runtime());
        let raw = bench.call.stream.raw;
        let mut graph = std::ptr::null_mut();
        let _quiet = runtime.captures.lock();
        // SAFETY: a live stream of the entered card; both sides have 64 bytes until the stream was waited for; what was captured
        // is destroyed and never launched.
        unsafe {
            acl!(runtime, aclmdlRICaptureBegin(raw, ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL))?;
            let kind = ACL_MEMCPY_HOST_TO_DEVICE;
            let copied = acl!(runtime, aclrtMemcpyAsync(to, 64, from.as_ptr().cast(), 64, kind, raw));
            let _ = acl!(runtime, aclmdlRICaptureEnd(raw, &mut graph));
            if !graph.is_null() {
                let _ = acl!(runtime, aclmdlRIDestroy(graph));
            }
            taken(copied)
        }
    })
}

/// Card 0 and card 1. A copy that the cards do not allow may be a fault, so nothing comes after these.
fn peers(probe: &Probe<'_>) {
    let (runtime, peer) = (probe.runtime, 1);
    let was_open = runtime.is_open(peer);
    let opened = runtime.open_card(peer);
    let copied = |both: bool| -> Result<String> {
        if both {
            runtime.connect(0, peer)?;
        } else {
            runtime.connect_one_way(0, peer)?;
        }
        copy_from(probe, peer)
    };
    match opened {
        Ok(()) => {
            probe.line("a copy from a card to which access is open one way", "refused", taken(copied(false)));
            probe.line("a copy between cards that both opened access", "taken", taken(copied(true)));
        }
        Err(e) => probe.line("card 1", "opened", Err(e)),
    }
    if !was_open {
        runtime.close_card(peer);
    }
    let _ = runtime.enter(probe.device);
}

/// A copy in the order of a stream of card 0.
fn copy_from(probe: &Probe<'_>, peer: i32) -> Result<String> {
    let from = crate::buffer::CardMemory::new(probe.runtime, peer, 64)?;
    let mut stream = probe.stream()?;
    trial(&mut stream, |bench| {
        let (to, runtime, raw) = (bench.put(&[0; 64])?, bench.runtime(), bench.call.stream.raw);
        let kind = ACL_MEMCPY_DEVICE_TO_DEVICE;
        // SAFETY: both sides have 64 bytes, and live until the stream was waited for.
        unsafe { acl!(runtime, aclrtMemcpyAsync(to, 64, from.address(0), 64, kind, raw))? };
        bench.wait()?;
        Ok(String::new())
    })
}
