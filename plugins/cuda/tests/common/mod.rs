//! A host with the plugin, and a folder with the simulated driver in place of the vendor's. Tests take turns.
#![allow(dead_code)]

use libloading::os::unix::Library;
use llmrt_abi::types::TENSOR_WEIGHT;
use llmrt_graph::reference::Memory;
use llmrt_graph::{Graph, Kind, Tensor, plan};
use llmrt_host::{
    Buffer, Device, Host, HostOptions, NodeDesc, RawGraph, RawGraphBuilder, Result, Stream, TensorDesc,
};
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CStr, CString, c_char};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The simulated machine, and a host that has its cards.
pub struct Machine {
    host: Option<Arc<Host>>,
    pub log: Arc<Mutex<Vec<String>>>,
    simulator: Library,
    _turn: MutexGuard<'static, ()>,
}

/// The folder; made once, kept for the process.
pub fn libraries() -> &'static Path {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::TempDir::new().unwrap();
        cuda_simulator::install::install(folder.path()).unwrap();
        folder
    });
    folder.path()
}

impl Machine {
    /// As described in the simulator's README.
    pub fn new(config: &str) -> Machine {
        Machine::with_options(config, &[])
    }

    /// With these options of the plugin, too.
    pub fn with_options(config: &str, options: &[(&str, &str)]) -> Machine {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock();
        let dir = libraries();
        // SAFETY: the simulator may be loaded at any time.
        let simulator = unsafe { Library::new(dir.join("libcuda.so.1")) }.unwrap();
        let text = CString::new(config).unwrap();
        // SAFETY: the function's signature; a text that ends.
        unsafe {
            let configure =
                simulator.get::<unsafe extern "C" fn(*const c_char)>("llmrt_sim_configure").unwrap();
            configure(text.as_ptr());
        }
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let host = Host::new(HostOptions {
            n_threads: Some(1),
            options: options
                .iter()
                .map(|(key, value)| (key.to_string(), value.to_string()))
                .chain([("cuda.lib_dir".to_string(), dir.display().to_string())])
                .collect(),
            log: Some(Arc::new(move |_, _, text| lines.lock().push(text.into()))),
            ..HostOptions::default()
        });
        host.register_builtin(llmrt_cuda::query).unwrap();
        Machine { host: Some(host), log, simulator, _turn: turn }
    }

    pub fn host(&self) -> &Arc<Host> {
        self.host.as_ref().expect("there until the machine goes")
    }

    /// Closes the host.
    pub fn close(&mut self) {
        self.host = None;
    }

    /// Card `i`.
    pub fn card(&self, i: usize) -> Arc<Device> {
        self.host().devices()[i].clone()
    }

    /// A counter of the simulator.
    pub fn count(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        // SAFETY: the function's signature; a text that ends.
        unsafe {
            self.simulator.get::<unsafe extern "C" fn(*const c_char) -> u64>("llmrt_sim_count").unwrap()(
                name.as_ptr(),
            )
        }
    }

