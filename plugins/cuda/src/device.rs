//! A device: what it is, what it claims, and what it hands out.

use crate::buffer::GpuMemory;
use crate::event::GpuEvent;
use crate::gpu::Gpu;
use crate::image::Images;
use crate::memory::GpuScratch;
use crate::modules::Modules;
use crate::ops;
use crate::peers;
use crate::pinned::{GpuPinned, Pinned};
use crate::stream::{GpuStream, Settings};
use crate::trial::Trials;
use llmrt_plugin::abi::types::*;
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Event, GraphView, PINNED_ALIGNMENT, Result, ScratchMemory,
    Stream, StreamParams, Verdict,
};
use std::sync::Arc;

/// A device.
pub struct GpuDevice {
    gpu: Arc<Gpu>,
    modules: Arc<Modules>,
    scratch: GpuScratch,
    settings: Settings,
}

/// Tensors start at multiples of this.
const ALIGNMENT: u64 = 256;
/// Row of the buffer type of memory on the host.
const PINNED: u32 = 1;

impl GpuDevice {
    /// A visible device. Nothing is created on it yet.
    pub fn new(gpu: Gpu, images: &Arc<Images>, settings: Settings) -> GpuDevice {
        let gpu = Arc::new(gpu);
        let scratch = GpuScratch::new(&gpu);
        let modules = Arc::new(Modules::new(images, Trials::new(settings.wgmma)));
        GpuDevice { gpu, modules, scratch, settings }
    }
}

impl Device for GpuDevice {
    fn info(&self) -> DeviceInfo {
        let who = &self.gpu.identity;
        let memory = BufferTypeInfo {
            kind: BUFFER_DEVICE,
            flags: 0,
            alignment: ALIGNMENT,
            max_size: 0,
            name: "device".into(),
        };
        let pinned = BufferTypeInfo {
            kind: BUFFER_HOST_PINNED,
            flags: BT_HOST_PTR,
            alignment: PINNED_ALIGNMENT,
            max_size: 0,
            name: "pinned".into(),
        };
        let kind = if who.integrated { DEVICE_IGPU } else { DEVICE_GPU };
        let driver = &self.gpu.driver;
        let mut others = (0..driver.n_devices()).filter_map(|i| driver.device(i).ok());
        let has_peers = others.any(|other| peers::can_reach(driver, self.gpu.device, other));
        let p2p = if has_peers { CAP_P2P } else { 0 };
        DeviceInfo {
            caps: CAP_ASYNC | CAP_EVENTS | CAP_PLAN | p2p | if who.vmm { CAP_VMM } else { 0 },
            description: who.name.clone(),
            arch: format!("sm_{}{}", who.capability.0, who.capability.1),
            pci_id: who.pci_id.clone(),
            uuid: who.uuid,
            memory_total: who.memory,
            buffer_types: vec![memory, pinned],
            ..DeviceInfo::new(kind, self.gpu.number.to_string())
        }
    }

    fn open(&self) -> Result<()> {
        self.gpu.open()
    }

    fn close(&self) {
        self.modules.unload(&self.gpu);
        self.gpu.cublas.close(self.gpu.enter().is_ok());
        self.scratch.close();
        self.gpu.close();
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.gpu.enter()?;
        self.gpu.memory()
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        let node = graph.node(node);
        match ops::supports(&node) {
            Ok(()) => Verdict { workspace: ops::workspace(&node, &self.gpu), ..Verdict::YES },
            Err(reason) => Verdict::no(reason),
        }
    }

    fn alloc(&self, bt: u32, size: u64, _usage: u32) -> Result<Box<dyn Buffer>> {
        match bt {
            PINNED => Ok(Box::new(GpuPinned::new(Pinned(self.gpu.clone()), size)?)),
            _ => Ok(Box::new(GpuMemory::new(&self.gpu, size)?)),
        }
    }

    fn stream(&self, params: &StreamParams) -> Result<Box<dyn Stream>> {
        Ok(Box::new(GpuStream::new(&self.gpu, &self.modules, params, &self.settings)?))
    }

    fn event(&self) -> Result<Box<dyn Event>> {
        Ok(Box::new(GpuEvent::new(&self.gpu)?))
    }

    fn scratch_memory(&self) -> Option<&dyn ScratchMemory> {
        Some(&self.scratch)
    }
}
