//! A plugin with five devices that keep bytes: `near` uses host memory in place and copies weights, `far` has memory of its own and a
//! layout of its own, `tiny` has little memory, `apart` and `full` use host memory and request copies of matrices,
//! for which `full` has no room.

use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

use llmrt_plugin::abi::types::{
    BT_COPY_MATRICES, BUFFER_DEVICE, CAP_HOST_READ, DEVICE_ACCEL, LAYOUT_INVERTIBLE, LAYOUT_STORABLE,
};
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Driver, Error, GraphView, Host, Layout, Op, PluginInfo,
    Reason, Result, Stream, StreamParams, TensorView, Verdict,
};

llmrt_plugin::export_plugin!(Shelf);

pub struct Shelf;

impl Driver for Shelf {
    const INFO: PluginInfo = PluginInfo { name: "shelf", version: "1", vendor: "llmrt", needs_host: 0 };

    fn init(_host: Host) -> Result<Shelf> {
        Ok(Shelf)
    }

    fn devices(&self) -> Vec<Arc<dyn Device>> {
        let device =
            |name, caps, bt, memory| -> Arc<dyn Device> { Arc::new(Board { name, caps, bt, memory }) };
        let own = |max_size| BufferTypeInfo {
            kind: BUFFER_DEVICE,
            flags: 0,
            alignment: 256,
            max_size,
            name: "shelf".into(),
        };
        let copies = || {
            let host = BufferTypeInfo::host();
            BufferTypeInfo { flags: host.flags | BT_COPY_MATRICES, ..host }
        };
        vec![
            device("near", CAP_HOST_READ, BufferTypeInfo::host(), 1 << 30),
            device("far", CAP_HOST_READ, own(64 << 20), 1 << 30),
            device("tiny", 0, own(1024), 8192),
            device("apart", CAP_HOST_READ, copies(), 1 << 30),
            device("full", CAP_HOST_READ, copies(), 8192),
        ]
    }
}

struct Board {
    name: &'static str,
    caps: u64,
    bt: BufferTypeInfo,
    memory: u64,
}

/// Layout that `far` makes of a weight.
pub const LAYOUT: u32 = 7;

/// Most bytes that one call may bring.
const MAX_TRANSFER: usize = 16 << 20;

impl Device for Board {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            caps: self.caps,
            memory_total: self.memory,
            buffer_types: vec![self.bt.clone()],
            ..DeviceInfo::new(DEVICE_ACCEL, self.name)
        }
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok((self.memory, self.memory))
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        match graph.node(node).op() {
            Some(Op::Copy) if self.name == "near" => Verdict::YES,
            _ => Verdict::no(Reason::Op),
        }
    }

    fn alloc(&self, _bt: u32, size: u64, _usage: u32) -> Result<Box<dyn Buffer>> {
        if size > self.memory {
            return Err(Error::oom_device(size, self.memory));
        }
        Ok(Box::new(Own { bytes: Mutex::new(vec![0; size as usize]), sealed: Mutex::default() }))
    }

    fn stream(&self, _params: &StreamParams) -> Result<Box<dyn Stream>> {
        Ok(Box::new(Copier))
    }

    unsafe fn import_host(&self, ptr: *mut u8, n: u64, _read_only: bool) -> Result<Box<dyn Buffer>> {
        if self.bt.kind == BUFFER_DEVICE {
            return Err(Error::invalid("weights of this device do not belong into host memory"));
        }
        Ok(Box::new(Imported { at: ptr.addr(), n }))
    }
}

/// Memory of a device, and where sealed tensors begin in it.
struct Own {
    bytes: Mutex<Vec<u8>>,
    sealed: Mutex<HashSet<u64>>,
}

impl Buffer for Own {
    fn set(&self, tensor: &TensorView<'_>, src: &[u8], off: u64) -> Result<()> {
        if src.len() > MAX_TRANSFER {
            return Err(Error::invalid(format!("{} bytes at once", src.len())));
        }
        let at = (tensor.offset() + off) as usize;
        self.bytes.lock()[at..at + src.len()].copy_from_slice(src);
        Ok(())
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        let at = (tensor.offset() + off) as usize;
        dst.copy_from_slice(&self.bytes.lock()[at..at + dst.len()]);
        Ok(())
    }

    fn fill(&self, off: u64, n: u64, byte: u8) -> Result<()> {
        self.bytes.lock()[off as usize..(off + n) as usize].fill(byte);
        Ok(())
    }

    fn seal(&self, tensor: &TensorView<'_>) -> Result<Layout> {
        match self.sealed.lock().insert(tensor.offset()) {
            true => Ok(Layout {
                id: LAYOUT,
                flags: LAYOUT_INVERTIBLE | LAYOUT_STORABLE,
                ..Layout::canonical(tensor.nbytes())
            }),
            false => Err(Error::invalid("sealed twice")),
        }
    }
}

/// Host memory: address and length.
struct Imported {
    at: usize,
    n: u64,
}

impl Buffer for Imported {
    fn set(&self, _tensor: &TensorView<'_>, _src: &[u8], _off: u64) -> Result<()> {
        Err(Error::invalid("weights in place are not written"))
    }

    fn get(&self, tensor: &TensorView<'_>, dst: &mut [u8], off: u64) -> Result<()> {
        assert!(tensor.offset() + off + dst.len() as u64 <= self.n);
        let from = (self.at as *const u8).wrapping_add((tensor.offset() + off) as usize);
        // SAFETY: the host keeps the memory as long as this buffer, and the range is inside it.
        unsafe { std::ptr::copy_nonoverlapping(from, dst.as_mut_ptr(), dst.len()) };
        Ok(())
    }

    fn fill(&self, _off: u64, _n: u64, _byte: u8) -> Result<()> {
        Err(Error::invalid("weights in place are not written"))
    }

    fn host_ptr(&self) -> Option<*mut u8> {
        Some(self.at as *mut u8)
    }
}

/// Copies weights that are in host memory.
struct Copier;

impl Stream for Copier {
    fn compute(&mut self, graph: &GraphView<'_>) -> Result<()> {
        graph.nodes().try_for_each(|node| {
            let (y, source) = (node.dst(), node.src(0).ok_or_else(|| Error::invalid("no source"))?);
            let (Some(weight), Some(own)) = (source.buffer::<Imported>(), y.buffer::<Own>()) else {
                return Err(Error::invalid("only weights in host memory are copied"));
            };
            let mut bytes = vec![0; y.nbytes() as usize];
            weight.get(&source, &mut bytes, 0)?;
            own.set(&y, &bytes, 0)
        })
    }

    fn synchronize(&mut self) -> Result<()> {
        Ok(())
    }
}