    /// What the simulator found doubtful.
    pub fn reports(&self) -> Vec<String> {
        // SAFETY: the function's signature.
        let report =
            unsafe { self.simulator.get::<unsafe extern "C" fn(usize) -> *const c_char>("llmrt_sim_report") }
                .unwrap();
        // SAFETY: NULL, or a text that lives until the next one is requested.
        let text = |i| unsafe {
            let text = report(i);
            (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
        };
        (0..).map_while(text).collect()
    }
}

impl Drop for Machine {
    /// The plugin goes before another machine takes the place of this one.
    fn drop(&mut self) {
        self.host = None;
    }
}

/// A graph on a card, each tensor that owns its bytes in a buffer of its own.
pub struct Bound {
    buffers: Vec<Option<Buffer>>,
    /// Tensors that were moved, and where they begin in their buffers now.
    offsets: Vec<(Tensor, u64)>,
    pub raw: RawGraph,
}

/// Puts a graph on a card; weights, inputs and states come from `memory`, and weights are sealed as a loader seals them.
pub fn bind(device: &Arc<Device>, graph: &Graph, memory: &Memory) -> Result<Bound> {
    let mut builder = RawGraphBuilder::new();
    let mut buffers: Vec<Option<Buffer>> = Vec::new();
    let mut layouts = vec![0; graph.tensors.len()];
    for (i, def) in graph.tensors.iter().enumerate() {
        let (owner, offset) = def.view.map_or((i, 0), |(t, offset)| (t.0 as usize, offset));
        let desc = TensorDesc {
            nb: def.nb,
            role: def.role as u32,
            flags: if def.kind == Kind::Weight { TENSOR_WEIGHT } else { 0 },
            offset,
            name: &def.name,
            ..TensorDesc::contiguous(def.dtype, def.ne)
        };
        let buffer = if def.view.is_none() && def.n_elems() > 0 {
            let buffer = device.alloc(0, device.alloc_size(0, &desc)?, 0)?;
            if let (true, Some(bytes)) = (def.kind != Kind::Computed, memory.bytes(Tensor(i as u32))) {
                buffer.write(0, bytes)?;
            }
            if def.kind == Kind::Weight {
                layouts[i] = buffer.seal(&TensorDesc { buffer: Some(&buffer), ..desc })?.id;
            }
            Some(buffer)
        } else {
            None
        };
        buffers.push(buffer);
        let view = def.view.map(|(t, offset)| (t.0, offset));
        let layout_id = layouts[owner];
        builder.tensor(&TensorDesc { buffer: buffers[owner].as_ref(), view, layout_id, ..desc })?;
    }
    for node in &graph.nodes {
        let info = node.op.info();
        let srcs: Vec<_> = node.src.iter().map(|src| src.map(|t| t.0)).collect();
        let (op, op_version, dst) = (info.id, info.version, node.dst.0);
        builder.node(&NodeDesc { op, op_version, dst, srcs: &srcs, params: &node.params })?;
    }
    Ok(Bound { buffers, offsets: Vec::new(), raw: builder.build() })
}

impl Bound {
    /// The buffer of a tensor that owns its bytes.
    pub fn buffer(&self, t: Tensor) -> &Buffer {
        self.buffers[t.0 as usize].as_ref().expect("it has bytes")
    }

    /// Puts `a`, with its bytes, and `b` into one buffer of `n` bytes, `b` by `offset` bytes after `a`.
    pub fn share(&mut self, a: Tensor, b: Tensor, n: u64, offset: u64) {
        let old = self.buffer(a).clone();
        let shared = old.device().alloc(0, n, 0).unwrap();
        let mut bytes = vec![0; old.size() as usize];
        old.read(0, &mut bytes).unwrap();
        shared.write(0, &bytes).unwrap();
        self.raw.bind(a.0, &shared, 0).unwrap();
        self.raw.bind(b.0, &shared, offset).unwrap();
        self.offsets.extend([(a, 0), (b, offset)]);
    }

    /// Puts all that is computed into one buffer, memory used again as soon as it may be, as a host does.
    pub fn plan(&mut self, device: &Arc<Device>, graph: &Graph) -> Buffer {
        let lives = plan::lifetimes(graph, 0..graph.nodes.len());
        let item = |life: &plan::Lifetime| plan::Item {
            size: graph.def(life.tensor).n_bytes(),
            first_use: life.first_use,
            last_use: life.last_use,
        };
        let layout = plan::plan(&lives.iter().map(item).collect::<Vec<_>>(), 256);
        let arena = device.alloc(0, layout.total, 0).unwrap();
        arena.fill(0, layout.total, 0xcc).unwrap();
        for (life, first) in lives.iter().zip(layout.offsets) {
            for (i, def) in graph.tensors.iter().enumerate() {
                match def.view {
                    None if i == life.tensor.0 as usize => self.raw.bind(i as u32, &arena, first).unwrap(),
                    Some((owner, offset)) if owner == life.tensor => {
                        self.raw.bind(i as u32, &arena, first + offset).unwrap();
                    }
                    _ => {}
                }
            }
        }
        arena
    }

    /// Where a tensor begins in its buffer.
    pub fn offset(&self, t: Tensor) -> u64 {
        self.offsets.iter().find(|(of, _)| *of == t).map_or(0, |(_, offset)| *offset)
    }

    /// Whether the card takes every node.
    pub fn is_supported(&self, device: &Device) -> Result<bool> {
        Ok(device.supports(&self.raw, 0..self.raw.n_nodes())?.iter().all(|verdict| verdict.support == 1))
    }

    /// The bytes of a tensor's owner after the stream's work.
    pub fn read(&self, stream: &Stream, graph: &Graph, t: Tensor) -> Result<Vec<u8>> {
        stream.synchronize()?;
        let owner = graph.owner(t);
        let mut bytes = vec![0; graph.def(owner).n_bytes() as usize];
        if let Some(buffer) = &self.buffers[owner.0 as usize] {
            buffer.read(0, &mut bytes)?;
        }
        Ok(bytes)
    }
}
