//! How long a warp takes alone, from what it did: in order, each instruction once what it reads is there.

use super::chips::Chip;
use super::dataflow::ALL;
use super::machine::{Access, Event};
use super::sass::{Instruction, Kernel, Operand};
use std::collections::BTreeMap;

/// Units that execute instructions. Rates: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Unit {
    /// Additions, comparisons, shifts, logic and selections of integers: 64 lanes per clock.
    Integer,
    /// Products of integers, and of bytes by fours: 64.
    Product,
    /// F32, and F16 by pairs: 64 on 8.0, 128 on 8.9 and 9.0, integer products included.
    Float,
    /// Functions and conversions: 16.
    Function,
    /// Products of matrices of bytes, 16 by 16 by 8 numbers each, the one shape that kernels use: the chip's.
    Tensor,
    /// Loads, stores, shuffles: the chip's.
    Memory,
    /// Branches, constants, what is done once for a warp: only slots of the schedulers.
    Other,
}

/// Of an instruction.
pub fn unit(i: &Instruction) -> Unit {
    if i.is_uniform {
        return Unit::Other;
    }
    match &i.op[..] {
        "IMAD" | "IDP" => Unit::Product,
        "FADD" | "FMUL" | "FFMA" | "HADD2" | "HMUL2" | "HFMA2" => Unit::Float,
        "MUFU" | "I2F" | "F2I" | "F2F" | "FRND" | "POPC" | "FLO" | "BREV" => Unit::Function,
        "LD" | "LDG" | "ST" | "STG" | "LDS" | "STS" | "LDL" | "STL" | "SHFL" | "LDGSTS" | "LDSM" => {
            Unit::Memory
        }
        "IMMA" => Unit::Tensor,
        "BRA" | "BRX" | "EXIT" | "CALL" | "RET" | "BSSY" | "BSYNC" | "BREAK" | "NOP" | "LDC" | "BAR"
        | "WARPSYNC" | "S2R" | "CS2R" | "YIELD" | "DEPBAR" | "LDGDEPBAR" => Unit::Other,
        _ => Unit::Integer,
    }
}

/// Clocks that a multiprocessor's unit is busy with an instruction of a warp.
pub fn busy(chip: &Chip, unit: Unit) -> f64 {
    match unit {
        Unit::Integer | Unit::Product => 32.0 / 64.0,
        Unit::Float => 32.0 / f64::from(chip.fp32),
        Unit::Function => 32.0 / 16.0,
        Unit::Tensor => 16.0 * 16.0 * 8.0 / f64::from(chip.byte_products),
        Unit::Memory => 32.0 / f64::from(chip.load_lanes),
        Unit::Other => 0.0,
    }
}

/// Clocks of the first cache for a load: pieces of 32 bytes are in four banks by their address, and each bank gives one per
/// clock, 128 bytes together (Accel-Sim's configuration of the chips since Volta: four banks, sectors interleaved).
pub fn cache_clocks(chip: &Chip, access: &Access) -> f64 {
    let mut banks = [0u32; 4];
    access.sectors.iter().for_each(|sector| banks[(sector % 4) as usize] += 1);
    let busiest = banks.into_iter().max().unwrap_or(0);
    f64::from(busiest).max(busy(chip, Unit::Memory))
}

/// Clocks of the memory pipeline for an instruction that touches no global memory.
pub fn own_clocks(chip: &Chip, i: &Instruction, event: &Event) -> f64 {
    match unit(i) {
        Unit::Memory => busy(chip, Unit::Memory).max(f64::from(event.shared_clocks)),
        _ => 0.0,
    }
}

/// Clocks until a result can be read, of what is no load. Arithmetic: 4 (Jia et al., "Dissecting the NVIDIA Volta GPU
/// Architecture via Microbenchmarking"; unchanged in the later paper); the others are of that order.
fn latency(i: &Instruction) -> u64 {
    match &i.op[..] {
        "SHFL" | "LDS" | "LDL" => 24,
        // Luo et al. (chips.rs) have 18 to 33 for shapes and chips.
        "IMMA" | "LDSM" => 32,
        "MUFU" | "I2F" | "F2I" | "F2F" | "POPC" => 18,
        "S2R" | "S2UR" | "R2UR" | "LDC" | "BAR" => 20,
        "BRA" | "CALL" | "RET" | "BRX" | "BSYNC" => 8,
        "IMAD" if i.has("WIDE") || i.has("HI") => 5,
        _ => 4,
    }
}

