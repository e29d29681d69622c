//! Copies and fills. The blocking ones wait for no stream; the others take their place in one.

use crate::address::is_device;
use crate::config::Pageable;
use crate::fault::{Answer, Fault, ensure, fault};
use crate::runtime::alloc::is_pinned;
use crate::runtime::capture::{forbid, is_capturing};
use crate::runtime::context::current;
use crate::runtime::queue::Stream;
use crate::runtime::stream::resolve;
use crate::runtime::task::Task;
use crate::sys::*;
use crate::world::{World, api};
use std::ffi::c_void;
use std::sync::Arc;

/// Rows of bytes to be copied.
#[derive(Clone)]
struct Copy {
    dst: usize,
    dst_pitch: usize,
    src: usize,
    src_pitch: usize,
    width: usize,
    height: usize,
}

api! { cann_acl;
    fn aclrtMemset(ptr: *mut c_void, max: usize, value: i32, n: usize) w => {
        current(w)?;
        forbid(w, "aclrtMemset")?;
        fits(ptr, n, max)?;
        fill_bytes(w, ptr as usize, n, value as u8)
    }
    fn aclrtMemsetAsync(ptr: *mut c_void, max: usize, value: i32, n: usize, stream: aclrtStream) w => {
        let stream = resolve(w, stream)?;
        fits(ptr, n, max)?;
        let at = ptr as usize;
        stream.enqueue(w, Task::new("memset", move |w| fill_bytes(w, at, n, value as u8)))?;
        Ok(())
    }
    fn aclrtMemcpy(dst: *mut c_void, max: usize, src: *const c_void, n: usize, _kind: aclrtMemcpyKind) w => {
        current(w)?;
        forbid(w, "aclrtMemcpy")?;
        if n == 0 { return Ok(()) }
        fits(dst, n, max)?;
        fits(src, n, n)?;
        flat(dst, src, n).run_counted(w)
    }
    fn aclrtMemcpyAsync(
        dst: *mut c_void, max: usize, src: *const c_void, n: usize, _kind: aclrtMemcpyKind, stream: aclrtStream,
    ) w => {
        let stream = resolve(w, stream)?;
        if n == 0 { return Ok(()) }
        fits(dst, n, max)?;
        fits(src, n, n)?;
        enqueue(w, &stream, flat(dst, src, n))
    }
    fn aclrtMemcpy2d(
        dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize,
        _kind: aclrtMemcpyKind,
    ) w => {
        current(w)?;
        forbid(w, "aclrtMemcpy2d")?;
        rows(dst, dpitch, src, spitch, width, height)?.run_counted(w)
    }
    fn aclrtMemcpy2dAsync(
        dst: *mut c_void, dpitch: usize, src: *const c_void, spitch: usize, width: usize, height: usize,
        _kind: aclrtMemcpyKind, stream: aclrtStream,
    ) w => {
        let stream = resolve(w, stream)?;
        enqueue(w, &stream, rows(dst, dpitch, src, spitch, width, height)?)
    }
}

fn fits(ptr: *const c_void, n: usize, max: usize) -> Answer {
    ensure(!ptr.is_null(), ACL_ERROR_INVALID_PARAM, || "a NULL address".into())?;
    ensure(n <= max, ACL_ERROR_RT_PARAM_INVALID, || format!("{n} bytes into {max}"))
}

fn flat(dst: *mut c_void, src: *const c_void, n: usize) -> Copy {
    Copy { dst: dst as usize, dst_pitch: n, src: src as usize, src_pitch: n, width: n, height: 1 }
}

fn rows(
    dst: *mut c_void,
    dst_pitch: usize,
    src: *const c_void,
    src_pitch: usize,
    width: usize,
    height: usize,
) -> Answer<Copy> {
    fits(dst, 0, 0)?;
    fits(src, 0, 0)?;
    let good = width <= dst_pitch.min(src_pitch) && width <= 5_000_000 && height <= 5_242_880;
    let shape = || format!("{height} rows of {width} bytes, pitches {dst_pitch} and {src_pitch}");
    ensure(good, ACL_ERROR_RT_PARAM_INVALID, shape)?;
    Ok(Copy { dst: dst as usize, dst_pitch, src: src as usize, src_pitch, width, height })
}

