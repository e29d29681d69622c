//! Devices, buffers, streams, plans and graphs, over a driver written with the kit and registered in process.

mod fake;

use fake::{floats, scale_graph, with_device};
use llmrt_abi::{DType, Op, Scope, Status, types as c};
use llmrt_host::{Buffer, DeviceState, HostMemory, NodeDesc, PoolKind, RawGraphBuilder, TensorDesc};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

fn read_y(buffer: &Buffer) -> Vec<u8> {
    let mut y = vec![0; 16];
    buffer.read(64, &mut y).unwrap();
    y
}

#[test]
fn a_graph_runs_on_the_hosts_threads() {
    with_device(|_, device| {
        let (graph, buffer) = scale_graph(device, 10.0);
        device.stream(2).unwrap().compute(&graph).unwrap();
        assert_eq!(read_y(&buffer), floats(&[11.0, 21.0, 31.0, 41.0]));
        assert_eq!(device.supports(&graph, 0..1).unwrap(), [c::Verdict::YES]);
    });
}

#[test]
fn a_plan_stands_in_where_the_plugin_has_none_and_follows_new_addresses() {
    with_device(|_, device| {
        let (graph, first) = scale_graph(device, 2.0);
        let stream = device.stream(1).unwrap();
        let plan = stream.plan(graph.clone()).unwrap();
        stream.run(&plan, 1).unwrap();
        assert_eq!(read_y(&first), floats(&[3.0, 5.0, 7.0, 9.0]));

        let second = device.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
        let mut moved = graph.clone();
        moved.bind(1, &second, 64).unwrap();
        assert_eq!(moved.uid(), graph.uid());
        assert_ne!(moved.binding_gen(), graph.binding_gen());
        plan.update(moved).unwrap();
        stream.run(&plan, 2).unwrap();
        assert_eq!(read_y(&second), read_y(&first));
    });
}

#[test]
fn a_stream_gets_scratch_memory_and_the_host_keeps_it_between_runs() {
    with_device(|_, device| {
        let (graph, _buffer) = scale_graph(device, 2.0);
        let stream = device.stream(1).unwrap();
        (0..3).for_each(|_| stream.compute(&graph).unwrap());
        let stats = stream.pool_stats().unwrap();
        assert_eq!((stats.grows, stats.mapped, stats.cached, stats.in_use), (1, 256, 256, 0));
        assert_eq!((stats.kind, stats.peak), (PoolKind::Legacy, 256));
    });
}

#[test]
fn scratch_memory_freed_twice_is_an_error() {
    with_device(|_, device| {
        let stream = device.stream(1).unwrap();
        let (graph, _buffer) = scale_graph(device, 777.0);
        let error = stream.compute(&graph).unwrap_err();
        assert!(error.to_string().contains("pool: freed 256 bytes at"), "{error}");
        let (graph, _buffer) = scale_graph(device, 2.0);
        stream.compute(&graph).unwrap();
    });
}

#[test]
fn a_cancelled_run_stops() {
    with_device(|host, device| {
        let (graph, _buffer) = scale_graph(device, 2.0);
        let stream = device.stream(1).unwrap();
        let plan = stream.plan(graph).unwrap();
        host.cancel(77);
        assert_eq!(stream.run(&plan, 77).unwrap_err().status(), Status::Cancelled);
        host.forget_run(77);
        assert!(stream.run(&plan, 77).is_ok());
    });
}

#[test]
fn asynchronous_calls_work_on_a_device_that_has_none() {
    with_device(|host, device| {
        let buffer = device.alloc(0, 64, c::USAGE_ANY).unwrap();
        let (stream, t) = (device.stream(1).unwrap(), TensorDesc::bytes(0, 64));
        stream.set_async(&buffer, &t, vec![7; 8].into(), 3).unwrap();
        let read = stream.get_async(&buffer, &t, 2, 3).unwrap();
        assert_eq!(stream.take(read).unwrap(), [0, 7, 7]);

        let event = device.event().unwrap();
        stream.record(&event).unwrap();
        stream.wait(&event).unwrap();
        assert!(event.query().unwrap());

        let other = host.device("fake:b").unwrap();
        let (there, other_stream) = (other.alloc(0, 64, c::USAGE_ANY).unwrap(), other.stream(1).unwrap());
        other_stream.copy_async(&stream, (&there, &t), (&buffer, &t)).unwrap();
        let mut bytes = [0; 4];
        there.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0, 0, 0, 7]);
    });
}

