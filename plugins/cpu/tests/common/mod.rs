//! A host of a few lines: options, a team of threads, and graphs run through the plugin's own table.
//!
//! SAFETY of all blocks below: the table is this process's own plugin's; objects are used between their creation and
//! their destruction, which `Drop` orders; arrays outlive the calls they are passed to.
#![allow(dead_code, clippy::undocumented_unsafe_blocks, clippy::new_without_default)]

use llmrt_abi::types as c;
use llmrt_abi::{DType, Op};
use llmrt_graph::ops::value::{Data, Value};
use llmrt_graph::reference::Memory;
use llmrt_graph::{Graph, Kind, Role, Tensor};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

/// The plugin, initialised for an instruction set; one at a time.
pub struct Plugin {
    device: *mut c::Device,
    _turn: MutexGuard<'static, ()>,
    _api: Box<c::HostApi>,
}

/// Devices take calls from any thread.
unsafe impl Sync for Plugin {}

static TURN: Mutex<()> = Mutex::new(());

impl Plugin {
    /// Initialises the plugin with the option `cpu.isa`; `Err` is its message.
    pub fn open(isa: &str) -> Result<Plugin, String> {
        let turn = TURN.lock();
        let api = Box::new(host_api(isa));
        let table = unsafe { &*llmrt_cpu::query(llmrt_abi::ABI_MINOR as u32) };
        let (mut devices, mut n, mut err) = (std::ptr::null(), 0, c::Error::empty());
        let status = unsafe { table.init.unwrap()(&*api, &mut devices, &mut n, &mut err) };
        if status != 0 {
            return Err(String::from_utf8_lossy(err.message()).into_owned());
        }
        assert_eq!(n, 1);
        let device = unsafe { *devices };
        assert_eq!(unsafe { vt(device).open.unwrap()(device, &mut err) }, 0);
        Ok(Plugin { device, _turn: turn, _api: api })
    }

    /// Runs a graph on `n_threads`; weights, inputs and states come from `memory`. Gives the bytes of all tensors
    /// that own theirs, or the node that `supports` refused.
    pub fn run(&self, graph: &Graph, memory: &Memory, n_threads: u32) -> Result<Vec<Vec<u8>>, String> {
        let mut bound = Bound::new(self, graph);
        bound.load(memory);
        self.finish(&bound, n_threads)
    }

    /// As [`Plugin::run`], with all weights sealed.
    pub fn run_sealed(&self, graph: &Graph, memory: &Memory, n_threads: u32) -> Result<Vec<Vec<u8>>, String> {
        let mut bound = Bound::new(self, graph);
        bound.load(memory);
        bound.seal();
        self.finish(&bound, n_threads)
    }

    fn finish(&self, bound: &Bound<'_>, n_threads: u32) -> Result<Vec<Vec<u8>>, String> {
        bound.supported()?;
        let stream = Stream::new(self, n_threads);
        stream.compute(bound)?;
        Ok(bound.read())
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        let table = unsafe { &*llmrt_cpu::query(0) };
        unsafe {
            vt(self.device).close.unwrap()(self.device);
            table.shutdown.unwrap()();
        }
    }
}

unsafe fn vt(device: *mut c::Device) -> &'static c::DeviceVt {
    unsafe { &*(*device).vt }
}

/// Adds a product that makes a graph worth a team of threads, whatever else is in it. Of integers: scalar code calls a
/// function for each fused multiply-add.
pub fn worth_a_team(g: &mut Graph) {
    let w = g.weight("more work", DType::Q8_0, &[128, 64], Role::Matrix);
    let x = g.input("for a team", DType::F32, &[128, 64]);
    g.mul_mat(w, x);
}

/// A stream of the plugin.
pub struct Stream(*mut c::Backend);

impl Stream {
    pub fn new(plugin: &Plugin, n_threads: u32) -> Stream {
        let params = c::BackendParams {
            struct_size: size_of::<c::BackendParams>() as u32,
            flags: 0,
            priority: 0,
            n_threads,
            scratch: std::ptr::null(),
            native_stream: std::ptr::null_mut(),
        };
        let (mut backend, mut err) = (std::ptr::null_mut(), c::Error::empty());
        let create = unsafe { vt(plugin.device) }.backend_create.unwrap();
        assert_eq!(unsafe { create(plugin.device, &params, &mut backend, &mut err) }, 0);
        Stream(backend)
    }