/// A warp's time alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct WarpTime {
    /// Clocks from its first instruction to its last.
    pub clocks: u64,
    /// Clocks until it first requests what is streamed.
    pub first_load: u64,
    /// Instructions until then.
    pub n_before: u64,
    /// Loads that miss the first cache and are on their way at once, at most.
    pub in_flight: usize,
}

/// Replays a warp; `far`: clocks until what it streams is there.
pub fn replay(chip: &Chip, far: u64, kernel: &Kernel, events: &[Event]) -> WarpTime {
    let mut ready = [0u64; ALL];
    let mut free = BTreeMap::<Unit, f64>::new();
    let mut arrivals = BTreeMap::<u64, u64>::new();
    let (mut now, mut time, mut waiting) = (0u64, WarpTime::default(), Vec::<u64>::new());
    let mut has_streamed = false;
    // When the copies into shared memory of each closed group are there, and of the open one.
    let (mut groups, mut open) = (Vec::<u64>::new(), 0);
    for (n, event) in events.iter().enumerate() {
        let i = &kernel.code[event.at as usize];
        let unit = unit(i);
        let mut at = i.reads.iter().chain(&i.writes).map(|r| ready[*r as usize]).max().unwrap_or(0).max(now);
        // A warp's own scheduler has a quarter of the unit.
        let unit_free = free.entry(unit).or_default();
        at = at.max(*unit_free as u64);
        *unit_free = at as f64 + (4.0 * busy(chip, unit)).min(8.0);
        match &i.op[..] {
            "LDGDEPBAR" => groups.push(std::mem::take(&mut open)),
            "DEPBAR" => at = at.max(waited_for(i, &groups)),
            _ => (),
        }
        let mut done = at + latency(i);
        if let Some(access) = event.access.as_ref().filter(|access| access.is_load) {
            let (arrival, misses) = arrive(chip, far, access, at, &mut arrivals);
            done = arrival;
            if i.op == "LDGSTS" {
                open = open.max(done);
            }
            if misses {
                waiting.retain(|t| *t > at);
                waiting.push(done);
                time.in_flight = time.in_flight.max(waiting.len());
            }
            if access.is_stream && !has_streamed {
                (has_streamed, time.first_load, time.n_before) = (true, at, n as u64);
            }
        }
        i.writes.iter().for_each(|w| ready[*w as usize] = done);
        now = at + 1;
        if matches!(&i.op[..], "BRA" | "CALL" | "RET" | "BRX" | "BSYNC" | "BAR") && event.lanes > 0 {
            now = at + latency(i);
        }
        time.clocks = time.clocks.max(now);
    }
    time
}

/// When all groups of copies are there but the last, as many as the instruction leaves.
fn waited_for(i: &Instruction, groups: &[u64]) -> u64 {
    let left = i.operands.iter().find_map(|operand| match operand {
        Operand::Bits(n) => Some(*n as usize),
        _ => None,
    });
    let n = groups.len().saturating_sub(left.unwrap_or(0));
    groups[..n].iter().copied().max().unwrap_or(0)
}

/// When a load's last sector is there, and whether any had to come from beyond the first cache.
fn arrive(chip: &Chip, far: u64, access: &Access, at: u64, arrivals: &mut BTreeMap<u64, u64>) -> (u64, bool) {
    let [near, second, _] = chip.latency;
    let beyond = at + if access.is_stream { far } else { second };
    let (mut last, mut misses) = (at + near, false);
    for sector in &access.sectors {
        let arrival = *arrivals.entry(*sector).or_insert_with(|| {
            misses = true;
            beyond
        });
        last = last.max(arrival);
    }
    (last + cache_clocks(chip, access) as u64, misses)
}
