//! Custom ops: registered by plugins in `init`, found by name, run on a device or by their plain reference.

use super::loaded::Loaded;
use super::table;
use crate::device::{NodeDesc, RawGraph, RawGraphBuilder, Stream, TensorDesc};
use crate::error::{Error, Result};
use llmrt_abi::{DType, Reason, Status, types as c};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::{Arc, OnceLock, Weak};

/// Numbers of custom ops start here.
const FIRST: u32 = 0x8000_0000;
/// Bit 1 of [`c::OpDesc`]'s flags: needs the plugin.
const PINNED: u32 = 2;

/// An op that a plugin brought. Usable while its plugin is.
#[derive(Clone)]
pub struct CustomOp(pub(crate) Arc<Registered>);

pub(crate) struct Registered {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) version: u32,
    schema: String,
    flags: u32,
    sources: std::ops::RangeInclusive<u32>,
    desc: c::OpDesc,
    /// Set when the plugin's `init` has succeeded.
    owner: OnceLock<Weak<Loaded>>,
}

// SAFETY: texts are copied, `desc` is used for its two functions, which may be called from any thread.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

/// Who ran a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RanBy {
    /// The device.
    Device,
    /// The op's reference on host memory, because the device refused for this reason.
    Reference(Reason),
}

/// The number of a name and version, the same for all hosts of the process.
fn intern(name: &str, version: u32) -> u32 {
    static NAMES: Mutex<Vec<(String, u32)>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock();
    let row = names.iter().position(|(n, v)| (n.as_str(), *v) == (name, version)).unwrap_or_else(|| {
        names.push((name.to_string(), version));
        names.len() - 1
    });
    FIRST + row as u32
}

impl Registered {
    /// Checks and copies what a plugin registers.
    ///
    /// # Safety
    /// `desc` is NULL or a description with at least `struct_size` readable bytes.
    pub(crate) unsafe fn read(desc: *const c::OpDesc) -> Result<Registered, String> {
        // SAFETY: the caller's promise; texts belong to the description.
        let (desc, name, schema) = unsafe {
            let desc: c::OpDesc = table::read(desc)?;
            let (name, schema) = (table::text(desc.name, "op name")?, table::text(desc.schema, "op schema")?);
            (desc, name, schema)
        };
        if !name.split_once('.').is_some_and(|(vendor, op)| !vendor.is_empty() && !op.is_empty()) {
            return Err(format!("`{name}` is no name of a custom op; `vendor.op` is expected"));
        }
        if desc.infer.is_none() {
            return Err(format!("{name} lacks mandatory `infer`"));
        }
        if desc.min_src > desc.max_src || desc.max_src > 64 {
            return Err(format!("{name} takes {} to {} sources; at most 64", desc.min_src, desc.max_src));
        }
        let (version, flags, sources) = (desc.version, desc.flags, desc.min_src..=desc.max_src);
        Ok(Registered {
            id: intern(&name, version),
            name,
            version,
            schema,
            flags,
            sources,
            desc,
            owner: OnceLock::new(),
        })
    }

    /// Sets the plugin that registered it, which passed `init`.
    pub(crate) fn belongs_to(&self, plugin: &Arc<Loaded>) {
        let _ = self.owner.set(Arc::downgrade(plugin));
    }
}

impl CustomOp {
    /// Number in graphs of this process.
    pub fn id(&self) -> u32 {
        self.0.id
    }

    /// `vendor.op`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Version of its meaning.
    pub fn version(&self) -> u32 {
        self.0.version
    }

    /// Its params as text, for people.
    pub fn schema(&self) -> &str {
        &self.0.schema
    }

    /// Whether only devices of its plugin run it.
    pub fn is_pinned(&self) -> bool {
        self.0.flags & PINNED != 0 || self.0.desc.reference.is_none()
    }

