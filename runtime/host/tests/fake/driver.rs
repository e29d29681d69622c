//! Two devices, of which `b` works only when synchronised and has events and plans; `scale` with scale 666 panics,
//! 1000 + n fails with scope n, 777 gives scratch memory back twice.

use llmrt_plugin::{
    self as kit, DType, GraphView, Result, TensorView, Verdict, abi::op::ScaleParams, abi::types as c,
};
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, RwLock};
use std::time::Duration;

kit::export_plugin!(Fake);

pub struct Fake(kit::Host);

impl kit::Driver for Fake {
    const INFO: kit::PluginInfo =
        kit::PluginInfo { name: "fake", version: "1", vendor: "tests", needs_host: c::NEEDS_THREADS };

    fn init(host: kit::Host) -> Result<Fake> {
        Ok(Fake(host))
    }

    const DEVMEM: Option<kit::DevmemLimits> = Some(kit::DevmemLimits { granularity: 0, va_limit: 0 });

    fn devices(&self) -> Vec<Arc<dyn kit::Device>> {
        ["a", "b"].map(|name| Arc::new(FakeDevice { name, host: self.0 }) as Arc<dyn kit::Device>).to_vec()
    }
}

struct FakeDevice {
    name: &'static str,
    host: kit::Host,
}

impl FakeDevice {
    fn is_async(&self) -> bool {
        self.name == "b"
    }
}

impl kit::Device for FakeDevice {
    fn info(&self) -> kit::DeviceInfo {
        let buffer_types = vec![kit::BufferTypeInfo { max_size: 1 << 20, ..kit::BufferTypeInfo::host() }];
        kit::DeviceInfo {
            caps: if self.is_async() { c::CAP_ASYNC | c::CAP_EVENTS } else { c::CAP_HOST_READ },
            buffer_types,
            ..kit::DeviceInfo::new(c::DEVICE_ACCEL, self.name)
        }
    }
    fn memory(&self) -> Result<(u64, u64)> {
        Ok((1, 2))
    }
    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        match graph.node(node).op() {
            Some(kit::Op::Scale) => Verdict::YES,
            _ => Verdict::no(kit::Reason::Op),
        }
    }
    fn alloc(&self, _bt: u32, size: u64, _usage: u32) -> Result<Box<dyn kit::Buffer>> {
        Ok(Box::new(Bytes(RwLock::new(vec![0u8; size as usize].into_boxed_slice()))))
    }
    fn stream(&self, params: &kit::StreamParams) -> Result<Box<dyn kit::Stream>> {
        let (queue, scratch) = (Vec::new(), params.scratch);
        Ok(Box::new(FakeStream { host: self.host, is_async: self.is_async(), queue, scratch }))
    }
    fn scratch_memory(&self) -> Option<&dyn kit::ScratchMemory> {
        Some(self)
    }
    fn event(&self) -> Result<Box<dyn kit::Event>> {
        Ok(Box::new(FakeEvent(Arc::new(AtomicBool::new(true)))))
    }
    unsafe fn import_host(&self, ptr: *mut u8, n: u64, _read_only: bool) -> Result<Box<dyn kit::Buffer>> {
        // SAFETY: the host promises the bytes; this device copies them.
        let bytes = unsafe { std::slice::from_raw_parts(ptr, n as usize) };
        Ok(Box::new(Bytes(RwLock::new(bytes.into()))))
    }
}

/// Scratch memory that is never there: only addresses are handed out, and counted.
impl kit::ScratchMemory for FakeDevice {
    fn raw_alloc(&self, size: u64) -> Result<u64> {
        static NEXT: AtomicU64 = AtomicU64::new(1 << 40);
        match size {
            0..0x10_0000 => Ok(NEXT.fetch_add(0x10_0000, SeqCst)),
            _ => Err(kit::Error::oom_device(size, 0x10_0000)),
        }
    }
    fn raw_free(&self, _addr: u64) {}
}

struct Bytes(RwLock<Box<[u8]>>);

