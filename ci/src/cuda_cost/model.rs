//! What limits a launch: each unit's time for all of it, the memory's, and the time that warps wait.
//!
//! time = max over the limits, as if each overlapped fully with the others; share = (least bytes / bandwidth) / time.

use super::chips::{Chip, SCHEDULERS};
use super::machine::{Event, Launch};
use super::sass::Kernel;
use super::timing::{Unit, WarpTime, busy, cache_clocks, own_clocks, replay, unit};
use std::collections::{BTreeMap, BTreeSet};

/// What a launch costs on a card.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    /// The kernel.
    pub kernel: String,
    /// Blocks, and threads of one.
    pub n_blocks: u32,
    /// As above.
    pub threads: u32,
    /// Registers of a lane.
    pub registers: u32,
    /// Blocks that a multiprocessor holds.
    pub resident: u32,
    /// Warps of the busiest multiprocessor at a time.
    pub warps: f64,
    /// Of streamed loads: requests, bytes that lanes request, sectors; of one block.
    pub requests: u64,
    pub bytes: u64,
    pub sectors: u64,
    /// Requests of each width, of streamed loads and of others.
    pub widths: BTreeMap<(bool, u32), u64>,
    /// Bytes that a block streams.
    pub stream_bytes: u64,
    /// Others that it reads: the first cache has them for the blocks of a multiprocessor.
    pub small_bytes: u64,
    /// And those that it copies past the first cache into shared memory.
    pub copied_bytes: u64,
    /// Bytes that all blocks get from beyond the first cache.
    pub moved: f64,
    /// Clocks until streamed bytes are there.
    pub far: u64,
    /// The slowest warp.
    pub warp: WarpTime,
    /// Instructions of a block, by unit.
    pub instructions: BTreeMap<Unit, u64>,
    /// Instructions by name.
    pub names: BTreeMap<String, u64>,
    /// Microseconds of each limit.
    pub limits: Vec<(&'static str, f64)>,
}

impl Cost {
    /// Microseconds.
    pub fn time(&self) -> f64 {
        self.limits.iter().map(|(_, time)| *time).fold(0.0, f64::max)
    }

    /// The name of the limit that decides.
    pub fn limit(&self) -> &'static str {
        let most = self.limits.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        most.map_or("", |(name, _)| name)
    }
}

/// The cost of a launch all of whose blocks are like the one that ran.
pub fn cost(
    chip: &Chip,
    kernel: &Kernel,
    launch: &Launch,
    warps: &[Vec<Event>],
    registers: u32,
    shared: u32,
) -> Cost {
    let n_blocks = launch.grid.iter().product::<u32>();
    let mut c = Cost {
        kernel: launch.kernel.clone(),
        n_blocks,
        threads: launch.threads,
        registers,
        ..Cost::default()
    };
    c.resident = chip.resident(launch.threads, registers, shared + launch.shared).max(1);
    // The busiest multiprocessor: its blocks, how many at a time, and how often it is filled.
    let per_sm = (f64::from(n_blocks) / f64::from(chip.n_sms)).ceil();
    let at_once = per_sm.min(f64::from(c.resident));
    let rounds = (per_sm / at_once).ceil();
    c.warps = at_once * f64::from(launch.threads / 32);
    let cache = count(chip, kernel, warps, &mut c);
    let (streamed, total) = (streams(launch), f64::from(n_blocks));
    c.far = far(chip, streamed, total * c.stream_bytes as f64);
    c.warp = warps
        .iter()
        .map(|events| replay(chip, c.far, kernel, events))
        .max_by_key(|t| t.clocks)
        .unwrap_or_default();
    let micros = |clocks: f64| clocks / chip.clock / 1000.0;
    let of = |unit: Unit| c.instructions.get(&unit).copied().unwrap_or(0) as f64;
    let all: f64 = c.instructions.values().map(|n| *n as f64).sum();
    // F32 and integer products share their issue: 8.0 has 64 lanes for each kind.
    let floats =
        (of(Unit::Float) + if chip.fp32 > 64 { of(Unit::Product) } else { 0.0 }) * busy(chip, Unit::Float);
    c.moved = total * (c.stream_bytes + c.copied_bytes) as f64
        + f64::from(chip.n_sms) * rounds * c.small_bytes as f64;
    c.limits = vec![
        ("issue", micros(per_sm * all / SCHEDULERS)),
        ("int", micros(per_sm * of(Unit::Integer) * busy(chip, Unit::Integer))),
        ("mul", micros(per_sm * of(Unit::Product) * busy(chip, Unit::Product))),
        ("float", micros(per_sm * floats)),
        ("tensor", micros(per_sm * of(Unit::Tensor) * busy(chip, Unit::Tensor))),
        ("func", micros(per_sm * of(Unit::Function) * busy(chip, Unit::Function))),
        ("cache", micros(per_sm * cache)),
        ("wait", micros(rounds * c.warp.clocks as f64)),
        ("l2", micros(c.moved / chip.l2_bytes)),
        // What several blocks read comes from the second cache but once.
        ("dram", (total * c.stream_bytes as f64).min(streamed) / chip.memory / 1000.0),
    ];
    c
}

/// Clocks until streamed bytes are there: what blocks read again, as heads do that share their keys, the second cache has.
fn far(chip: &Chip, streamed: f64, requested: f64) -> u64 {
    let [_, second, memory] = chip.latency;
    let first = (streamed / requested.max(1.0)).min(1.0);
    second + ((memory - second) as f64 * first) as u64
}

/// Bytes of the tensors that are streamed.
fn streams(launch: &Launch) -> f64 {
    launch.regions.iter().filter(|r| r.is_stream).map(|r| r.len as f64).sum()
}

/// Counts what a block does; clocks of its first cache.
fn count(chip: &Chip, kernel: &Kernel, warps: &[Vec<Event>], c: &mut Cost) -> f64 {
    let (mut cache, mut touched) = (0.0, BTreeSet::new());
    for event in warps.iter().flatten() {
        let i = &kernel.code[event.at as usize];
        *c.instructions.entry(unit(i)).or_default() += 1;
        *c.names.entry(i.op.clone()).or_default() += 1;
        let Some(access) = &event.access else {
            cache += own_clocks(chip, i, event);
            continue;
        };
        // What is copied into shared memory passes the first cache's storage, which that is, but once.
        cache += cache_clocks(chip, access).max(f64::from(event.shared_clocks));
        if access.is_load {
            *c.widths.entry((access.is_stream, access.width)).or_default() += 1;
            if access.is_stream {
                c.requests += 1;
                c.bytes += u64::from(access.width) * u64::from(event.lanes);
                c.sectors += access.sectors.len() as u64;
            }
            if i.op == "LDGSTS" && i.has("BYPASS") && !access.is_stream {
                c.copied_bytes += 32 * access.sectors.len() as u64;
                continue;
            }
            let new = access.sectors.iter().filter(|sector| touched.insert(**sector)).count() as u64 * 32;
            *if access.is_stream { &mut c.stream_bytes } else { &mut c.small_bytes } += new;
        }
    }
    cache
}