#[test]
fn an_asynchronous_device_keeps_what_it_was_given_until_it_is_synchronised() {
    with_device(|host, _| {
        let device = host.device("fake:b").unwrap();
        let (graph, buffer) = scale_graph(&device, 10.0);
        let (stream, event) = (device.stream(1).unwrap(), device.event().unwrap());
        stream.compute(&graph).unwrap();
        stream.record(&event).unwrap();
        drop(graph);
        assert_eq!((read_y(&buffer), event.query()), (vec![0; 16], Ok(false)));
        stream.synchronize().unwrap();
        assert_eq!((read_y(&buffer), event.query()), (floats(&[11.0, 21.0, 31.0, 41.0]), Ok(true)));
    });
}

#[test]
fn a_stale_plan_of_the_plugin_is_made_again() {
    with_device(|host, _| {
        let device = host.device("fake:b").unwrap();
        let (graph, first) = scale_graph(&device, 2.0);
        let stream = device.stream(1).unwrap();
        assert!(stream.has_plans());
        let plan = stream.plan(graph.clone()).unwrap();
        let second = device.alloc(0, 128, c::USAGE_COMPUTE).unwrap();
        let mut moved = graph;
        moved.bind(1, &second, 64).unwrap();
        stream.run(&plan, 1).unwrap();
        plan.update(moved).unwrap();
        stream.run(&plan, 2).unwrap();
        drop(plan);
        assert_eq!(read_y(&first), floats(&[3.0, 5.0, 7.0, 9.0]));
        assert_eq!(read_y(&second), read_y(&first));
    });
}

#[test]
fn each_scope_leaves_the_rest_working() {
    with_device(|_, device| {
        let stream = device.stream(1).unwrap();
        let (call, _b0) = scale_graph(device, 1000.0);
        let (broken, _b1) = scale_graph(device, 1001.0);
        let e = stream.compute(&call).unwrap_err();
        let call = e.call().unwrap();
        assert_eq!((call.node, call.vendor_code, call.message.as_str()), (Some(0), -7, "as requested"));
        assert!(stream.synchronize().is_ok(), "a failed call leaves the stream");

        assert_eq!(stream.compute(&broken).unwrap_err().scope(), Scope::Stream);
        assert!(stream.synchronize().is_err(), "a failed stream stays failed");
        assert!(device.stream(1).unwrap().synchronize().is_ok(), "a new one works");

        let (lost, buffer) = scale_graph(device, 1002.0);
        assert_eq!(device.stream(1).unwrap().compute(&lost).unwrap_err().scope(), Scope::Device);
        assert!(matches!(device.state(), DeviceState::Quarantined(_)));
        assert!(buffer.fill(0, 1, 0).is_err());
    });
}

/// A graph that is refused, for a problem with these words.
fn check_refused(words: &str, build: impl FnOnce(&mut RawGraphBuilder, &Buffer) -> llmrt_host::Result<()>) {
    with_device(|_, device| {
        let buffer = device.alloc(0, 64, c::USAGE_ANY).unwrap();
        let e = build(&mut RawGraphBuilder::new(), &buffer).unwrap_err().to_string();
        assert!(e.contains(words), "{e}");
    });
}

#[test]
fn tensors_are_inside_their_buffers() {
    let f32s = |n| TensorDesc::contiguous(DType::F32, [n, 1, 1, 1]);
    check_refused("end past the 64 bytes", |g, b| {
        g.tensor(&TensorDesc { buffer: Some(b), offset: 4, name: "t", ..f32s(16) }).map(|_| ())
    });
    check_refused("end past the 64 bytes", |g, b| {
        g.tensor(&TensorDesc { buffer: Some(b), offset: u64::MAX, ..f32s(1) }).map(|_| ())
    });
    check_refused("overflow", |g, b| {
        g.tensor(&TensorDesc { buffer: Some(b), nb: [4, u64::MAX / 2, 0, 0], ne: [1, 4, 1, 1], ..f32s(1) })
            .map(|_| ())
    });
    check_refused("blocks of 256", |g, _| {
        g.tensor(&TensorDesc::contiguous(DType::Q4_K, [100, 1, 1, 1])).map(|_| ())
    });
}

