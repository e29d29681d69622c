//! A driver written with the kit, registered in process, and graphs for it.

mod driver;

use llmrt_abi::{DType, Op, types as c};
use llmrt_host::{Buffer, Device, Host, HostOptions, NodeDesc, RawGraph, RawGraphBuilder, TensorDesc};
use std::sync::{Arc, Mutex};

pub use driver::query;

/// Tests take turns: the plugin is one per process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a test on the first device of a new host.
pub fn with_device(test: impl FnOnce(&Host, &Arc<Device>)) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let log: llmrt_host::LogSink = Arc::new(|_, _, _| {});
    let host = Host::new(HostOptions { n_threads: Some(2), log: Some(log), ..HostOptions::default() });
    host.register_builtin(query).unwrap();
    let device = host.device("fake:a").unwrap();
    test(&host, &device);
}

pub fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

/// y = x·scale + 1 on four numbers; x at byte 0 of the buffer, y at byte 64.
pub fn scale_graph(device: &Arc<Device>, scale: f32) -> (RawGraph, Buffer) {
    let buffer = device.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
    buffer.write(0, &floats(&[1.0, 2.0, 3.0, 4.0])).unwrap();
    let x =
        TensorDesc { buffer: Some(&buffer), name: "x", ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) };
    let mut g = RawGraphBuilder::new();
    let src = g.tensor(&x).unwrap();
    let dst = g.tensor(&TensorDesc { offset: 64, name: "y", ..x }).unwrap();
    let params = llmrt_abi::op::ScaleParams { scale, bias: 1.0 }.to_bytes();
    let node = NodeDesc { op: Op::Scale.id(), op_version: 1, dst, srcs: &[Some(src)], params: &params };
    g.node(&node).unwrap();
    (g.build(), buffer)
}
