//! Pages, copies in captures, and copies between cards.

use super::{Probe, REFUSED, taken};
use crate::bench::trial;
use crate::memory::CardScratch;
use crate::runtime::acl;
use crate::sys::*;
use llmrt_plugin::Result;

pub fn report(probe: &Probe<'_>) {
    let scratch = CardScratch::new(probe.runtime, probe.device);
    let mapped = |is: bool| if is { "mapped" } else { REFUSED };
    let found = |for_huge: bool| scratch.try_map(for_huge).map(|()| mapped(true).to_string());
    // Flags of addresses are sizes of pages from 8.1 on (acl_rt.h), as captures are there.
    let is_8_1 = probe.runtime.cann.acl.aclmdlRICaptureBegin.is_some();
    probe.line(
        "huge pages at addresses without a size of pages (aclrtMapMem)",
        mapped(!is_8_1),
        found(false),
    );
    probe.line("huge pages at addresses for them (aclrtMapMem)", mapped(is_8_1), found(true));
    if probe.chip.graphs && is_8_1 {
        let what = "a copy of pageable memory in a capture (aclrtMemcpyAsync)";
        probe.line(what, REFUSED, in_capture(probe));
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

/// The card and another one. A copy that the cards do not allow may be a fault, so nothing comes after these.
pub fn between_cards(probe: &Probe<'_>) {
    let (runtime, card) = (probe.runtime, probe.device);
    let peer = i32::from(card == 0);
    if !probe.chip.peers || runtime.n_devices() < 2 || probe.is_lost() {
        return;
    }
    let was_open = runtime.is_open(peer);
    if let Err(e) = runtime.open_card(peer) {
        return probe.line(&format!("card {peer}"), "opened", Err(e));
    }
    let copy = |ways: &str, access: Result<()>, copied: (&str, &str)| match access {
        Ok(()) => probe.line(&format!("{} (aclrtMemcpyAsync)", copied.0), copied.1, copy_from(probe, peer)),
        Err(e) => {
            let what = format!("access to card {peer} {ways} (aclrtDeviceEnablePeerAccess)");
            probe.line(&what, "opened", Err(e));
        }
    };
    let one_way = ("a copy from a card to which access is open one way", REFUSED);
    copy("one way", runtime.connect_one_way(card, peer), one_way);
    if !probe.is_lost() {
        let both = ("a copy between cards that both opened access", "taken");
        copy("both ways", runtime.connect(card, peer), both);
    }
    if !was_open {
        runtime.close_card(peer);
    }
    let _ = runtime.enter(probe.device);
}

/// A copy in the order of a stream of the card.
fn copy_from(probe: &Probe<'_>, peer: i32) -> Result<String> {
    let from = crate::buffer::CardMemory::new(probe.runtime, peer, 64)?;
    let mut stream = probe.stream()?;
    trial(&mut stream, |bench| {
        let (to, runtime, raw) = (bench.put(&[0; 64])?, bench.runtime(), bench.call.stream.raw);
        let kind = ACL_MEMCPY_DEVICE_TO_DEVICE;
        // SAFETY: both sides have 64 bytes, and live until the stream was waited for.
        unsafe { acl!(runtime, aclrtMemcpyAsync(to, 64, from.address(0), 64, kind, raw))? };
        taken(bench.wait())
    })
}