    pub fn compute(&self, bound: &Bound) -> Result<(), String> {
        let mut err = c::Error::empty();
        let vt = unsafe { &*(*self.0).vt };
        match unsafe { vt.compute.unwrap()(self.0, &*bound.graph, &mut err) } {
            0 => Ok(()),
            code => Err(format!("{code}: {}", String::from_utf8_lossy(err.message()))),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        unsafe { (*(*self.0).vt).destroy.unwrap()(self.0) }
    }
}

/// A number that no graph had before.
fn fresh() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A graph with memory, in the form that crosses the ABI.
pub struct Bound<'a> {
    plugin: &'a Plugin,
    defs: &'a Graph,
    buffers: Vec<*mut c::Buffer>,
    tensors: Vec<c::Tensor>,
    _src: Vec<Vec<u32>>,
    nodes: Vec<c::Node>,
    graph: Box<c::Graph>,
}

impl<'a> Bound<'a> {
    pub fn new(plugin: &'a Plugin, defs: &'a Graph) -> Bound<'a> {
        let mut buffers = vec![std::ptr::null_mut(); defs.tensors.len()];
        let mut tensors = vec![];
        for (i, def) in defs.tensors.iter().enumerate() {
            if def.view.is_none() {
                let mut err = c::Error::empty();
                let alloc = unsafe { vt(plugin.device) }.buffer_alloc.unwrap();
                let status = unsafe { alloc(plugin.device, 0, def.n_bytes(), 0, &mut buffers[i], &mut err) };
                assert_eq!(status, 0);
            }
            let (owner, offset) = def.view.map_or((i, 0), |(t, offset)| (t.0 as usize, offset));
            tensors.push(c::Tensor {
                id: i as u32,
                dtype: def.dtype.id(),
                role: def.role as u32,
                flags: if def.kind == Kind::Weight { c::TENSOR_WEIGHT } else { 0 },
                n_dims: def.n_dims() as u32,
                layout_id: 0,
                ne: def.ne.map(|n| n as i64),
                nb: def.nb,
                buffer: buffers[owner],
                offset,
                nbytes: def.n_bytes(),
                view_offset: offset,
                view_src: def.view.map_or(c::NO_TENSOR, |(t, _)| t.0),
                reserved: 0,
                name: c::Str { ptr: def.name.as_ptr(), len: def.name.len() as u64 },
            });
        }
        let src: Vec<Vec<u32>> = defs
            .nodes
            .iter()
            .map(|n| n.src.iter().map(|s| s.map_or(c::NO_TENSOR, |t| t.0)).collect())
            .collect();
        let nodes: Vec<c::Node> = defs
            .nodes
            .iter()
            .zip(&src)
            .map(|(n, src)| c::Node {
                op: n.op.id(),
                op_version: 1,
                flags: 0,
                dst: n.dst.0,
                src: src.as_ptr(),
                n_src: src.len() as u32,
                params_size: n.params.len() as u32,
                params: n.params.as_ptr().cast(),
            })
            .collect();
        let graph = Box::new(c::Graph {
            struct_size: size_of::<c::Graph>() as u32,
            tensor_stride: size_of::<c::Tensor>() as u32,
            node_stride: size_of::<c::Node>() as u32,
            n_tensors: tensors.len() as u32,
            n_nodes: nodes.len() as u32,
            flags: 0,
            uid: fresh(),
            binding_gen: fresh(),
            run_id: 0,
            tensors: tensors.as_ptr(),
            nodes: nodes.as_ptr(),
        });
        Bound { plugin, defs, buffers, tensors, _src: src, nodes, graph }
    }

    /// Writes weights, inputs and states; results get bytes that no op makes.
    pub fn load(&mut self, memory: &Memory) {
        for (i, def) in self.defs.tensors.iter().enumerate().filter(|(_, def)| def.view.is_none()) {
            let computed;
            let bytes = match memory.bytes(Tensor(i as u32)) {
                Some(bytes) if def.kind != Kind::Computed => bytes,
                _ => {
                    computed = vec![0xff; def.n_bytes() as usize];
                    &computed
                }
            };
            self.write(i, bytes);
        }
    }

    pub fn write(&mut self, i: usize, bytes: &[u8]) {
        let mut err = c::Error::empty();
        let (buffer, tensor) = (self.buffers[i], &self.tensors[i]);
        let set = unsafe { &*(*buffer).vt }.set.unwrap();
        assert_eq!(unsafe { set(buffer, tensor, bytes.as_ptr().cast(), 0, bytes.len() as u64, &mut err) }, 0);
    }

    /// Seals what a host would: weights that products and `get_rows` take as a whole.
    pub fn seal(&mut self) {
        let is_sealed = |&i: &usize| {
            let def = &self.defs.tensors[i];
            def.kind == Kind::Weight && def.view.is_none() && def.n_bytes() > 0 && self.is_matrix(i)
        };
        for i in (0..self.tensors.len()).filter(is_sealed).collect::<Vec<_>>() {
            let mut err = c::Error::empty();
            let mut layout = c::Layout {
                struct_size: size_of::<c::Layout>() as u32,
                layout_id: 0,
                flags: 0,
                reserved: 0,
                stored_bytes: 0,
                row_granularity: 0,
                name: c::Str::EMPTY,
            };
            let (buffer, tensor) = (self.buffers[i], &mut self.tensors[i]);
            let seal = unsafe { &*(*buffer).vt }.seal.unwrap();
            assert_eq!(unsafe { seal(buffer, tensor, &mut layout, &mut err) }, 0);
            tensor.layout_id = layout.layout_id;
        }
    }

    fn is_matrix(&self, i: usize) -> bool {
        let t = Tensor(i as u32);
        let is_use = |src: &Option<Tensor>| src.is_some_and(|src| self.defs.owner(src) == t);
        self.defs.nodes.iter().filter(|node| node.src.iter().any(is_use)).all(|node| {
            let takes_sealed = matches!(node.op, Op::MulMat | Op::MulMatId | Op::GetRows);
            takes_sealed && node.src[0] == Some(t) && !node.src[1..].iter().any(is_use)
        })
    }

    /// Gives a tensor and its views the memory of another one, which has its own from now on.
    pub fn swap(&mut self, [a, b]: [Tensor; 2]) {
        self.buffers.swap(a.0 as usize, b.0 as usize);
        for (i, tensor) in self.tensors.iter_mut().enumerate() {
            tensor.buffer = self.buffers[self.defs.owner(Tensor(i as u32)).0 as usize];
        }
        self.graph.binding_gen = fresh();
    }

    /// Marks a tensor as being in a layout.
    pub fn set_layout(&mut self, t: Tensor, layout_id: u32) {
        self.tensors[t.0 as usize].layout_id = layout_id;
    }

    /// The layouts of all tensors.
    pub fn layouts(&self) -> impl Iterator<Item = u32> {
        self.tensors.iter().map(|t| t.layout_id)
    }

    pub fn supported(&self) -> Result<(), String> {
        let mut verdicts = vec![c::Verdict::default(); self.nodes.len()];
        let n = verdicts.len() as u32;
        let (mut err, device) = (c::Error::empty(), self.plugin.device);
        let supports = unsafe { vt(device) }.supports.unwrap();
        assert_eq!(unsafe { supports(device, &*self.graph, 0, n, verdicts.as_mut_ptr(), &mut err) }, 0);
        match verdicts.iter().position(|v| v.support == 0) {
            Some(i) => Err(format!("node {i} is refused, reason {}", verdicts[i].reason)),
            None => Ok(()),
        }
    }

    pub fn read(&self) -> Vec<Vec<u8>> {
        self.defs
            .tensors
            .iter()
            .enumerate()
            .map(|(i, def)| {
                let mut bytes = vec![0; if def.view.is_none() { def.n_bytes() as usize } else { 0 }];
                if !bytes.is_empty() {
                    let mut err = c::Error::empty();
                    let (buffer, tensor) = (self.buffers[i], &self.tensors[i]);
                    let get = unsafe { &*(*buffer).vt }.get.unwrap();
                    let n = bytes.len() as u64;
                    assert_eq!(unsafe { get(buffer, tensor, bytes.as_mut_ptr().cast(), 0, n, &mut err) }, 0);
                }
                bytes
            })
            .collect()
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        for &buffer in self.buffers.iter().filter(|b| !b.is_null()) {
            unsafe { (*(*buffer).vt).destroy.unwrap()(buffer) }
        }
    }
}

