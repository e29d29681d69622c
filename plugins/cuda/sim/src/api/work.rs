//! Streams, events, and copies in the order of a stream.

use super::memory::is_pinned;
use super::{api, give};
use crate::stream::Stream;
use crate::sys::*;
use crate::task::Task;
use crate::world::{Answer, World};
use std::ffi::{c_int, c_uint, c_void};

/// Device memory that a copy names must be there when it is enqueued, and be this card's.
fn check(world: &mut World, at: u64, n: usize, device: usize) -> Answer {
    match world.space.bytes(at, n) {
        Some((owner, _)) if owner == device => Ok(()),
        found => {
            let what = if found.is_some() { "another card's" } else { "in no allocation" };
            world.report(format!("a copy of {n} bytes at {at:x}, which are {what}"));
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    }
}

fn is_capturing(world: &World, id: usize) -> bool {
    world.streams.get(&id).is_some_and(|stream| stream.capture.is_some())
}

/// A wait for a stream that is captured ends its capture.
fn not_captured(world: &mut World, id: usize) -> Answer {
    match world.streams.get_mut(&id).and_then(|stream| stream.capture.as_mut()) {
        None => Ok(()),
        Some(capture) => {
            capture.invalid = true;
            Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}

api! {
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, _priority: c_int) |world| {
        let device = world.current()?;
        if flags > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if flags == 0 {
            world.report("a stream that waits for the default stream".into());
        }
        let id = world.handle();
        world.streams.insert(id, Stream::new(device));
        give(stream, id as CUstream)
    };
    cuStreamDestroy_v2(stream: CUstream) |world| {
        let id = world.own_stream(stream)?;
        let _ = world.finish(id);
        world.streams.remove(&id);
        Ok(())
    };
    cuStreamSynchronize(stream: CUstream) |world| {
        if stream.is_null() {
            let device = world.current()?;
            return world.finish_default_stream(device);
        }
        let id = world.own_stream(stream)?;
        not_captured(world, id)?;
        world.n_waits += 1;
        if world.n_waits == world.config.wait {
            return Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        world.count("sync", 1);
        world.finish(id)
    };
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint) |world| {
        let id = world.own_stream(stream)?;
        let Some((_, recorded)) = world.events.get(&(event as usize)).copied().filter(|_| flags == 0) else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        match recorded {
            Some((of, place)) if of != id => world.enqueue(id, Task::Wait(of, place)),
            _ => Ok(()),
        }
    };
    cuEventCreate(event: *mut CUevent, flags: c_uint) |world| {
        let device = world.current()?;
        if flags > 3 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let id = world.handle();
        world.events.insert(id, (device, None));
        give(event, id as CUevent)
    };
    cuEventDestroy_v2(event: CUevent) |world| {
        world.current()?;
        world.events.remove(&(event as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    };
    cuEventRecord(event: CUevent, stream: CUstream) |world| {
        let id = world.own_stream(stream)?;
        let device = world.current()?;
        match world.events.get(&(event as usize)) {
            Some((owner, _)) if *owner == device => {}
            Some(_) => {
                world.report("an event was recorded on a stream of another card".into());
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
            None => return Err(CUDA_ERROR_INVALID_HANDLE),
        }
        world.enqueue(id, Task::Mark)?;
        let place = world.streams.get(&id).map_or(0, |stream| stream.n_enqueued);
        world.events.insert(event as usize, (device, Some((id, place))));
        Ok(())
    };
    cuEventQuery(event: CUevent) |world| {
        world.current()?;
        let Some((_, recorded)) = world.events.get(&(event as usize)).copied() else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        let Some((id, place)) = recorded else { return Ok(()) };
        if world.streams.get(&id).is_none_or(|stream| stream.is_past(place)) {
            return world.current().map(|_| ());
        }
        // Work proceeds only on queries: the next query finds it done.
        world.run_to(id, place)?;
        Err(CUDA_ERROR_NOT_READY)
    };
    cuMemcpyHtoDAsync_v2(dst: CUdeviceptr, src: *const c_void, n: usize, stream: CUstream) |world| {
        let id = world.own_stream(stream)?;
        let device = world.current()?;
        check(world, dst, n, device)?;
        world.count("h2d", 1);
        if is_pinned(world, src as u64, n) {
            return world.enqueue(id, Task::FromHost(dst, src as u64, n));
        }
        if is_capturing(world, id) {
            return not_captured(world, id);
        }
        // Memory that is not pinned is copied away before the call returns.
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(src.cast::<u8>(), n) }.to_vec();
        world.enqueue(id, Task::Write(dst, bytes))
    };
    cuMemcpyDtoHAsync_v2(dst: *mut c_void, src: CUdeviceptr, n: usize, stream: CUstream) |world| {
        let id = world.own_stream(stream)?;
        let device = world.current()?;
        check(world, src, n, device)?;
        world.count("d2h", 1);
        world.enqueue(id, Task::ToHost(dst as u64, src, n))?;
        match is_pinned(world, dst as u64, n) {
            true => Ok(()),
            false if is_capturing(world, id) => not_captured(world, id),
            // To memory that is not pinned the call returns when it is done.
            false => world.finish(id),
        }
    };
    cuMemcpyDtoDAsync_v2(dst: CUdeviceptr, src: CUdeviceptr, n: usize, stream: CUstream) |world| {
        let id = world.own_stream(stream)?;
        let device = world.current()?;
        check(world, dst, n, device)?;
        check(world, src, n, device)?;
        world.count("d2d", 1);
        world.enqueue(id, Task::Copy(dst, src, n))
    };
    cuMemcpyPeerAsync(dst: CUdeviceptr, to: CUcontext, src: CUdeviceptr, from: CUcontext, n: usize,
        stream: CUstream) |world| {
        let id = world.own_stream(stream)?;
        check(world, dst, n, (to as usize).wrapping_sub(1))?;
        check(world, src, n, (from as usize).wrapping_sub(1))?;
        // From card to card, or through the host.
        let direct = world.devices[to as usize - 1].peers.contains(&(from as usize - 1));
        world.count(if direct { "peer" } else { "staged" }, 1);
        world.enqueue(id, Task::Copy(dst, src, n))
    };
}