    /// Dtype and dims of the result for these sources and params.
    pub fn infer(&self, srcs: &[TensorDesc<'_>], params: &[u8]) -> Result<(DType, [u64; 4])> {
        let _plugin = self.plugin()?;
        let unknown = TensorDesc::contiguous(DType::F32, [1; 4]);
        let graph = self.graph(srcs, &unknown, params)?;
        let Some(infer) = self.0.desc.infer else { return Err(self.complain("lacks `infer`")) };
        let mut dst = unknown.to_abi(4);
        // SAFETY: a function of a live plugin; the graph is self-consistent and has node 0; the output is ours.
        let status = unsafe { infer(graph.as_ptr(), 0, &mut dst) };
        if status != 0 {
            return Err(self.complain(format!(
                "its shape rule refuses these sources ({:?})",
                Status::from_code(status)
            )));
        }
        let dtype =
            DType::from_id(dst.dtype).ok_or_else(|| self.complain(format!("gives dtype {}", dst.dtype)))?;
        let ne = dst.ne.map(|n| u64::try_from(n).unwrap_or(0));
        TensorDesc::contiguous(dtype, ne).nbytes()?;
        Ok((dtype, ne))
    }

    /// Runs one node: on the stream's device if that supports it, by the reference otherwise. Sources and result have
    /// memory that the stream's device can use. Ends synchronised.
    pub fn run(
        &self,
        stream: &Stream,
        srcs: &[TensorDesc<'_>],
        dst: &TensorDesc<'_>,
        params: &[u8],
    ) -> Result<RanBy> {
        let graph = self.graph(srcs, dst, params)?;
        let verdict = stream.device().supports(&graph, 0..1)?[0];
        if verdict.support != 0 {
            stream.compute(&graph)?;
            return stream.synchronize().map(|()| RanBy::Device);
        }
        stream.synchronize()?;
        self.run_reference(&graph, srcs, dst)?;
        Ok(RanBy::Reference(Reason::from_code(verdict.reason)))
    }

    fn run_reference(&self, graph: &RawGraph, srcs: &[TensorDesc<'_>], dst: &TensorDesc<'_>) -> Result<()> {
        let _plugin = self.plugin()?;
        let Some(reference) = self.0.desc.reference.filter(|_| !self.is_pinned()) else {
            return Err(
                self.complain("the device refuses it, and it has no reference to run instead (PINNED)")
            );
        };
        // In words, so that every element is aligned.
        let host_memory = |t: &TensorDesc<'_>| -> Result<Vec<u64>> {
            let mut words = vec![0u64; t.nbytes()?.div_ceil(8) as usize];
            let buffer = t.buffer.ok_or_else(|| self.complain("an operand has no memory"))?;
            let mut bytes = vec![0; t.nbytes()? as usize];
            buffer.get(t, &mut bytes, 0)?;
            for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
                let mut whole = [0; 8];
                whole[..chunk.len()].copy_from_slice(chunk);
                *word = u64::from_ne_bytes(whole);
            }
            Ok(words)
        };
        let operands = srcs.iter().map(host_memory).collect::<Result<Vec<_>>>()?;
        let pointers: Vec<*const c_void> = operands.iter().map(|words| words.as_ptr().cast()).collect();
        // Bytes between the result's rows stay as they are.
        let mut result = host_memory(dst)?;
        // SAFETY: a function of a live plugin; the graph has node 0; each pointer has the bytes of its tensor.
        let status = unsafe { reference(graph.as_ptr(), 0, pointers.as_ptr(), result.as_mut_ptr().cast()) };
        if status != 0 {
            return Err(self.complain(format!("its reference answered {:?}", Status::from_code(status))));
        }
        let bytes: Vec<u8> = result.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let buffer = dst.buffer.ok_or_else(|| self.complain("the result has no memory"))?;
        buffer.set(dst, &bytes[..dst.nbytes()? as usize], 0)
    }

    /// A graph of one node of this op.
    fn graph(&self, srcs: &[TensorDesc<'_>], dst: &TensorDesc<'_>, params: &[u8]) -> Result<RawGraph> {
        if !self.0.sources.contains(&(srcs.len() as u32)) {
            let (least, most) = (self.0.sources.start(), self.0.sources.end());
            return Err(
                self.complain(format!("{} sources given; {least} to {most} are expected", srcs.len()))
            );
        }
        let mut g = RawGraphBuilder::new();
        let rows = srcs.iter().map(|t| g.tensor(t).map(Some)).collect::<Result<Vec<_>>>()?;
        let dst = g.tensor(dst)?;
        g.node(&NodeDesc { op: self.id(), op_version: self.version(), dst, srcs: &rows, params })?;
        Ok(g.build())
    }

    /// The plugin, alive; kept so while one of its functions runs.
    fn plugin(&self) -> Result<Arc<Loaded>> {
        let plugin = self.0.owner.get().and_then(Weak::upgrade);
        let plugin = plugin.ok_or_else(|| self.complain("its plugin has been shut down"))?;
        plugin.alive()?;
        Ok(plugin)
    }

    fn complain(&self, problem: impl Into<String>) -> Error {
        Error::invalid(format!("op {} version {}", self.name(), self.version()), problem)
    }
}

impl std::fmt::Debug for CustomOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CustomOp({} version {} as {:#x})", self.name(), self.version(), self.id())
    }
}
