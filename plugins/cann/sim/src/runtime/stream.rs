//! The functions of streams.

use crate::fault::{Answer, ensure, fault};
use crate::runtime::capture;
use crate::runtime::context::{current, default_stream};
use crate::runtime::queue::Stream;
use crate::sys::*;
use crate::world::{World, api, put};
use std::sync::Arc;
use std::time::Duration;

api! { cann_acl;
    fn aclrtCreateStream(stream: *mut aclrtStream) w => {
        put(stream, create(w)? as aclrtStream)
    }
    fn aclrtCreateStreamWithConfig(stream: *mut aclrtStream, _priority: u32, flags: u32) w => {
        ensure(flags < 0x40, ACL_ERROR_RT_PARAM_INVALID, || format!("flags {flags:#x}"))?;
        put(stream, create(w)? as aclrtStream)
    }
    /// Waits for the stream's work.
    fn aclrtDestroyStream(stream: aclrtStream) w => {
        ensure(!stream.is_null(), ACL_ERROR_INVALID_PARAM, || "NULL".into())?;
        let stream = resolve(w, stream)?;
        ensure(!capture::is_capturing(&stream), ACL_ERROR_RT_STREAM_CAPTURED, || "it is being captured".into())?;
        w.streams.remove(stream.handle);
        // A fault is reported by synchronising calls, not here.
        let _ = stream.synchronize(w, None);
        stream.close();
        w.cards[stream.device].lock().n_streams -= 1;
        Ok(())
    }
    fn aclrtSynchronizeStream(stream: aclrtStream) w => {
        wait(w, stream, None)
    }
    fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, ms: i32) w => {
        ensure(ms == -1 || ms > 0, ACL_ERROR_RT_PARAM_INVALID, || format!("{ms} ms"))?;
        wait(w, stream, u64::try_from(ms).ok().map(Duration::from_millis))
    }
    fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) w => {
        let stream = resolve(w, stream)?;
        stream.not_captured(w, "aclrtStreamQuery")?;
        let done = stream.is_done(stream.n_enqueued());
        put(status, if done { ACL_STREAM_STATUS_COMPLETE } else { ACL_STREAM_STATUS_NOT_READY })
    }
    /// On A2 and A3 (the page of aclrtStreamAbort).
    fn aclrtStreamAbort(stream: aclrtStream) w => {
        ensure(!stream.is_null(), ACL_ERROR_INVALID_PARAM, || "NULL".into())?;
        let stream = resolve(w, stream)?;
        ensure(w.chip.is_a2(), ACL_ERROR_RT_FEATURE_NOT_SUPPORT, || "not on this chip".into())?;
        stream.abort();
        Ok(())
    }
    fn aclrtSynchronizeDevice() w => {
        let device = current(w)?.device;
        w.trace.count("sync", 1);
        capture::forbid_waits(w, device)?;
        synchronize_device(w, device)
    }
}

fn create(w: &Arc<World>) -> Answer<usize> {
    let context = current(w)?;
    let limit = if w.config.streams > 0 { w.config.streams } else { w.chip.streams };
    let mut card = w.cards[context.device].lock();
    let full = || format!("card {} has {limit} streams already", context.device);
    ensure(card.n_streams < limit, ACL_ERROR_RT_NO_STREAM_RESOURCE, full)?;
    card.n_streams += 1;
    Ok(w.streams.insert_with(|handle| Stream::new(w, &context, handle)))
}

/// A stream of the calling thread's context; NULL is the default one.
pub fn resolve(w: &Arc<World>, handle: aclrtStream) -> Answer<Arc<Stream>> {
    let context = current(w)?;
    if handle.is_null() {
        if let Some(graph) = capture::active_for_thread(w) {
            graph.invalidate();
            return fault(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "the default stream while capturing");
        }
        return Ok(default_stream(w, &context));
    }
    let Some(stream) = w.streams.get(handle as usize) else {
        return fault(ACL_ERROR_RT_PARAM_INVALID, format!("{handle:p} is no stream"));
    };
    let same = stream.context == context.handle;
    ensure(same, ACL_ERROR_RT_STREAM_CONTEXT, || "a stream of another context than the thread's".into())?;
    Ok(stream)
}

fn wait(w: &Arc<World>, handle: aclrtStream, timeout: Option<Duration>) -> Answer {
    let stream = resolve(w, handle)?;
    w.trace.count("sync", 1);
    stream.not_captured(w, "synchronising")?;
    stream.synchronize(w, timeout)
}

/// Waits for all streams of a card; the first fault is the answer.
pub fn synchronize_device(w: &Arc<World>, device: usize) -> Answer {
    let mut streams: Vec<_> = w.streams.all().into_iter().filter(|stream| stream.device == device).collect();
    streams.extend(w.contexts.all().iter().filter(|c| c.device == device).map(|c| default_stream(w, c)));
    streams.iter().map(|stream| stream.synchronize(w, None)).fold(Ok(()), Answer::and)
}