/// Pinned memory is read and written when the stream reaches the copy. With other memory the runtime waits for the stream and
/// copies, and a capture that comes to such a copy is over (`isD2HorH2DInvolvePageableMemory` in api_error.cc of the runtime,
/// 8.5 to 9.1); older drivers as configured.
fn enqueue(w: &Arc<World>, stream: &Arc<Stream>, copy: Copy) -> Answer {
    let (from, to) = (is_device(copy.src), is_device(copy.dst));
    ensure(from || to, ACL_ERROR_RT_FEATURE_NOT_SUPPORT, || "from host to host".into())?;
    let (host, pageable) = (if from { copy.dst } else { copy.src }, copy.is_pageable(w));
    if pageable && is_capturing(stream) && w.config.keeps("pageable-capture") {
        return stream.spoil(w, ACL_ERROR_RT_STREAM_CAPTURE_CONFLICT, "a copy with pageable memory");
    }
    copy.count(w);
    match w.config.pageable {
        Pageable::Refuse if pageable => {
            return fault(ACL_ERROR_RT_INVALID_HANDLE, format!("{host:#x} is not pinned"));
        }
        Pageable::Snapshot if pageable && to => {
            let bytes: Arc<Vec<Vec<u8>>> =
                Arc::new((0..copy.height).map(|row| copy.read(w, row)).collect::<Answer<_>>()?);
            let write =
                move |w: &Arc<World>| (0..copy.height).try_for_each(|row| copy.write(w, row, &bytes[row]));
            stream.enqueue(w, Task::new("copy", write))?;
            return Ok(());
        }
        _ => {}
    }
    let place = stream.enqueue(w, Task::new("copy", move |w| copy.run(w)))?;
    if pageable && w.config.pageable == Pageable::Block { stream.wait_until(w, place) } else { Ok(()) }
}

impl Copy {
    /// Addresses from the first byte to the last.
    fn extent(&self, pitch: usize) -> usize {
        (self.height.max(1) - 1) * pitch + self.width
    }

    /// Whether a side is memory of the host that is not pinned.
    fn is_pageable(&self, w: &World) -> bool {
        [(self.src, self.src_pitch), (self.dst, self.dst_pitch)]
            .into_iter()
            .any(|(at, pitch)| !is_device(at) && !is_pinned(w, at, self.extent(pitch)))
    }

    fn count(&self, w: &World) {
        let name = match (is_device(self.src), is_device(self.dst)) {
            (false, true) => "h2d",
            (true, false) => "d2h",
            (true, true) => "d2d",
            _ => "h2h",
        };
        let n = (self.width * self.height) as u64;
        w.trace.count(name, 1);
        w.trace.count(&format!("{name}.bytes"), n);
        let pageable = self.is_pageable(w);
        if pageable {
            w.trace.count(&format!("{name}.pageable"), 1);
        }
        w.trace.line(|| format!("{name} {n} bytes{}", if pageable { " pageable" } else { "" }));
    }

    fn run_counted(&self, w: &World) -> Answer {
        self.count(w);
        self.run(w)
    }

    fn run(&self, w: &World) -> Answer {
        (0..self.height).try_for_each(|row| self.write(w, row, &self.read(w, row)?))
    }

    fn read(&self, w: &World, row: usize) -> Answer<Vec<u8>> {
        let at = self.src + row * self.src_pitch;
        if is_device(at) {
            let span = w.memory.span(at, self.width).map_err(|text| gone("source", text))?;
            if is_device(self.dst) {
                let other = w.memory.span(self.dst, 1).map_err(|text| gone("target", text))?;
                reaches(w, span.device, other.device)?;
            }
            return Ok(span.read());
        }
        // SAFETY: by the call's contract so many bytes of host memory are there and stay.
        Ok(unsafe { std::slice::from_raw_parts(at as *const u8, self.width) }.to_vec())
    }

    fn write(&self, w: &World, row: usize, bytes: &[u8]) -> Answer {
        let at = self.dst + row * self.dst_pitch;
        if is_device(at) {
            w.memory.span(at, self.width).map_err(|text| gone("target", text))?.write(0, bytes);
        } else {
            // SAFETY: as for the source.
            unsafe { (at as *mut u8).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
        }
        Ok(())
    }
}

fn gone(which: &str, text: String) -> Fault {
    Fault { code: ACL_ERROR_RT_PARAM_INVALID, text: format!("the {which}: {text}") }
}

/// Access is one-way (the vendor's page of aclrtDeviceEnablePeerAccess), and no page specifies which of the two a copy takes:
/// both must be open.
fn reaches(w: &World, a: usize, b: usize) -> Answer {
    let may = |a: usize, b: usize| w.cards[a].lock().peers.contains(&b);
    let problem = || format!("cards {a} and {b} have no access to each other");
    let open = if w.config.keeps("peers") { may(a, b) && may(b, a) } else { may(a, b) || may(b, a) };
    ensure(a == b || open, ACL_ERROR_RT_PARAM_INVALID, problem)
}

fn fill_bytes(w: &World, at: usize, n: usize, byte: u8) -> Answer {
    if n > 0 {
        w.memory.span(at, n).map_err(|text| gone("target", text))?.fill(byte);
    }
    Ok(())
}
