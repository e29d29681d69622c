//! The one device: this machine's processors and memory.

use crate::buffer::HostBuffer;
use crate::ops;
use crate::simd::Isa;
use crate::stream::CpuStream;
use llmrt_plugin::abi::types as c;
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Error, GraphView, Host, PeerView, Result, Stream,
    StreamParams, Verdict,
};

/// This machine's processors.
pub struct Cpu {
    host: Host,
    isa: Isa,
}

impl Cpu {
    /// The device, its kernels run with `isa`.
    pub fn new(host: Host, isa: Isa) -> Cpu {
        Cpu { host, isa }
    }
}

impl Device for Cpu {
    fn info(&self) -> DeviceInfo {
        let mut info = DeviceInfo::new(c::DEVICE_CPU, "cpu");
        info.caps = c::CAP_HOST_READ;
        info.description = model_name();
        info.arch = format!("{} {}", std::env::consts::ARCH, self.isa.name());
        info.memory_total = memory().1;
        let host = BufferTypeInfo::host();
        info.buffer_types =
            vec![BufferTypeInfo { flags: host.flags | c::BT_MAY_TRANSFORM | c::BT_COPY_MATRICES, ..host }];
        info
    }

    fn memory(&self) -> Result<(u64, u64)> {
        Ok(memory())
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        match ops::supports(&graph.node(node)) {
            Ok(()) => Verdict { support: 1, est_us: -1.0, ..Verdict::default() },
            Err(reason) => Verdict { reason: reason as u8, est_us: -1.0, ..Verdict::default() },
        }
    }

    fn alloc(&self, _bt: u32, size: u64, _usage: u32) -> Result<Box<dyn Buffer>> {
        Ok(Box::new(HostBuffer::alloc(size, self.isa)?))
    }

    fn stream(&self, params: &StreamParams) -> Result<Box<dyn Stream>> {
        Ok(Box::new(CpuStream::new(self.host, self.isa, params.n_threads as usize)))
    }

    /// Memory of any device that the CPU may address is as good as its own.
    fn accepts(&self, owner: &PeerView<'_>, bt: u32) -> bool {
        owner.buffer_type(bt).is_some_and(|(_, flags)| flags & c::BT_HOST_PTR != 0)
    }

    unsafe fn import_host(&self, ptr: *mut u8, n: u64, read_only: bool) -> Result<Box<dyn Buffer>> {
        let n =
            usize::try_from(n).map_err(|_| Error::invalid(format!("{n} bytes are more than memory has")))?;
        // SAFETY: the host keeps the memory for the buffer's life.
        Ok(Box::new(unsafe { HostBuffer::import(ptr, n, read_only, self.isa) }))
    }
}

/// The processor's name, from the system.
fn model_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(':')).map_or("CPU".to_string(), |(_, name)| name.trim().to_string())
}

/// Free and total bytes of memory.
fn memory() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    match (kib("MemAvailable:"), kib("MemTotal:")) {
        (Some(free), Some(total)) => (free * 1024, total * 1024),
        _ => (0, installed()),
    }
}

/// Bytes of memory where there is no /proc.
fn installed() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, size) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    pages.max(0) as u64 * size.max(0) as u64
}
