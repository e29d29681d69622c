//! Runs the machine code of one block of a grid, lane by lane, as the chip's documents and its disassembly describe it: which
//! instructions are issued, and which addresses the lanes of each load have. Numbers in large tensors are zero.

use super::dataflow::ALL;
use super::sass::{Kernel, PT, REGISTERS, RZ, URZ};
use std::collections::BTreeMap;

/// A launch, as the simulator writes it down.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    /// The kernel.
    pub kernel: String,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory beside those that the kernel declares.
    pub shared: u32,
    /// Its argument.
    pub params: Vec<u8>,
    /// Memory: first address, bytes, and those that are known.
    pub regions: Vec<Region>,
}

/// An allocation.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// First address.
    pub at: u64,
    /// Bytes.
    pub len: u64,
    /// Its content; empty: zeros.
    pub bytes: Vec<u8>,
    /// Whether it is a tensor that is read once and not kept in a cache: weights, keys, values.
    pub is_stream: bool,
}

/// What a warp did, instruction by instruction.
pub struct Event {
    /// The instruction's number.
    pub at: u32,
    /// Lanes that execute it.
    pub lanes: u8,
    /// What it reads of global memory.
    pub access: Option<Access>,
    /// Clocks of shared memory for what it reads or writes there.
    pub shared_clocks: u32,
}

/// A load or a store of global memory by a warp.
#[derive(Clone, Debug)]
pub struct Access {
    /// Whether it is a load.
    pub is_load: bool,
    /// Bytes of a lane.
    pub width: u32,
    /// Pieces of 32 bytes that its lanes touch, in order.
    pub sectors: Vec<u64>,
    /// Whether it is of a region that is streamed.
    pub is_stream: bool,
}

/// Instructions of a warp at most: a loop that does not end is a mistake of this program.
const MAX_EVENTS: usize = 4_000_000;
const LANES: usize = 32;

/// A value per lane.
type Lanes = [u32; LANES];

pub struct Warp {
    pub regs: Vec<Lanes>,
    pub preds: [[bool; LANES]; 16],
    /// The next instruction of each lane.
    pub pc: [usize; LANES],
    /// Lanes that have not ended.
    pub alive: u32,
    /// Lanes that wait for a barrier of the warp, and which.
    pub waits: [Option<usize>; LANES],
    /// Lanes that take part in each barrier of the warp.
    pub members: [[u32; 16]; LANES],
    /// The block's barrier was reached.
    pub is_at_barrier: bool,
    pub local: BTreeMap<(usize, u64), u8>,
    pub number: u32,
    pub events: Vec<Event>,
}

/// A block.
pub struct Machine<'a> {
    pub kernel: &'a Kernel,
    pub launch: &'a Launch,
    /// Which block.
    pub block: [u32; 3],
    /// Where the argument begins in bank 0.
    pub params_at: i64,
    /// Bank 2: tables of branches.
    pub tables: &'a [u8],
    pub shared: Vec<u8>,
    written: BTreeMap<u64, u8>,
}

impl<'a> Machine<'a> {
    pub fn new(
        kernel: &'a Kernel,
        launch: &'a Launch,
        block: [u32; 3],
        params_at: i64,
        tables: &'a [u8],
    ) -> Self {
        let shared = vec![0; 228 << 10];
        Machine { kernel, launch, block, params_at, tables, shared, written: BTreeMap::new() }
    }

    /// Runs all warps to their ends; what each did.
    pub fn run(&mut self) -> Result<Vec<Vec<Event>>, String> {
        let mut warps: Vec<Warp> = (0..self.launch.threads / 32).map(Warp::new).collect();
        while warps.iter().any(|warp| warp.alive != 0) {
            for warp in &mut warps {
                while warp.alive != 0 && !warp.is_at_barrier {
                    self.step(warp)?;
                }
            }
            warps.iter_mut().for_each(|warp| warp.is_at_barrier = false);
        }
        Ok(warps.into_iter().map(|warp| warp.events).collect())
    }

