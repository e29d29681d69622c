//! Devices that claim only some ops: the CPU's kernels as another device, with memory of its own.

use llmrt_abi::Op;
use llmrt_abi::types::{BUFFER_DEVICE, DEVICE_ACCEL};
use llmrt_cpu::device::Cpu;
use llmrt_cpu::simd::Isa;
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Driver, GraphView, Host, PluginInfo, Reason, Result, Stream,
    StreamParams, Verdict,
};
use std::sync::Arc;

/// What a partial device claims.
pub struct Claims {
    /// Name of the plugin.
    pub name: &'static str,
    /// Whether it runs an op.
    pub runs: fn(Op) -> bool,
    /// Bytes of its memory.
    pub memory: u64,
    /// Answers this many nodes per graph with a yes that `compute` then breaks.
    pub retracts: fn(Op) -> bool,
}

const GIB: u64 = 1 << 30;
const NEVER: fn(Op) -> bool = |_| false;

/// The devices the tests use.
pub const CLAIMS: [Claims; 11] = [
    Claims { name: "matmul", runs: |op| matches!(op, Op::MulMat | Op::Add), memory: GIB, retracts: NEVER },
    Claims { name: "everything", runs: |_| true, memory: GIB, retracts: NEVER },
    Claims {
        name: "simple",
        runs: |op| !matches!(op, Op::Attention | Op::Glu),
        memory: GIB,
        retracts: NEVER,
    },
    Claims { name: "tiny", runs: |_| true, memory: 150_000, retracts: NEVER },
    Claims { name: "liar", runs: |_| true, memory: GIB, retracts: |op| matches!(op, Op::RmsNorm | Op::Glu) },
    Claims { name: "nothing", runs: NEVER, memory: GIB, retracts: NEVER },
    Claims { name: "tiny120", runs: |_| true, memory: 120_000, retracts: NEVER },
    Claims { name: "tiny90", runs: |_| true, memory: 90_000, retracts: NEVER },
    Claims { name: "tiny10", runs: |_| true, memory: 10_000, retracts: NEVER },
    Claims { name: "forgetful", runs: |_| true, memory: GIB, retracts: |op| op == Op::SetRows },
    Claims { name: "unsorted", runs: |_| true, memory: GIB, retracts: |op| op == Op::TopK },
];

/// The plugin of row `N` of [`CLAIMS`].
pub struct Partial<const N: usize>(Arc<PartialDevice<N>>);

struct PartialDevice<const N: usize>(Cpu);

impl<const N: usize> Driver for Partial<N> {
    const INFO: PluginInfo =
        PluginInfo { name: CLAIMS[N].name, version: "0", vendor: "llmrt tests", needs_host: 0 };

    fn init(host: Host) -> Result<Self> {
        Ok(Partial(Arc::new(PartialDevice(Cpu::new(host, Isa::best())))))
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        vec![self.0.clone()]
    }
}

impl<const N: usize> Device for PartialDevice<N> {
    fn info(&self) -> DeviceInfo {
        let memory = BufferTypeInfo {
            kind: BUFFER_DEVICE,
            flags: 0,
            alignment: 128,
            max_size: 0,
            name: "partial memory".into(),
        };
        DeviceInfo {
            memory_total: CLAIMS[N].memory,
            buffer_types: vec![memory],
            ..DeviceInfo::new(DEVICE_ACCEL, "0")
        }
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((CLAIMS[N].memory, CLAIMS[N].memory))
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        match graph.node(node).op() {
            Some(op) if (CLAIMS[N].runs)(op) => self.0.supports(graph, node),
            _ => Verdict { reason: Reason::Op.code(), ..Verdict::default() },
        }
    }

    fn alloc(&self, bt: u32, size: u64, usage: u32) -> Result<Box<dyn Buffer>> {
        self.0.alloc(bt, size, usage)
    }

    fn stream(&self, params: &StreamParams) -> Result<Box<dyn Stream>> {
        Ok(Box::new(PartialStream::<N>(self.0.stream(params)?)))
    }
}

struct PartialStream<const N: usize>(Box<dyn Stream>);

impl<const N: usize> Stream for PartialStream<N> {
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        let retracted = graph.nodes().position(|node| node.op().is_some_and(CLAIMS[N].retracts));
        match retracted {
            Some(node) => Err(llmrt_plugin::Error::unsupported("never meant it").at_node(node)),
            None => self.0.compute(graph),
        }
    }

    fn synchronize(&mut self) -> Result<()> {
        self.0.synchronize()
    }
}

macro_rules! tables {
    ($($module:ident = $n:literal,)*) => {
        $(mod $module {
            llmrt_plugin::plugin_table!(super::Partial<$n>);
        })*

        /// Entries of the plugins, in the order of [`CLAIMS`].
        pub const QUERIES: [llmrt_host::plugin::Query; 11] = [$($module::query,)*];
    };
}

tables! { matmul = 0, everything = 1, simple = 2, tiny = 3, liar = 4, nothing = 5, tiny120 = 6, tiny90 = 7, tiny10 = 8, forgetful = 9, unsorted = 10, }
