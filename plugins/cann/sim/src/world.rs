//! The simulated machine: one per process, replaced only by tests.

use crate::chip::Chip;
use crate::config::Config;
use crate::fault::{Answer, Fault, fault, set_message};
use crate::hccl::ring::Comm;
use crate::memory::Memory;
use crate::object::Objects;
use crate::runtime::capture::Graph;
use crate::runtime::context::{Card, Context};
use crate::runtime::event::Event;
use crate::runtime::queue::Stream;
use crate::runtime::vmm::Physical;
use crate::sys::{ACL_ERROR_INVALID_PARAM, ACL_ERROR_REPEAT_FINALIZE, ACL_ERROR_UNINITIALIZE};
use crate::table::Table;
use crate::trace::Trace;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread::ThreadId;

/// Everything there is.
pub struct World {
    /// As configured.
    pub config: Config,
    /// What is wrong with the configuration, if something is.
    pub problem: Option<String>,
    /// The chip.
    pub chip: Chip,
    /// The cards that are visible.
    pub cards: Vec<Mutex<Card>>,
    /// Their memory.
    pub memory: Memory,
    /// Pinned memory of the host.
    pub pinned: Mutex<BTreeMap<usize, Box<[u64]>>>,
    /// Reserved addresses, how many, and the flags.
    pub reserved: Mutex<BTreeMap<usize, (usize, u64)>>,
    /// Contexts.
    pub contexts: Table<Context>,
    /// Streams.
    pub streams: Table<Stream>,
    /// Events.
    pub events: Table<Event>,
    /// Physical memory.
    pub physical: Table<Physical>,
    /// Captured graphs.
    pub graphs: Table<Graph>,
    /// Cards' ends of communicators.
    pub comms: Table<Comm>,
    /// Sums of collectives are in the same order in every run.
    pub deterministic: AtomicBool,
    /// Tensors, scalars, executors.
    pub objects: Objects,
    /// Keys of executors in the library's cache, of which each thread has its own (opbase, `op_cache.cpp`).
    pub op_cache: Mutex<HashSet<(ThreadId, String)>>,
    /// How often an operator was planned with these parameters.
    pub n_planned: Mutex<BTreeMap<String, u64>>,
    /// Counters.
    pub trace: Trace,
    /// Kernels that ran.
    pub n_kernels: AtomicU64,
    /// 0 before `aclInit`, 1 after it, 2 after `aclFinalize`.
    pub started: AtomicU8,
}

static WORLD: RwLock<Option<Arc<World>>> = RwLock::new(None);

/// The machine of this process; the environment describes it at first use.
pub fn world() -> Arc<World> {
    if let Some(world) = &*WORLD.read() {
        return world.clone();
    }
    let mut slot = WORLD.write();
    let text = || std::env::var("LLMRT_CANN_SIM").unwrap_or_default();
    slot.get_or_insert_with(|| World::new(&text())).clone()
}

/// Another machine in place of the present one, whose handles are dead from now on.
pub fn replace(text: &str) -> Arc<World> {
    let world = World::new(text);
    let old = WORLD.write().replace(world.clone());
    if let Some(old) = old {
        old.streams.all().iter().for_each(|stream| stream.close());
    }
    world
}

impl World {
    fn new(text: &str) -> Arc<World> {
        let (config, problem) = match Config::parse(text) {
            Ok(config) => (config, None),
            Err(problem) => (Config::default(), Some(format!("LLMRT_CANN_SIM: {problem}"))),
        };
        let visible = std::env::var("ASCEND_RT_VISIBLE_DEVICES").ok();
        let cards = crate::runtime::context::visible(config.devices, visible.as_deref());
        Arc::new(World {
            chip: Chip::of(&config.soc),
            cards: cards.into_iter().map(|number| Mutex::new(Card::new(number))).collect(),
            memory: Memory::new(config.poison, config.memory, config.oom),
            pinned: Mutex::default(),
            reserved: Mutex::default(),
            contexts: Table::default(),
            streams: Table::default(),
            events: Table::default(),
            physical: Table::default(),
            graphs: Table::default(),
            comms: Table::default(),
            deterministic: AtomicBool::new(false),
            objects: Objects::default(),
            op_cache: Mutex::default(),
            n_planned: Mutex::default(),
            trace: Trace::new(&config.trace),
            n_kernels: AtomicU64::new(0),
            started: AtomicU8::new(0),
            config,
            problem,
        })
    }

    /// Doubtful use: an error of this code where the configuration is strict, and reported in any case.
    pub fn doubt(&self, code: i32, text: String) -> Answer {
        self.trace.report(text.clone());
        if self.config.strict { fault(code, text) } else { Ok(()) }
    }

    /// A number that depends on the seed and what is given, and on nothing else.
    pub fn random(&self, of: &[u64]) -> u64 {
        of.iter().fold(self.config.seed ^ 0x9e37_79b9_7f4a_7c15, |hash, x| {
            let mixed = (hash ^ x).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb).rotate_left(23)
        })
    }
}

/// Runs a function of the runtime: it needs `aclInit`, is counted, and its fault becomes a status and a message.
pub fn call(name: &'static str, body: impl FnOnce(&Arc<World>) -> Answer) -> i32 {
    let started = |world: &Arc<World>| match world.started.load(Relaxed) {
        0 => fault(ACL_ERROR_UNINITIALIZE, "aclInit was not called"),
        1 => Ok(()),
        _ => fault(ACL_ERROR_REPEAT_FINALIZE, "aclFinalize was called"),
    };
    call_any_time(name, |world| started(world).and_then(|()| body(world)))
}

/// The same for functions that need no `aclInit`.
pub fn call_any_time(name: &'static str, body: impl FnOnce(&Arc<World>) -> Answer) -> i32 {
    let world = world();
    world.trace.count(name, 1);
    let answer = body(&world);
    world
        .trace
        .line(|| format!("{name} {}", answer.as_ref().map_or_else(|e| e.text.clone(), |()| "ok".into())));
    status(name, answer)
}

/// A fault's number; its text goes to the calling thread.
pub fn status(name: &str, answer: Answer) -> i32 {
    answer.map_or_else(
        |Fault { code, text }| {
            set_message(&format!("[{name}] {text}"));
            code
        },
        |()| 0,
    )
}

/// Writes an output of a function.
pub(crate) fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return fault(ACL_ERROR_INVALID_PARAM, "an output is NULL");
    }
    // SAFETY: by the header's contract an output which is not NULL has room for its type.
    unsafe { out.write(value) }
    Ok(())
}

/// Exports functions of the runtime, each with a body that gets the machine, and fills their places in the header's
/// table, which fails to compile when a signature differs.
macro_rules! api {
    ($table:ident; $($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $world:pat => $body:block)*) => {
        $(
            $(#[$doc])*
            #[unsafe(export_name = concat!("llmrt_sim_", stringify!($name)))]
            unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
                $crate::world::call(stringify!($name), |$world| $body)
            }
        )*
        pub(crate) fn fill(table: &mut $crate::sys::$table) {
            $(table.$name = Some($name);)*
        }
    };
}
pub(crate) use api;
