//! A card: what it is, what it claims, and what it hands out.

use crate::buffer::CardMemory;
use crate::chip::Chip;
use crate::event::CardEvent;
use crate::hccl::CardGroup;
use crate::layout;
use crate::memory::CardScratch;
use crate::ops;
use crate::options::{Options, Probes};
use crate::pinned::{CardPinned, Pinned};
use crate::runtime::Runtime;
use crate::stream::CardStream;
use llmrt_plugin::abi::types::*;
use llmrt_plugin::{
    Buffer, BufferTypeInfo, Device, DeviceInfo, Error, Event, GraphView, Group, Host, Level,
    PINNED_ALIGNMENT, PeerView, Result, ScratchMemory, Stream, StreamParams, TensorView, Verdict,
};
use std::sync::Arc;

/// A card.
pub struct Card {
    host: Host,
    /// The libraries.
    pub runtime: Arc<Runtime>,
    /// Its number among the visible ones.
    pub number: i32,
    /// What its chip can do.
    pub chip: Chip,
    soc: String,
    scratch: CardScratch,
    options: Options,
}

/// Tensors start at multiples of this.
const ALIGNMENT: u64 = 512;
/// Row of the buffer type of memory on the host.
const PINNED: u32 = 1;

impl Card {
    /// A visible card. Nothing is created on it yet.
    pub fn new(host: Host, runtime: &Arc<Runtime>, number: i32, soc: &str, options: Options) -> Card {
        let (chip, soc) = (crate::chip::chip(soc), soc.to_string());
        let scratch = CardScratch::new(runtime, number);
        Card { host, runtime: runtime.clone(), number, chip, soc, scratch, options }
    }
}

impl Device for Card {
    fn info(&self) -> DeviceInfo {
        let peers = if self.chip.peers { CAP_P2P } else { 0 };
        let memory = BufferTypeInfo {
            kind: BUFFER_DEVICE,
            flags: BT_MAY_TRANSFORM,
            alignment: ALIGNMENT,
            max_size: 0,
            name: if self.chip.hbm { "HBM" } else { "DDR" }.into(),
        };
        let pinned = BufferTypeInfo {
            kind: BUFFER_HOST_PINNED,
            flags: BT_HOST_PTR,
            alignment: PINNED_ALIGNMENT,
            max_size: 0,
            name: "pinned".into(),
        };
        DeviceInfo {
            caps: CAP_ASYNC | CAP_EVENTS | CAP_VMM | CAP_PLAN | peers,
            description: format!("Huawei {}", if self.soc.is_empty() { "Ascend" } else { &self.soc }),
            arch: self.soc.clone(),
            memory_total: self.runtime.total_memory(self.number),
            buffer_types: vec![memory, pinned],
            kv_block_size: ops::block_size(&self.runtime.cann),
            ..DeviceInfo::new(DEVICE_NPU, self.number.to_string())
        }
    }

    fn open(&self) -> Result<()> {
        self.runtime.open_card(self.number)?;
        let choose = || self.options.layouts.choose(self.host, &self.runtime, self.number, self.chip);
        self.runtime.choose_layouts(choose);
        if self.options.probes != Probes::None {
            crate::probe::run(self.host, &self.runtime, self.number, self.chip, self.options.probes);
        }
        Ok(())
    }

    fn close(&self) {
        self.runtime.close_card(self.number);
    }

    fn memory(&self) -> Result<(u64, u64)> {
        self.runtime.enter(self.number)?;
        self.runtime.memory()
    }

    fn supports(&self, graph: &GraphView<'_>, node: usize) -> Verdict {
        match ops::supports(&self.runtime.cann, &self.chip, &graph.node(node)) {
            Ok(()) => Verdict::YES,
            Err(reason) => Verdict::no(reason),
        }
    }

    fn alloc(&self, bt: u32, size: u64, _usage: u32) -> Result<Box<dyn Buffer>> {
        match bt {
            PINNED => Ok(Box::new(CardPinned::new(
                Pinned { runtime: self.runtime.clone(), device: self.number },
                size,
            )?)),
            _ => Ok(Box::new(CardMemory::new(&self.runtime, self.number, size)?)),
        }
    }

    /// Vector units read in pieces of 32 bytes and up to 32 bytes past the end.
    fn alloc_size(&self, bt: u32, tensor: &TensorView<'_>) -> u64 {
        if bt == PINNED {
            return tensor.nbytes();
        }
        // Whatever is chosen needs this room.
        let layout = layout::of_weight(tensor, layout::Choice::default());
        let stored = layout.map_or(0, |layout| layout.stored_bytes);
        stored.max(tensor.nbytes()).next_multiple_of(32) + 32
    }

    fn stream(&self, params: &StreamParams) -> Result<Box<dyn Stream>> {
        let captures = self.chip.graphs && self.runtime.cann.acl.aclmdlRICaptureBegin.is_some();
        let graphs = if captures { self.options.n_graphs } else { 0 };
        Ok(Box::new(CardStream::new(
            self.host,
            &self.runtime,
            self.number,
            self.chip,
            params.scratch,
            graphs,
        )?))
    }

    fn accepts(&self, _owner: &PeerView<'_>, _bt: u32) -> bool {
        false
    }

    fn event(&self) -> Result<Box<dyn Event>> {
        Ok(Box::new(CardEvent::new(&self.runtime, self.number)?))
    }

    fn group(&self, members: &[PeerView<'_>]) -> Result<Box<dyn Group>> {
        let group = match self.options.hccl {
            false => Err(Error::unsupported("option cann.hccl=0")),
            true => {
                let number = |peer: &PeerView<'_>| peer.name().parse().ok().filter(|_| peer.is_ours());
                let cards: Option<Vec<i32>> = members.iter().map(number).collect();
                let cards = cards.ok_or_else(|| Error::invalid("a group with devices of another plugin"))?;
                CardGroup::new(&self.runtime, &cards, self.chip.broadcast)
            }
        };
        let without = |e: &Error| {
            let text = format!("cards put results together by copies, without collectives: {}", e.message);
            self.host.log(Level::Info, "cann", &text);
        };
        Ok(Box::new(group.inspect_err(without)?))
    }

    fn scratch_memory(&self) -> Option<&dyn ScratchMemory> {
        Some(&self.scratch)
    }
}
