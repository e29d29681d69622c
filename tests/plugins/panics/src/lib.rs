//! A driver in Rust that adds F32 vectors, and panics in the call that `--plugin-option panics.in=CALL` names: `init`, `open`,
//! `memory`, `supports`, `alloc`, `set`, `stream`, `compute`, `synchronize`. The kit has to make errors of the panics,
//! and `llmrt conform` has to name them.

mod memory;

use llmrt_plugin::abi::types::{BUFFER_DEVICE, DEVICE_ACCEL};
use llmrt_plugin::{
    Buffer, BufferTypeInfo, DType, Device, DeviceInfo, Driver, Error, GraphView, Host, NodeView, Op,
    PluginInfo, Reason, Result, Stream, StreamParams, TensorView, Verdict,
};
use memory::{MEMORY, Memory};
use std::sync::Arc;

llmrt_plugin::export_plugin!(Panics, priority = "-100");

/// The plugin.
struct Panics(Where);

/// The call that panics.
#[derive(Clone)]
struct Where(Arc<str>);

impl Where {
    /// Panics if this is the call.
    fn am_in(&self, call: &str) {
        assert!(&*self.0 != call, "panics on request in {call}");
    }
}

impl Driver for Panics {
    const INFO: PluginInfo =
        PluginInfo { name: "panics", version: env!("CARGO_PKG_VERSION"), vendor: "tests", needs_host: 0 };

    fn init(host: Host) -> Result<Panics> {
        let at = Where(host.option("panics.in").unwrap_or_default().into());
        at.am_in("init");
        Ok(Panics(at))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![Arc::new(Adder(self.0.clone()))]
    }
}

struct Adder(Where);

impl Device for Adder {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            description: "adds, and panics".into(),
            memory_total: MEMORY,
            buffer_types: vec![BufferTypeInfo { kind: BUFFER_DEVICE, flags: 0, ..BufferTypeInfo::host() }],
            ..DeviceInfo::new(DEVICE_ACCEL, "0")
        }
    }

    fn open(&self) -> Result<()> {
        self.0.am_in("open");
        Ok(())
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.0.am_in("memory");
        Ok((MEMORY - memory::in_use(), MEMORY))
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        self.0.am_in("supports");
        verdict(&graph.node(node))
    }

    fn alloc(&self, _bt: u32, size: u64, _usage: u32) -> Result<Box<dyn Buffer>> {
        self.0.am_in("alloc");
        Ok(Box::new(Memory::new(size, self.0.clone())?))
    }

    fn stream(&self, _params: &StreamParams) -> Result<Box<dyn Stream>> {
        self.0.am_in("stream");
        Ok(Box::new(Sums(self.0.clone())))
    }
}

fn verdict(node: &NodeView<'_>) -> Verdict {
    let plain = |t: &TensorView<'_>| t.dtype() == Some(DType::F32) && t.is_contiguous() && t.layout_id() == 0;
    match (node.op(), node.src(0), node.src(1)) {
        (Some(Op::Add), Some(a), Some(b)) => {
            let (y, tail) = (node.dst(), node.params_bytes());
            if tail.iter().any(|&b| b != 0) {
                Verdict::no(Reason::Param)
            } else if a.layout_id() != 0 || b.layout_id() != 0 || y.layout_id() != 0 {
                Verdict::no(Reason::Layout)
            } else if node.n_src() == 2
                && [&a, &b, &y].into_iter().all(plain)
                && a.ne() == b.ne()
                && a.ne() == y.ne()
            {
                Verdict::YES
            } else {
                Verdict::no(Reason::Shape)
            }
        }
        (Some(Op::Add), ..) => Verdict::no(Reason::Shape),
        _ => Verdict::no(Reason::Op),
    }
}

struct Sums(Where);

impl Stream for Sums {
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        for (i, node) in graph.nodes().enumerate() {
            if verdict(&node).support == 0 {
                return Err(Error::unsupported("not a plain sum").at_node(i));
            }
        }
        for node in graph.nodes() {
            self.0.am_in("compute");
            let sources = [node.src(0), node.src(1)];
            let (Some(a), Some(b)) = (sources[0].map(memory::floats), sources[1].map(memory::floats)) else {
                return Err(Error::invalid("a sum without two sources"));
            };
            memory::set_floats(node.dst(), a.iter().zip(&b).map(|(a, b)| a + b));
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        self.0.am_in("synchronize");
        Ok(())
    }
}
