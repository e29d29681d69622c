//! A simulated device: what its profile says, counted and enforced.

use crate::event::SimEvent;
use crate::memory::SimBuffer;
use crate::profile::Profile;
use crate::stream::SimStream;
use llmrt_cpu::device::Cpu;
use llmrt_cpu::simd::Isa;
use llmrt_cpu::stream::CpuStream;
use llmrt_plugin::abi::types as c;
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Error, Event, GraphView, Host, PeerView, Result, Stream,
    StreamParams, Verdict,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// What all devices of the plugin share.
pub struct Shared {
    /// The host.
    pub host: Host,
    /// Says what the kernels can do.
    cpu: Cpu,
    isa: Isa,
    n_devices: AtomicUsize,
    n_streams: AtomicU64,
}

impl Shared {
    /// For the devices of one `init`.
    pub fn new(host: Host) -> Shared {
        let isa = Isa::best();
        let (n_devices, n_streams) = Default::default();
        Shared { host, cpu: Cpu::new(host, isa), isa, n_devices, n_streams }
    }
}

/// Memory in use, and how long things take.
pub struct Meter {
    profile: Arc<Profile>,
    used: AtomicU64,
}

impl Meter {
    /// Counts bytes, if they are there.
    pub fn take(&self, n: u64) -> Result<()> {
        let total = self.profile.memory;
        let fits = |used: u64| used.checked_add(n).filter(|used| *used <= total);
        let outcome = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        outcome.map(|_| ()).map_err(|used| Error::oom_device(n, total - used))
    }

    /// Counts bytes as free again.
    pub fn give_back(&self, n: u64) {
        self.used.fetch_sub(n, Ordering::Relaxed);
    }

    /// Takes the time of one command that moves `n` bytes.
    pub fn pause(&self, n: u64) {
        let transfer = match self.profile.bandwidth {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(n as f64 / rate as f64),
        };
        let time = self.profile.latency + transfer;
        if !time.is_zero() {
            std::thread::sleep(time);
        }
    }

    /// Whether copies from other devices are possible.
    pub fn p2p(&self) -> bool {
        self.profile.p2p
    }
}

/// One of a limited number of objects.
pub struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// The next one of at most `most` (0: no limit).
    fn take(count: &Arc<AtomicUsize>, most: usize, what: &str) -> Result<Slot> {
        let slot = Slot(count.clone());
        if count.fetch_add(1, Ordering::Relaxed) >= most && most > 0 {
            return Err(Error::internal(format!("the device has {most} {what}, and all are in use")));
        }
        Ok(slot)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A simulated device.
pub struct SimDevice {
    name: String,
    profile: Arc<Profile>,
    shared: Arc<Shared>,
    number: usize,
    meter: Arc<Meter>,
    streams: Arc<AtomicUsize>,
    events: Arc<AtomicUsize>,
}

impl SimDevice {
    /// A device of this name.
    pub fn new(name: String, profile: Arc<Profile>, shared: Arc<Shared>) -> SimDevice {
        let number = shared.n_devices.fetch_add(1, Ordering::Relaxed);
        let meter = Arc::new(Meter { profile: profile.clone(), used: AtomicU64::new(0) });
        let (streams, events) = Default::default();
        SimDevice { name, profile, shared, number, meter, streams, events }
    }
}

impl Device for SimDevice {
    fn info(&self) -> DeviceInfo {
        let p = &self.profile;
        let memory = BufferTypeInfo {
            kind: c::BUFFER_DEVICE,
            flags: c::BT_CONCURRENT_SET,
            alignment: p.alignment,
            max_size: p.max_alloc,
            name: "simulated memory".into(),
        };
        let p2p = if p.p2p { c::CAP_P2P } else { 0 };
        DeviceInfo {
            caps: c::CAP_ASYNC | c::CAP_EVENTS | c::CAP_PLAN | p2p,
            description: p.description.clone(),
            arch: p.arch.clone(),
            memory_total: p.memory,
            buffer_types: vec![memory],
            ..DeviceInfo::new(p.kind, &self.name)
        }
    }

    fn memory(&self) -> Result<(u64, u64)> {
        let total = self.profile.memory;
        Ok((total - self.meter.used.load(Ordering::Relaxed), total))
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        match self.profile.refuses(&graph.node(node)) {
            Some(reason) => Verdict::no(reason),
            None => self.shared.cpu.supports(graph, node),
        }
    }

    fn alloc(&self, _bt: u32, size: u64, _usage: u32) -> Result<Box<dyn Buffer>> {
        // The memory is played by the host's: what is not there ends in words, not in the system's killer.
        let (free, _) = self.shared.cpu.memory()?;
        if size > free && size <= self.profile.memory {
            return Err(Error::oom_host(size));
        }
        Ok(Box::new(SimBuffer::new(size, self.number, self.meter.clone())?))
    }

    fn stream(&self, params: &StreamParams) -> Result<Box<dyn Stream>> {
        let slot = Slot::take(&self.streams, self.profile.streams, "streams")?;
        let shared = &self.shared;
        let kernels = CpuStream::new(shared.host, shared.isa, params.n_threads as usize);
        let seed = self.profile.seed ^ shared.n_streams.fetch_add(1, Ordering::Relaxed) << 32;
        let queue = (self.profile.queue, seed);
        let stream = SimStream::new(kernels, queue, self.number, self.meter.clone(), shared.clone(), slot)?;
        Ok(Box::new(stream))
    }

    /// Copies between devices need both to reach each other; kernels never work on another's memory.
    fn accepts(&self, owner: &PeerView<'_>, _bt: u32) -> bool {
        self.profile.p2p && owner.is_ours() && owner.caps() & c::CAP_P2P != 0
    }

    fn event(&self) -> Result<Box<dyn Event>> {
        Ok(Box::new(SimEvent::new(Slot::take(&self.events, self.profile.events, "events")?)))
    }
}
