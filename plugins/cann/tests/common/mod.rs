//! A host with the plugin, and a folder of simulated libraries in place of the vendor's. Tests take turns.
#![allow(dead_code)]

use libloading::os::unix::Library;
use llmrt_graph::reference::Memory;
use llmrt_graph::{Graph, Kind, Tensor};
use llmrt_host::{
    Buffer, Device, Host, HostOptions, NodeDesc, RawGraph, RawGraphBuilder, Result, Stream, TensorDesc,
};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
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

/// A folder with these libraries, "RELEASE" or "RELEASE without FUNCTION,…"; made once, kept for the process.
pub fn libraries(release: &'static str) -> &'static Path {
    static FOLDERS: Mutex<BTreeMap<&'static str, &'static Path>> = Mutex::new(BTreeMap::new());
    static ROOT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let root = ROOT.get_or_init(|| tempfile::TempDir::new().unwrap()).path();
    let mut folders = FOLDERS.lock();
    let number = folders.len().to_string();
    folders.entry(release).or_insert_with(|| {
        let (dir, (release, without)) =
            (root.join(number), release.split_once(" without ").unwrap_or((release, "")));
        cann_simulator::install::install(&dir, release, &without.split(',').collect::<Vec<_>>()).unwrap();
        Box::leak(dir.into_boxed_path())
    })
}

impl Machine {
    /// As described in the simulator's README.
    pub fn new(config: &str) -> Machine {
        Machine::with("9.1", config)
    }

    /// A release on a chip.
    pub fn of(release: &'static str, soc: &str, config: &str) -> Machine {
        Machine::with(release, &format!("release={release},soc={soc},{config}"))
    }

    /// With libraries of this release, or stubs.
    pub fn with(release: &'static str, config: &str) -> Machine {
        Machine::with_options(release, config, &[])
    }

    /// With these options of the plugin, too.
    pub fn with_options(release: &'static str, config: &str, options: &[(&str, &str)]) -> Machine {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock();
        let dir = libraries(release);
        // Found by the vendor's name, as the plugin finds it: the same library, whatever folder came first.
        // SAFETY: the simulator may be loaded at any time.
        let simulator = unsafe { Library::new(dir.join("libascendcl.so")) }.unwrap();
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
                .chain([("cann.lib_dir".to_string(), dir.display().to_string())])
                .collect(),
            log: Some(Arc::new(move |_, _, text| lines.lock().push(text.into()))),
            ..HostOptions::default()
        });
        host.register_builtin(llmrt_cann::query).unwrap();
        Machine { host: Some(host), log, simulator, _turn: turn }
    }

    pub fn host(&self) -> &Arc<Host> {
        self.host.as_ref().expect("there until the machine goes")
    }

    /// Closes the host, and returns how many cards were reset since the beginning.
    pub fn close(&mut self) -> u64 {
        self.host = None;
        self.count("aclrtResetDevice")
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
    pub raw: RawGraph,
}

/// Puts a graph on a card; weights, inputs and states come from `memory`.
pub fn bind(device: &Arc<Device>, graph: &Graph, memory: &Memory) -> Result<Bound> {
    let mut builder = RawGraphBuilder::new();
    let mut buffers: Vec<Option<Buffer>> = Vec::new();
    for (i, def) in graph.tensors.iter().enumerate() {
        let (owner, offset) = def.view.map_or((i, 0), |(t, offset)| (t.0 as usize, offset));
        let desc = TensorDesc {
            nb: def.nb,
            role: def.role as u32,
            offset,
            name: &def.name,
            ..TensorDesc::contiguous(def.dtype, def.ne)
        };
        let buffer = if def.view.is_none() && def.n_elems() > 0 {
            let buffer = device.alloc(0, device.alloc_size(0, &desc)?, 0)?;
            if let (true, Some(bytes)) = (def.kind != Kind::Computed, memory.bytes(Tensor(i as u32))) {
                buffer.write(0, bytes)?;
            }
            Some(buffer)
        } else {
            None
        };
        buffers.push(buffer);
        let view = def.view.map(|(t, offset)| (t.0, offset));
        builder.tensor(&TensorDesc { buffer: buffers[owner].as_ref(), view, ..desc })?;
    }
    for node in &graph.nodes {
        let info = node.op.info();
        let srcs: Vec<_> = node.src.iter().map(|src| src.map(|t| t.0)).collect();
        let (op, op_version, dst) = (info.id, info.version, node.dst.0);
        builder.node(&NodeDesc { op, op_version, dst, srcs: &srcs, params: &node.params })?;
    }
    Ok(Bound { buffers, raw: builder.build() })
}

impl Bound {
    /// The buffer of a tensor that owns its bytes.
    pub fn buffer(&self, t: Tensor) -> &Buffer {
        self.buffers[t.0 as usize].as_ref().expect("it has bytes")
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

/// Products of F16 weights, which take scratch memory, on a card.
pub fn products(card: &Arc<Device>) -> Result<Bound> {
    use llmrt_abi::DType;
    let case = llmrt_graph::ops::case::Case::new("products", |g, _| {
        let w = g.weight("w", DType::F16, &[64, 48], llmrt_graph::Role::Matrix);
        let x = g.input("x", DType::F32, &[64, 3]);
        g.mul_mat(w, x);
    });
    bind(card, &case.graph, &case.values(7).expect("a case has values"))
}