/// The instruction set that `get_option` returns.
static ISA: Mutex<String> = Mutex::new(String::new());

/// The host's table; without the option if `isa` is empty.
fn host_api(isa: &str) -> c::HostApi {
    *ISA.lock() = isa.to_string();
    c::HostApi {
        struct_size: size_of::<c::HostApi>() as u32,
        abi_minor: llmrt_abi::ABI_MINOR as u32,
        ctx: std::ptr::null_mut(),
        log: None,
        get_option: (!isa.is_empty()).then_some(option as _),
        type_info: None,
        register_op: None,
        find_op: None,
        cancelled: None,
        get_extension: Some(extension),
    }
}

unsafe extern "C" fn option(_ctx: *mut c_void, key: c::Str, buf: *mut u8, cap: u64, len: *mut u64) -> i32 {
    let key = unsafe { std::slice::from_raw_parts(key.ptr, key.len as usize) };
    if key != b"cpu.isa" {
        return 1;
    }
    let isa = ISA.lock();
    let n = isa.len().min(cap as usize);
    unsafe {
        std::ptr::copy_nonoverlapping(isa.as_ptr(), buf, n);
        *len = isa.len() as u64;
    }
    0
}

unsafe extern "C" fn extension(_ctx: *mut c_void, _name: c::Str, _version: u32) -> *const c_void {
    struct Table(c::HostThreads);
    unsafe impl Sync for Table {}
    static THREADS: Table = Table(c::HostThreads {
        struct_size: size_of::<c::HostThreads>() as u32,
        reserved: 0,
        ctx: std::ptr::null_mut(),
        n_threads: Some(n_threads),
        run: Some(run),
        barrier: Some(barrier),
    });
    std::ptr::from_ref(&THREADS.0).cast()
}

