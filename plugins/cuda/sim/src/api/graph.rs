//! Captures and graphs.

use super::{api, give};
use crate::stream::Capture;
use crate::sys::*;
use crate::task::Task;
use crate::world::Exec;

api! {
    cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) |world| {
        let id = world.own_stream(stream)?;
        if mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL {
            world.report(format!("a capture of mode {mode:?}: other threads' calls would end it"));
        }
        let stream = world.streams.get_mut(&id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        if stream.capture.is_some() {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        let thread = std::thread::current().id();
        stream.capture = Some(Capture { thread, tasks: Vec::new(), invalid: false });
        Ok(())
    };
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) |world| {
        let id = world.own_stream(stream)?;
        let capture = world.streams.get_mut(&id).and_then(|stream| stream.capture.take());
        let capture = capture.ok_or(CUDA_ERROR_ILLEGAL_STATE)?;
        if capture.thread != std::thread::current().id() {
            return Err(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
        }
        if capture.invalid {
            return Err(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
        let id = world.handle();
        world.graphs.insert(id, capture.tasks);
        give(graph, id as CUgraph)
    };
    cuGraphInstantiateWithFlags(exec: *mut CUgraphExec, graph: CUgraph, flags: u64) |world| {
        let device = world.current()?;
        let tasks = world.graphs.get(&(graph as usize)).filter(|_| flags == 0).cloned();
        let tasks = tasks.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let id = world.handle();
        world.execs.insert(id, Exec { device, tasks });
        give(exec, id as CUgraphExec)
    };
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream) |world| {
        let id = world.own_stream(stream)?;
        let device = world.current()?;
        match world.execs.get(&(exec as usize)) {
            Some(exec) if exec.device == device => {}
            _ => return Err(CUDA_ERROR_INVALID_HANDLE),
        }
        world.count("graph", 1);
        world.enqueue(id, Task::Graph(exec as usize))
    };
    cuGraphExecDestroy(exec: CUgraphExec) |world| {
        world.current()?;
        world.execs.remove(&(exec as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    };
    cuGraphDestroy(graph: CUgraph) |world| {
        world.current()?;
        world.graphs.remove(&(graph as usize)).map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
    };
}
