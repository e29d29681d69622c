//! The simulated machine: all that the driver's functions change. One lock for all of it.

use crate::api::cublas::Object;
use crate::config::Config;
use crate::emu::Kernel;
use crate::space::Space;
use crate::stream::Stream;
use crate::sys::*;
use crate::task::Task;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

/// A driver function's answer: done, or a number of its.
pub type Answer<T = ()> = Result<T, CUresult>;

/// The machine.
pub struct World {
    /// How it was described.
    pub config: Config,
    /// Whether `cuInit` was called.
    pub started: bool,
    /// Visible cards.
    pub devices: Vec<Card>,
    /// Memory of all cards.
    pub space: Space,
    /// Physical memory: device, bytes, references.
    pub handles: BTreeMap<u64, (usize, usize, u32)>,
    /// Pinned memory of the host: first address, bytes.
    pub pinned: BTreeMap<u64, usize>,
    /// By handle.
    pub streams: BTreeMap<usize, Stream>,
    /// Device, and place in a stream when last recorded.
    pub events: BTreeMap<usize, (usize, Option<(usize, u64)>)>,
    /// Device of each module, and what it is for: a family, or all kernels.
    pub modules: BTreeMap<usize, usize>,
    /// Module and kernel.
    pub functions: BTreeMap<usize, (usize, &'static Kernel)>,
    /// Bytes of shared memory that launches of a function may request, where that was set.
    pub shared: BTreeMap<usize, u32>,
    /// Captured work.
    pub graphs: BTreeMap<usize, Vec<Task>>,
    /// Instantiated graphs.
    pub execs: BTreeMap<usize, Exec>,
    /// Objects of cuBLASLt.
    pub products: BTreeMap<usize, Object>,
    /// Products that were enqueued.
    pub n_products: u64,
    /// Kernels that ran.
    pub n_kernels: u64,
    /// Allocations of device memory.
    pub n_allocs: u64,
    /// Waits for streams.
    pub n_waits: u64,
    next: usize,
    counts: BTreeMap<String, u64>,
    reports: Vec<String>,
}

/// A card.
pub struct Card {
    /// Its number on the machine, visible or not.
    pub number: usize,
    /// Holders of its primary context.
    pub n_holders: u32,
    /// Bytes in use.
    pub used: usize,
    /// The number that every call answers after a fault; 0: well.
    pub sticky: CUresult,
    /// Cards whose memory its context may use.
    pub peers: BTreeSet<usize>,
    /// Work of calls that returned before it was done, on the default stream, which others do not wait for.
    pub default_stream: Vec<Task>,
}

/// An instantiated graph.
pub struct Exec {
    /// Its card.
    pub device: usize,
    /// Its work.
    pub tasks: Vec<Task>,
}

thread_local! {
    /// The thread's context: visible card + 1; 0: none.
    pub static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// The machine, made from the environment when first used.
pub fn world() -> MutexGuard<'static, World> {
    static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
    let world =
        WORLD.get_or_init(|| Mutex::new(World::new(&std::env::var("LLMRT_CUDA_SIM").unwrap_or_default())));
    world.lock()
}

impl World {
    /// As described; CUDA_VISIBLE_DEVICES chooses cards.
    pub fn new(text: &str) -> World {
        let config = Config::parse(text);
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        let card = |number| Card {
            number,
            n_holders: 0,
            used: 0,
            sticky: 0,
            peers: BTreeSet::new(),
            default_stream: Vec::new(),
        };
        World {
            devices: chosen(config.devices, visible.as_deref()).into_iter().map(card).collect(),
            config,
            started: false,
            space: Space::default(),
            handles: BTreeMap::new(),
            pinned: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            modules: BTreeMap::new(),
            functions: BTreeMap::new(),
            shared: BTreeMap::new(),
            graphs: BTreeMap::new(),
            execs: BTreeMap::new(),
            products: BTreeMap::new(),
            n_products: 0,
            n_kernels: 0,
            n_allocs: 0,
            n_waits: 0,
            next: 0x1000,
            counts: BTreeMap::new(),
            reports: Vec::new(),
        }
    }