unsafe extern "C" fn n_threads(_ctx: *mut c_void) -> u32 {
    4
}

type Body = unsafe extern "C" fn(*mut c_void, *mut c_void, u32, u32);

/// A barrier: arrivals so far and barriers passed so far; and members that have left.
struct Team {
    n: u32,
    arrived: AtomicU32,
    barriers: AtomicU32,
    left: AtomicU32,
}

/// A member's part of a run, on a thread that stays: emulators keep some memory of every thread that ends.
type Part = Box<dyn FnOnce() + Send>;

static HELPERS: Mutex<Vec<Sender<Part>>> = Mutex::new(Vec::new());

/// Queues the parts of members 1 and up, all at once: of two runs at a time, one then comes first on every thread. Otherwise
/// each could wait at a barrier for a member that is queued after a part of the other.
fn help(parts: impl Iterator<Item = Part>) {
    let mut helpers = HELPERS.lock();
    for (i, part) in parts.enumerate() {
        if helpers.len() <= i {
            let (sender, parts) = channel::<Part>();
            std::thread::spawn(move || parts.into_iter().for_each(|part| part()));
            helpers.push(sender);
        }
        helpers[i].send(part).unwrap();
    }
}

unsafe extern "C" fn run(_ctx: *mut c_void, n: u32, body: Option<Body>, arg: *mut c_void) -> i32 {
    let zero = || AtomicU32::new(0);
    let team = Arc::new(Team { n, arrived: zero(), barriers: zero(), left: zero() });
    let (arg, body) = (arg as usize, body.unwrap());
    let member = |i: u32| {
        let team = team.clone();
        move || {
            unsafe { body(arg as *mut c_void, Arc::as_ptr(&team) as *mut c_void, i, n) };
            team.left.fetch_add(1, Ordering::Release);
        }
    };
    help((1..n).map(|i| Box::new(member(i)) as Part));
    member(0)();
    wait_until(|| team.left.load(Ordering::Acquire) == n);
    0
}

unsafe extern "C" fn barrier(team: *mut c_void) {
    let team = unsafe { &*team.cast::<Team>() };
    let passed = team.barriers.load(Ordering::Acquire);
    if team.arrived.fetch_add(1, Ordering::AcqRel) + 1 == team.n {
        team.arrived.store(0, Ordering::Relaxed);
        team.barriers.store(passed + 1, Ordering::Release);
        return;
    }
    wait_until(|| team.barriers.load(Ordering::Acquire) != passed);
}

fn wait_until(ready: impl Fn() -> bool) {
    let mut spins = 0;
    while !ready() {
        spins += 1;
        if spins > 10_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
}

/// Σ (a - b)² / Σ a², equal infinities apart; integers must be equal.
pub fn nmse(expected: &Value, found: &Value) -> f64 {
    if !matches!((&expected.data, &found.data), (Data::I32(_), _) | (_, Data::I32(_))) {
        let pairs = || {
            let all = expected.floats().iter().zip(found.floats());
            all.filter(|(a, b)| a != b || a.is_finite())
        };
        let error: f64 = pairs().map(|(a, b)| (*a as f64 - *b as f64).powi(2)).sum();
        let size: f64 = pairs().map(|(a, _)| (*a as f64).powi(2)).sum();
        return if error == 0.0 { 0.0 } else { error / size };
    }
    if expected == found { 0.0 } else { f64::INFINITY }
}
