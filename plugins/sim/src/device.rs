//! A simulated device: the limits of its profile, counted and enforced.

use crate::event::SimEvent;
use crate::group::SimGroup;
use crate::memory::SimBuffer;
use crate::profile::Profile;
use crate::program;
use crate::run::{Run, pause};
use crate::scratch::SimScratch;
use crate::stream::SimStream;
use llmrt_cpu::device::Cpu;
use llmrt_cpu::simd::Isa;
use llmrt_cpu::stream::CpuStream;
use llmrt_plugin::abi::types as c;
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Error, Event, GraphView, Group, Host, PeerView, Result,
    ScratchMemory, Stream, StreamParams, Verdict,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What all devices of the plugin share.
pub struct Shared {
    /// The host.
    pub host: Host,
    /// Reports what the kernels support.
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
    /// Of a device like this, with nothing in use.
    pub fn new(profile: Arc<Profile>) -> Meter {
        Meter { profile, used: AtomicU64::new(0) }
    }

    /// Bytes in use.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Counts bytes, if they are there.
    pub fn take(meter: &Arc<Meter>, n: u64) -> Result<Taken> {
        let total = meter.profile.memory;
        let fits = |used: u64| used.checked_add(n).filter(|used| *used <= total);
        let outcome = meter.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        outcome.map_err(|used| Error::oom_device(n, total - used))?;
        Ok(Taken { meter: meter.clone(), n })
    }

    /// Takes the time of one command that moves `n` bytes; less of it once the run is cancelled that it belongs to.
    pub fn pause(&self, n: u64, run: Option<Run>) {
        let transfer = match self.profile.bandwidth {
            0 => Duration::ZERO,
            rate => Duration::from_secs_f64(n as f64 / rate as f64),
        };
        let time = self.profile.latency + transfer;
        if !time.is_zero() {
            pause(time, run);
        }
    }

    /// Computes, and takes the time in which the device reads so many bytes of weights, if that is longer.
    pub fn paced(&self, weights: u64, run: Run, compute: impl FnOnce() -> Result<()>) -> Result<()> {
        let started = Instant::now();
        compute()?;
        if self.profile.rate > 0 {
            let time = Duration::from_secs_f64(weights as f64 / self.profile.rate as f64);
            pause(time.saturating_sub(started.elapsed()), Some(run));
        }
        Ok(())
    }

    /// Whether copies from other devices are possible.
    pub fn p2p(&self) -> bool {
        self.profile.p2p
    }
}

/// Bytes of a device that are in use until this is dropped.
pub struct Taken {
    meter: Arc<Meter>,
    n: u64,
}

impl Taken {
    /// How many.
    pub fn n_bytes(&self) -> u64 {
        self.n
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.meter.used.fetch_sub(self.n, Ordering::Relaxed);
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

/// What a device shares with its streams.
pub struct Card {
    /// What it is like.
    pub profile: Arc<Profile>,
    /// What all devices share.
    pub shared: Arc<Shared>,
    /// No other device has it.
    pub number: usize,
    /// Its memory and time.
    pub meter: Arc<Meter>,
    /// Memory that the host manages for streams.
    pub scratch: SimScratch,
}

/// A simulated device.
pub struct SimDevice {
    name: String,
    card: Arc<Card>,
    streams: Arc<AtomicUsize>,
    events: Arc<AtomicUsize>,
}

impl SimDevice {
    /// A device of this name.
    pub fn new(name: String, profile: Arc<Profile>, shared: Arc<Shared>) -> SimDevice {
        let number = shared.n_devices.fetch_add(1, Ordering::Relaxed);
        let meter = Arc::new(Meter::new(profile.clone()));
        let scratch = SimScratch::new(meter.clone(), profile.vmm);
        let card = Arc::new(Card { profile, shared, number, meter, scratch });
        let (streams, events) = Default::default();
        SimDevice { name, card, streams, events }
    }
}

impl Device for SimDevice {
    fn info(&self) -> DeviceInfo {
        let p = &self.card.profile;
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
        let total = self.card.profile.memory;
        Ok((total - self.card.meter.used(), total))
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        match self.card.profile.refuses(&graph.node(node)) {
            Some(reason) => Verdict::no(reason),
            None => match self.card.shared.cpu.supports(graph, node) {
                no if no.support == 0 => no,
                yes => {
                    Verdict { workspace: program::workspace(&graph.node(node), &self.card.profile), ..yes }
                }
            },
        }
    }

    /// Devices that do not reach each other put nothing together.
    fn group(&self, _members: &[PeerView<'_>]) -> Result<Box<dyn Group>> {
        match self.card.profile.p2p {
            true => Ok(Box::new(SimGroup)),
            false => Err(Error::unsupported("these devices cannot reach each other")),
        }
    }

    fn alloc(&self, _bt: u32, size: u64, _usage: u32) -> Result<Box<dyn Buffer>> {
        let taken = Meter::take(&self.card.meter, size)?;
        // The memory is the host's: when it is used up that is an error here, before the system's OOM killer acts.
        let (free, _) = self.card.shared.cpu.memory()?;
        if size > free {
            return Err(Error::oom_host(size));
        }
        Ok(Box::new(SimBuffer::new(taken, self.card.number, self.card.meter.clone())?))
    }

    /// The kernels run on one thread, the queue's own: the host's threads are lent to the host's callers only.
    fn stream(&self, params: &StreamParams) -> Result<Box<dyn Stream>> {
        let (profile, shared) = (&self.card.profile, &self.card.shared);
        let slot = Slot::take(&self.streams, profile.streams, "streams")?;
        let kernels = CpuStream::new(shared.host, shared.isa, 1);
        let seed = profile.seed ^ shared.n_streams.fetch_add(1, Ordering::Relaxed) << 32;
        let queue = (profile.queue, seed);
        Ok(Box::new(SimStream::new(kernels, queue, params.scratch, self.card.clone(), slot)?))
    }

    /// Copies between devices need both to reach each other; kernels never work on another's memory.
    fn accepts(&self, owner: &PeerView<'_>, _bt: u32) -> bool {
        self.card.profile.p2p && owner.is_ours() && owner.caps() & c::CAP_P2P != 0
    }

    fn scratch_memory(&self) -> Option<&dyn ScratchMemory> {
        Some(&self.card.scratch)
    }

    fn event(&self) -> Result<Box<dyn Event>> {
        Ok(Box::new(SimEvent::new(Slot::take(&self.events, self.card.profile.events, "events")?)))
    }
}