    /// A handle that was never given before.
    pub fn handle(&mut self) -> usize {
        self.next += 16;
        self.next
    }

    /// The card whose context is the thread's, if it is well.
    pub fn current(&self) -> Answer<usize> {
        let current = CURRENT.get();
        let device = current.checked_sub(1).filter(|d| *d < self.devices.len());
        let device = device.ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        match &self.devices[device] {
            card if card.n_holders == 0 => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
            card if card.sticky != 0 => Err(card.sticky),
            _ => Ok(device),
        }
    }

    /// A stream of the current card.
    pub fn own_stream(&mut self, stream: CUstream) -> Answer<usize> {
        let (device, id) = (self.current()?, stream as usize);
        match self.streams.get(&id) {
            Some(stream) if stream.device == device => Ok(id),
            found => {
                let what = if found.is_some() { "a stream of another card" } else { "no such stream" };
                self.report(what.into());
                Err(CUDA_ERROR_INVALID_HANDLE)
            }
        }
    }

    /// For calls that a thread must not make while it captures.
    pub fn not_capturing(&mut self) -> Answer {
        let me = std::thread::current().id();
        let mut captures = self.streams.values_mut().filter_map(|stream| stream.capture.as_mut());
        match captures.find(|capture| capture.thread == me) {
            None => Ok(()),
            Some(capture) => {
                capture.invalid = true;
                Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
            }
        }
    }

    /// Takes memory of a card.
    pub fn take(&mut self, device: usize, n: usize) -> Answer {
        self.n_allocs += 1;
        let card = &mut self.devices[device];
        if self.n_allocs == self.config.oom || card.used + n > self.config.memory {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        card.used += n;
        Ok(())
    }

    /// Counts a call, or anything else.
    pub fn count(&mut self, name: &str, n: u64) {
        *self.counts.entry(name.into()).or_default() += n;
    }

    /// A counter.
    pub fn counter(&self, name: &str) -> u64 {
        match name {
            "kernels" => self.n_kernels,
            "waits" => self.n_waits,
            "left" => {
                (self.space.n_left()
                    + self.streams.len()
                    + self.events.len()
                    + self.execs.len()
                    + self.graphs.len()
                    + self.modules.len()
                    + self.products.len()
                    + self.pinned.len()
                    + self.handles.len()) as u64
            }
            name => self.counts.get(name).copied().unwrap_or(0),
        }
    }

    /// Remembers that something is wrong with how the driver is used.
    pub fn report(&mut self, text: String) {
        self.reports.push(text);
    }

    /// What was reported.
    pub fn reports(&self) -> &[String] {
        &self.reports
    }
}

/// Cards by the driver's variable: numbers or the beginnings of uuids, up to the first that does not exist.
fn chosen(n: usize, visible: Option<&str>) -> Vec<usize> {
    let Some(visible) = visible else { return (0..n).collect() };
    let mut seen = BTreeSet::new();
    let card = |word: &str| {
        let by_uuid = (0..n).find(|i| word.len() > 4 && uuid_text(*i).starts_with(word));
        by_uuid.or(word.parse().ok()).filter(|i| *i < n && seen.insert(*i))
    };
    visible.split(',').map(str::trim).map_while(card).collect()
}

/// A card's uuid.
pub fn uuid(number: usize) -> [u8; 16] {
    std::array::from_fn(|i| if i == 15 { number as u8 } else { 0xa0 + i as u8 })
}

fn uuid_text(number: usize) -> String {
    let hex: Vec<String> = uuid(number).iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    format!("GPU-{}-{}-{}-{}-{}", part(0..4), part(4..6), part(6..8), part(8..10), part(10..16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_chooses_cards_by_number_and_uuid_up_to_the_first_bad_one() {
        assert_eq!(chosen(4, None), [0, 1, 2, 3]);
        assert_eq!(chosen(4, Some("2,0")), [2, 0]);
        assert_eq!(chosen(4, Some("1,7,2")), [1]);
        assert_eq!(chosen(4, Some("1,1,2")), [1]);
        assert_eq!(chosen(4, Some("")), []);
        assert_eq!(chosen(4, Some(&uuid_text(3))), [3]);
    }
}