    /// One instruction, for the lanes that are furthest back.
    fn step(&mut self, warp: &mut Warp) -> Result<(), String> {
        let runs = |warp: &Warp, lane: usize| warp.alive >> lane & 1 == 1 && warp.waits[lane].is_none();
        let Some(pc) = (0..LANES).filter(|lane| runs(warp, *lane)).map(|lane| warp.pc[lane]).min() else {
            return Err("all lanes wait for each other".into());
        };
        let kernel = self.kernel;
        let i = kernel.code.get(pc).ok_or("runs past its end")?;
        let active = (0..LANES).filter(|lane| runs(warp, *lane) && warp.pc[*lane] == pc);
        let active = active.fold(0u32, |mask, lane| mask | 1 << lane);
        let holds =
            |warp: &Warp, lane: usize| i.guard.is_none_or(|(p, not)| warp.preds[p as usize][lane] != not);
        let lanes = (0..LANES).filter(|lane| active >> lane & 1 == 1 && holds(warp, *lane));
        let lanes = lanes.fold(0u32, |mask, lane| mask | 1 << lane);
        for lane in (0..LANES).filter(|lane| active >> lane & 1 == 1) {
            warp.pc[lane] = pc + 1;
        }
        if warp.events.len() > MAX_EVENTS {
            return Err(format!("more than {MAX_EVENTS} instructions of a warp"));
        }
        warp.events.push(Event {
            at: pc as u32,
            lanes: lanes.count_ones() as u8,
            access: None,
            shared_clocks: 0,
        });
        if lanes != 0 {
            super::execute::execute(self, warp, i, lanes, pc).map_err(|e| {
                format!("{}{}: {e}", i.op, i.mods.iter().map(|m| format!(".{m}")).collect::<String>())
            })?;
        }
        warp.release();
        Ok(())
    }

    /// The region around an address.
    pub fn region(&self, address: u64) -> Option<&'a Region> {
        self.launch.regions.iter().find(|r| (r.at..r.at + r.len).contains(&address))
    }

    pub fn load(&self, address: u64, n: u32) -> Result<u128, String> {
        let region =
            self.region(address).ok_or_else(|| format!("a load from {address:x}, outside of memory"))?;
        let byte = |at: u64| {
            let known = region.bytes.get((at - region.at) as usize).copied().unwrap_or(0);
            self.written.get(&at).copied().unwrap_or(known)
        };
        Ok((0..u64::from(n)).fold(0, |word, i| word | u128::from(byte(address + i)) << (8 * i)))
    }

    pub fn store(&mut self, address: u64, n: u32, word: u128) -> Result<(), String> {
        self.region(address).ok_or_else(|| format!("a store to {address:x}, outside of memory"))?;
        self.written.extend((0..u64::from(n)).map(|i| (address + i, (word >> (8 * i)) as u8)));
        Ok(())
    }

    /// A word of a bank of constants. Bank 0 has the block's and the grid's sizes, and the argument.
    pub fn constant(&self, bank: u8, at: i64) -> u32 {
        let word = |bytes: &[u8], at: i64| {
            let byte =
                |i: i64| usize::try_from(at + i).ok().and_then(|at| bytes.get(at)).copied().unwrap_or(0);
            u32::from_le_bytes([byte(0), byte(1), byte(2), byte(3)])
        };
        match (bank, at) {
            (2, _) => word(self.tables, at),
            (_, 0) => self.launch.threads,
            (_, 4 | 8) => 1,
            (_, 12 | 16 | 20) => self.launch.grid[(at as usize - 12) / 4],
            // The end of the stack.
            (_, 0x28) => 0x0100_0000,
            _ => word(&self.launch.params, at - self.params_at),
        }
    }
}

impl Warp {
    fn new(number: u32) -> Warp {
        let mut preds = [[false; LANES]; 16];
        preds[PT as usize] = [true; LANES];
        preds[15] = [true; LANES];
        Warp {
            regs: vec![[0; LANES]; REGISTERS],
            preds,
            pc: [0; LANES],
            alive: u32::MAX,
            waits: [None; LANES],
            members: [[0; 16]; LANES],
            is_at_barrier: false,
            local: BTreeMap::new(),
            number,
            events: Vec::new(),
        }
    }

    /// Lets lanes go on whose barrier all members have reached.
    fn release(&mut self) {
        if self.waits.iter().all(Option::is_none) {
            return;
        }
        for lane in 0..LANES {
            let Some(b) = self.waits[lane].filter(|_| self.alive >> lane & 1 == 1) else { continue };
            let members = self.members[lane][b] & self.alive;
            let is_there = |l: usize| members >> l & 1 == 0 || self.waits[l] == Some(b);
            if (0..LANES).all(is_there) {
                (0..LANES).filter(|l| members >> l & 1 == 1).for_each(|l| self.waits[l] = None);
            }
        }
    }

    pub fn set(&mut self, reg: u16, lane: usize, value: u32) {
        if reg != RZ && reg != URZ {
            self.regs[reg as usize][lane] = value;
        }
    }

    pub fn set_pred(&mut self, p: u16, lane: usize, value: bool) {
        if p != PT && p != 15 {
            self.preds[p as usize][lane] = value;
        }
    }
}

// Times of all of them are kept in one array.
const _: () = assert!(ALL < 512);