#[test]
fn nodes_name_tensors_of_their_graph() {
    check_refused("row 5, which is not there", |g, _| {
        g.node(&NodeDesc { op: 1, op_version: 1, dst: 5, srcs: &[], params: &[] })
    });
}

#[test]
fn only_graphs_with_memory_run() {
    with_device(|_, device| {
        let mut g = RawGraphBuilder::new();
        let t =
            g.tensor(&TensorDesc { name: "t", ..TensorDesc::contiguous(DType::F32, [4, 1, 1, 1]) }).unwrap();
        g.node(&NodeDesc { op: Op::Scale.id(), op_version: 1, dst: t, srcs: &[Some(t)], params: &[] })
            .unwrap();
        let e = device.stream(1).unwrap().compute(&g.build()).unwrap_err().to_string();
        assert!(e.contains("tensor `t`: has no memory"), "{e}");
    });
}

#[test]
fn ranges_and_sizes_are_checked_before_the_plugin_sees_them() {
    with_device(|_, device| {
        let buffer = device.alloc(0, 64, c::USAGE_ANY).unwrap();
        assert!(buffer.write(60, &[0; 5]).is_err());
        assert!(buffer.read(65, &mut [0]).is_err());
        assert!(buffer.fill(u64::MAX, 2, 0).is_err());
        assert!(buffer.set(&TensorDesc::bytes(0, 8), &[0; 4], 6).is_err());
        assert!(device.alloc(1, 64, c::USAGE_ANY).is_err());
        let e = device.alloc(0, 2 << 20, c::USAGE_ANY).unwrap_err();
        assert!(e.is_oom());
        assert_eq!(e.call().unwrap().bytes_requested, 2 << 20);
    });
}

static HELD: AtomicUsize = AtomicUsize::new(0);

struct Held(Vec<u8>);

// SAFETY: the vector is neither changed nor moved.
unsafe impl HostMemory for Held {
    fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }
    fn len(&self) -> u64 {
        self.0.len() as u64
    }
    fn is_read_only(&self) -> bool {
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_add(1, SeqCst);
    }
}

#[test]
fn imported_memory_lives_as_long_as_graphs_use_it() {
    with_device(|_, device| {
        let before = HELD.load(SeqCst);
        let buffer = device.import_host(Arc::new(Held(floats(&[1.0, 2.0])))).unwrap();
        let mut g = RawGraphBuilder::new();
        let x = TensorDesc { buffer: Some(&buffer), ..TensorDesc::contiguous(DType::F32, [2, 1, 1, 1]) };
        g.tensor(&x).unwrap();
        let graph = g.build();
        let clone = graph.clone();
        drop((buffer, graph));
        assert_eq!(HELD.load(SeqCst), before);
        drop(clone);
        assert_eq!(HELD.load(SeqCst), before + 1);
    });
}

#[test]
fn a_plugin_is_registered_once_per_host() {
    with_device(|host, _| {
        let e = host.register_builtin(fake::query).unwrap_err().to_string();
        assert!(e.contains("a plugin named fake is loaded already"), "{e}");
        let names: Vec<_> = host.devices().iter().map(|d| d.name().to_string()).collect();
        assert_eq!(names, ["fake:a", "fake:b"]);
    });
}

#[test]
fn tensors_without_elements_have_no_bytes_and_fit_anywhere() {
    let empty = TensorDesc::contiguous(DType::F32, [8, 0, 3, 1]);
    assert_eq!(empty.nbytes(), Ok(0));
    let mut g = RawGraphBuilder::new();
    let (a, b) = (g.tensor(&empty).unwrap(), g.tensor(&empty).unwrap());
    g.node(&NodeDesc { op: Op::Add.id(), op_version: 1, dst: b, srcs: &[Some(a), Some(a)], params: &[] })
        .unwrap();
    assert_eq!(g.build().n_nodes(), 1);
    let huge = TensorDesc::contiguous(DType::F32, [u64::MAX, 0, 1, 1]);
    assert!(huge.nbytes().unwrap_err().to_string().contains("each must be at most"));
}
