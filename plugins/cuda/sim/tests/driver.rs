//! What the driver forbids and the plugin must not do: the simulator finds it.

use cuda_simulator::sys::*;
use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> CUresult;
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> CUresult;
    fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
    fn cuCtxSynchronize() -> CUresult;
    fn cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int) -> CUresult;
    fn cuStreamSynchronize(stream: CUstream) -> CUresult;
    fn cuStreamBeginCapture_v2(stream: CUstream, mode: CUstreamCaptureMode) -> CUresult;
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult;
}

/// Captures nothing on a stream while another thread does something; what that answered, and what the end of the capture.
fn during_a_capture(call: unsafe extern "C" fn(CUstream) -> CUresult) -> (CUresult, CUresult) {
    // SAFETY: the driver's functions as documented; outputs are ours.
    unsafe {
        let (mut context, mut stream, mut other, mut graph) =
            (null_mut(), null_mut(), null_mut(), null_mut());
        assert_eq!(cuInit(0), 0);
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
        assert_eq!(cuStreamCreateWithPriority(&mut stream, CU_STREAM_NON_BLOCKING, 0), 0);
        assert_eq!(cuStreamCreateWithPriority(&mut other, CU_STREAM_NON_BLOCKING, 0), 0);
        assert_eq!(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), 0);
        let (context, other) = (context as usize, other as usize);
        let thread = std::thread::spawn(move || {
            cuCtxSetCurrent(context as CUcontext);
            call(other as CUstream)
        });
        (thread.join().unwrap(), cuStreamEndCapture(stream, &mut graph))
    }
}

unsafe extern "C" fn wait_for_the_context(_: CUstream) -> CUresult {
    // SAFETY: no arguments.
    unsafe { cuCtxSynchronize() }
}

#[test]
fn a_wait_for_the_context_is_refused_while_any_thread_captures_and_ends_the_capture() {
    let refused = (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(during_a_capture(wait_for_the_context), refused);
    assert_eq!(during_a_capture(cuStreamSynchronize), (CUDA_SUCCESS, CUDA_SUCCESS), "of another stream");
}