impl kit::Buffer for Bytes {
    fn set(&self, t: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        let at = (t.offset() + off) as usize;
        self.0.write().unwrap()[at..at + src.len()].copy_from_slice(src);
        Ok(())
    }
    fn get(&self, t: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        let at = (t.offset() + off) as usize;
        dst.copy_from_slice(&self.0.read().unwrap()[at..at + dst.len()]);
        Ok(())
    }
    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        self.0.write().unwrap()[off as usize..(off + n) as usize].fill(byte);
        Ok(())
    }
}

struct FakeStream {
    host: kit::Host,
    is_async: bool,
    queue: Vec<Work>,
    scratch: Option<kit::Scratch>,
}

enum Work {
    Graph(GraphView<'static>),
    Event(Arc<AtomicBool>),
}

/// Set when the stream comes to it.
struct FakeEvent(Arc<AtomicBool>);

impl kit::Event for FakeEvent {
    fn query(&self) -> Result<bool> {
        Ok(self.0.load(SeqCst))
    }
    fn wait(&self, _timeout: Duration) -> Result<bool> {
        self.query()
    }
}

impl kit::Stream for FakeStream {
    fn features(&self) -> kit::StreamFeatures {
        kit::StreamFeatures { events: self.is_async, plans: self.is_async, ..Default::default() }
    }
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        if !self.is_async {
            return self.run(graph);
        }
        // SAFETY: used up in `synchronize`, until when the host keeps the graph.
        self.queue.push(Work::Graph(unsafe { graph.detach() }));
        Ok(())
    }
    fn synchronize(&mut self) -> Result<()> {
        std::mem::take(&mut self.queue).into_iter().try_for_each(|work| match work {
            Work::Graph(graph) => self.run(&graph),
            Work::Event(event) => {
                event.store(true, SeqCst);
                Ok(())
            }
        })
    }
    fn event_record(&mut self, event: &dyn kit::Event) -> Result<()> {
        let event = (event as &dyn Any).downcast_ref::<FakeEvent>().unwrap();
        event.0.store(false, SeqCst);
        self.queue.push(Work::Event(event.0.clone()));
        Ok(())
    }
    fn plan_create(&mut self, graph: &GraphView<'_>) -> Result<Box<kit::Plan>> {
        // SAFETY: the plan is the only user, and the host keeps the graph as long as the plan.
        Ok(Box::new(unsafe { graph.detach() }))
    }
    fn plan_compute(&mut self, plan: &mut kit::Plan, _run_id: u64) -> Result<()> {
        let graph = *plan.downcast_ref::<GraphView<'static>>().unwrap();
        self.compute(&graph)
    }
}

impl FakeStream {
    fn run(&mut self, graph: &GraphView<'_>) -> Result<()> {
        if self.host.cancelled(graph.run_id()) {
            return Err(kit::Error::cancelled());
        }
        graph.nodes().enumerate().try_for_each(|(i, node)| {
            let p = ScaleParams::from_bytes(node.params_bytes()).unwrap();
            let (x, y) = (node.src(0).unwrap(), node.dst());
            assert_eq!(x.dtype(), Some(DType::F32));
            let scratch = self.scratch.as_mut().unwrap();
            let piece = scratch.alloc((p.bias * 100.0) as u64, 64)?;
            scratch.free(piece);
            if p.scale == 777.0 {
                scratch.free(piece);
            }
            let threads = self.host.threads().unwrap();
            if p.scale >= 1000.0 {
                let scope = kit::Scope::from_code(p.scale as u32 - 1000);
                return Err(kit::Error::internal("as requested").scope(scope).at_node(i).vendor(-7));
            }
            let values = x.buffer::<Bytes>().unwrap().0.read().unwrap()[x.offset() as usize..][..16].to_vec();
            let sums = std::sync::Mutex::new(vec![0u8; 16]);
            threads.run(2, &|team| {
                assert!(p.scale != 666.0, "the devil's number");
                team.barrier();
                for k in team.share(4, 1) {
                    let v = f32::from_ne_bytes(values[k * 4..][..4].try_into().unwrap()) * p.scale + p.bias;
                    sums.lock().unwrap()[k * 4..][..4].copy_from_slice(&v.to_ne_bytes());
                }
            })?;
            let out = sums.into_inner().unwrap();
            y.buffer::<Bytes>().unwrap().0.write().unwrap()[y.offset() as usize..][..16]
                .copy_from_slice(&out);
            Ok(())
        })
    }
}
