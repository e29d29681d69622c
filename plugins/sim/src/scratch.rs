//! Scratch memory that the host manages: plain pieces, and ranges of addresses, of which memory backs the units that
//! the host maps. Nothing can be read or written at the addresses themselves; [`SimScratch::find`] gives the memory that backs them.
//!
//! What is taken away may be in use by work that is still queued: the device waits for its queues first.

use crate::device::{Meter, Taken};
use crate::mapping::Mapping;
use crate::memory::{Memory, POISON};
use crate::queue::Watch;
use llmrt_plugin::{Error, Piece, Result, ScratchMemory};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes of a mapping unit: small, so that devices with little memory have some.
pub const UNIT: u64 = 64 << 10;

/// The scratch memory of one device.
pub struct SimScratch {
    meter: Arc<Meter>,
    has_virtual_memory: bool,
    /// By address.
    spaces: Mutex<BTreeMap<u64, Space>>,
    queues: Mutex<Vec<Watch>>,
}

/// What the host was given.
enum Space {
    Piece(Arc<Memory>, #[allow(dead_code)] Taken),
    /// With units by where they begin.
    Range(Arc<Memory>, BTreeMap<u64, Unit>),
}

/// Memory that backs a part of a range.
struct Unit {
    n: u64,
    _taken: Taken,
}

impl SimScratch {
    /// Of a device whose memory `meter` counts.
    pub fn new(meter: Arc<Meter>, has_virtual_memory: bool) -> SimScratch {
        let (spaces, queues) = Default::default();
        SimScratch { meter, has_virtual_memory, spaces, queues }
    }

    /// From now on work of this queue may use scratch memory.
    pub fn watch(&self, queue: Watch) {
        let mut queues = self.queues.lock();
        queues.retain(Watch::is_alive);
        queues.push(queue);
    }

    /// The memory of a piece and where in it the piece begins.
    pub fn find(&self, piece: Piece) -> Result<(Arc<Memory>, u64)> {
        let spaces = self.spaces();
        let space = spaces.range(..=piece.addr).next_back().map(|(start, space)| (piece.addr - start, space));
        let found = space.and_then(|(at, space)| {
            let end = at.checked_add(piece.size)?;
            match space {
                Space::Piece(memory, _) => (end <= memory.size()).then(|| (memory.clone(), at)),
                Space::Range(memory, units) => (mapped_to(units, at) >= end).then(|| (memory.clone(), at)),
            }
        });
        found.ok_or_else(|| {
            Error::invalid(format!("no scratch memory backs {} bytes at {:#x}", piece.size, piece.addr))
        })
    }

    /// Waits for everything queued: after that, memory that the host counts as free is not used.
    fn wait_for_queues(&self) {
        let queues: Vec<_> = self.queues.lock().clone();
        queues.iter().for_each(Watch::wait);
    }

    fn spaces(&self) -> MutexGuard<'_, BTreeMap<u64, Space>> {
        self.spaces.lock()
    }
}

/// How far memory reaches without a gap from `at` on.
fn mapped_to(units: &BTreeMap<u64, Unit>, mut at: u64) -> u64 {
    while let Some((start, unit)) =
        units.range(..=at).next_back().filter(|(start, unit)| *start + unit.n > at)
    {
        at = start + unit.n;
    }
    at
}

fn address(memory: &Memory) -> u64 {
    memory.address() as usize as u64
}

impl ScratchMemory for SimScratch {
    fn raw_alloc(&self, size: u64) -> Result<u64> {
        let taken = Meter::take(&self.meter, size)?;
        let memory = Arc::new(Memory::new(size)?);
        let addr = address(&memory);
        self.spaces().insert(addr, Space::Piece(memory, taken));
        Ok(addr)
    }

    fn raw_free(&self, addr: u64) {
        self.wait_for_queues();
        let mut spaces = self.spaces();
        if let Some(Space::Piece(memory, _)) = spaces.get(&addr) {
            // A plan may hold it still, and shall not get away with it.
            let _ = memory.fill(0, memory.size(), POISON);
            spaces.remove(&addr);
        }
    }

    fn va_reserve(&self, size: u64) -> Result<u64> {
        if !self.has_virtual_memory {
            return Err(Error::unsupported("the profile has `vmm = no`"));
        }
        let unit = UNIT.max(Mapping::page() as u64);
        let size = size.checked_next_multiple_of(unit).ok_or_else(|| Error::oom_host(size))?;
        let memory = Arc::new(Memory::reserve(size, unit)?);
        let addr = address(&memory);
        self.spaces().insert(addr, Space::Range(memory, BTreeMap::new()));
        Ok(addr)
    }

    fn va_map(&self, addr: u64, n: u64) -> Result<u64> {
        let mut spaces = self.spaces();
        let Some((start, Space::Range(memory, units))) = spaces.range_mut(..=addr).next_back() else {
            return Err(Error::invalid(format!("{addr:#x} is not reserved")));
        };
        let at = addr - start;
        let is_whole = n > 0 && n.is_multiple_of(UNIT) && at.is_multiple_of(UNIT);
        let end = at.checked_add(n).filter(|&end| is_whole && end <= memory.size());
        let Some(end) = end else {
            return Err(Error::invalid(format!(
                "{n} bytes at {addr:#x}: expected whole units of {UNIT}, reserved"
            )));
        };
        if units.range(..end).next_back().is_some_and(|(start, unit)| start + unit.n > at) {
            return Err(Error::invalid(format!("{n} bytes at {addr:#x}: some are mapped already")));
        }
        let taken = Meter::take(&self.meter, n)?;
        memory.map(at, n)?;
        units.insert(at, Unit { n, _taken: taken });
        Ok(addr)
    }

    fn va_unmap(&self, addr: u64, n: u64, chunk: u64) {
        self.wait_for_queues();
        let mut spaces = self.spaces();
        if let Some((start, Space::Range(memory, units))) = spaces.range_mut(..=addr).next_back()
            && units.get(&(addr - start)).is_some_and(|unit| unit.n == n && chunk == addr)
        {
            memory.unmap(addr - start, n);
            units.remove(&(addr - start));
        }
    }

    fn va_release(&self, addr: u64, _size: u64) {
        self.wait_for_queues();
        let mut spaces = self.spaces();
        if let Some(Space::Range(..)) = spaces.get(&addr) {
            spaces.remove(&addr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn scratch(n_units: u64, has_virtual_memory: bool) -> (SimScratch, Arc<Meter>) {
        let profile = Profile { memory: n_units * UNIT, ..Profile::default() };
        let meter = Arc::new(Meter::new(Arc::new(profile)));
        (SimScratch::new(meter.clone(), has_virtual_memory), meter)
    }

    #[test]
    fn a_range_has_memory_where_it_is_mapped_and_the_device_counts_it() {
        let (scratch, meter) = scratch(3, true);
        let base = scratch.va_reserve(8 * UNIT).unwrap();
        let piece = |first: u64, n: u64| Piece { addr: base + first * UNIT, size: n * UNIT };
        assert!(scratch.find(piece(0, 1)).is_err() && meter.used() == 0);
        let chunks = [0, 1, 2].map(|i| scratch.va_map(base + i * UNIT, UNIT).unwrap());
        assert!(scratch.find(piece(0, 3)).is_ok() && scratch.find(piece(2, 2)).is_err());
        assert_eq!(meter.used(), 3 * UNIT);
        let e = scratch.va_map(base + 3 * UNIT, UNIT).unwrap_err();
        assert_eq!(e.bytes, Some((UNIT, 0)), "the device has three units");

        let (memory, at) = scratch.find(piece(2, 1)).unwrap();
        memory.fill(at, 8, 1).unwrap();
        scratch.va_unmap(base + 2 * UNIT, UNIT, chunks[2]);
        assert!(scratch.find(piece(2, 1)).is_err() && meter.used() == 2 * UNIT);
        scratch.va_map(base + 2 * UNIT, UNIT).unwrap();
        let mut bytes = [0; 8];
        // SAFETY: an array of this size.
        unsafe { memory.read(at, bytes.as_mut_ptr(), 8).unwrap() };
        assert_eq!(bytes, [POISON; 8], "new memory is poison");
        scratch.va_release(base, 8 * UNIT);
        assert!(scratch.find(piece(0, 1)).is_err());
    }

    #[test]
    fn parts_of_units_and_units_twice_are_refused() {
        let (scratch, _) = scratch(8, true);
        let base = scratch.va_reserve(4 * UNIT).unwrap();
        scratch.va_map(base, UNIT).unwrap();
        for (at, n) in [(0, UNIT), (UNIT / 2, UNIT), (UNIT, UNIT / 2), (3 * UNIT, 2 * UNIT), (UNIT, 0)] {
            assert!(scratch.va_map(base + at, n).is_err(), "{n} bytes at {at}");
        }
        assert!(scratch.va_map(base + UNIT, UNIT).is_ok());
    }

    #[test]
    fn plain_pieces_come_and_go_without_virtual_memory() {
        let (scratch, meter) = scratch(1, false);
        assert!(scratch.va_reserve(UNIT).is_err());
        let addr = scratch.raw_alloc(1000).unwrap();
        assert!(scratch.find(Piece { addr: addr + 500, size: 500 }).is_ok());
        assert!(scratch.find(Piece { addr: addr + 500, size: 501 }).is_err());
        assert!(scratch.raw_alloc(UNIT).is_err());
        scratch.raw_free(addr);
        assert_eq!(meter.used(), 0);
        assert!(scratch.find(Piece { addr, size: 1 }).is_err());
    }
}
