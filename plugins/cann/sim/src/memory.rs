//! Memory of the cards. A card's addresses are real addresses of this process at which nothing may be read or written;
//! the bytes are elsewhere, and only copies and kernels access them. A program that dereferences an address faults.

use crate::address::{addresses, is_device};
use crate::span::{Part, Span};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes somewhere, shared by all mappings of them.
pub type Bytes = Arc<Mutex<Vec<u8>>>;

/// Pages of large allocations and of virtual memory.
pub const PAGE: usize = 2 << 20;

/// The memory of all cards.
pub struct Memory {
    state: Mutex<State>,
    poison: u8,
    limit: u64,
    oom: u64,
}

#[derive(Default)]
struct State {
    segments: BTreeMap<usize, Segment>,
    freed: Vec<(usize, usize)>,
    used: BTreeMap<usize, u64>,
    n_taken: u64,
}

/// Addresses with bytes mapped to them.
#[derive(Clone)]
pub struct Segment {
    /// Bytes requested.
    pub len: usize,
    /// Bytes that units may read, which is a little more.
    readable: usize,
    /// The card.
    pub device: usize,
    /// What the card has less of.
    charged: u64,
    /// The handle of the mapped physical memory; 0: a plain allocation.
    pub mapped: usize,
    bytes: Bytes,
}

impl Memory {
    /// Cards with `limit` bytes each; allocation number `oom` fails.
    pub fn new(poison: u8, limit: u64, oom: u64) -> Memory {
        Memory { state: Mutex::default(), poison, limit, oom }
    }

    /// Takes memory of a card, full of poison; the error is why it failed.
    pub fn take(&self, device: usize, len: usize) -> Result<(Bytes, u64), String> {
        let charged = self.charge(device, len as u64)?;
        Ok((Arc::new(Mutex::new(vec![self.poison; len])), charged))
    }

    /// The same without bytes, of what nothing reads: what the card has less of then.
    pub fn charge(&self, device: usize, len: u64) -> Result<u64, String> {
        let page = if len > 1 << 20 { PAGE as u64 } else { 4096 };
        let charged = len.checked_next_multiple_of(page).unwrap_or(u64::MAX);
        let mut state = self.state();
        state.n_taken += 1;
        let used = state.used.get(&device).copied().unwrap_or(0);
        if state.n_taken == self.oom || used.saturating_add(charged) > self.limit {
            let free = self.limit.saturating_sub(used);
            return Err(format!("card {device} has no {len} bytes: {free} of {} are free", self.limit));
        }
        state.used.insert(device, used + charged);
        Ok(charged)
    }

    /// Gives it back.
    pub fn give(&self, device: usize, charged: u64) {
        if let Some(used) = self.state().used.get_mut(&device) {
            *used -= charged;
        }
    }

    /// Free and total bytes of a card.
    pub fn info(&self, device: usize) -> (u64, u64) {
        let used = self.state().used.get(&device).copied().unwrap_or(0);
        (self.limit.saturating_sub(used), self.limit)
    }

    /// A plain allocation. Its address is a multiple of 64 and of nothing more.
    pub fn alloc(&self, device: usize, len: usize) -> Result<usize, String> {
        let readable = len.checked_next_multiple_of(32).map_or(usize::MAX, |n| n.saturating_add(32));
        let (bytes, charged) = self.take(device, readable)?;
        let address = addresses(readable + 64, 4096).ok_or("the simulator ran out of addresses")? + 64;
        let segment = Segment { len, readable, device, charged, mapped: 0, bytes };
        self.state().segments.insert(address, segment);
        Ok(address)
    }

    /// Frees a plain allocation: at once, even while work uses it.
    pub fn free(&self, address: usize) -> Result<(), String> {
        let mut state = self.state();
        match state.segments.get(&address) {
            Some(segment) if segment.mapped == 0 => {}
            Some(_) => return Err(format!("{address:#x} is mapped, not allocated")),
            None => return Err(format!("{address:#x} is {}", state.describe(address))),
        }
        let segment = state.segments.remove(&address).expect("found above");
        segment.bytes.lock().fill(self.poison);
        state.freed.push((address, segment.len));
        drop(state);
        self.give(segment.device, segment.charged);
        Ok(())
    }

    /// Maps bytes to reserved addresses.
    pub fn map(&self, address: usize, device: usize, mapped: usize, bytes: &Bytes) {
        let len = bytes.lock().len();
        let segment = Segment { len, readable: len, device, charged: 0, mapped, bytes: bytes.clone() };
        self.state().segments.insert(address, segment);
    }

    /// Takes them away; returns the handle that was mapped exactly there.
    pub fn unmap(&self, address: usize) -> Option<usize> {
        let mut state = self.state();
        let mapped = state.segments.get(&address).filter(|segment| segment.mapped != 0)?.mapped;
        let segment = state.segments.remove(&address)?;
        state.freed.push((address, segment.len));
        Some(mapped)
    }

    /// Whether something is mapped between two addresses.
    pub fn any_in(&self, start: usize, end: usize) -> bool {
        let state = self.state();
        let before = state.segments.range(..end).next_back();
        before.is_some_and(|(at, segment)| at + segment.len > start)
    }

    /// The bytes at `len` addresses, which have to be of one card; the error names what is there instead.
    pub fn span(&self, address: usize, len: usize) -> Result<Span, String> {
        let state = self.state();
        let (mut parts, mut at, mut device) = (Vec::new(), 0, None);
        while at < len {
            let segment = state.segments.range(..=address + at).next_back();
            let segment = segment.filter(|(start, segment)| address + at < *start + segment.len);
            let (start, segment) =
                segment.ok_or_else(|| format!("{:#x} is {}", address + at, state.describe(address + at)))?;
            if *device.get_or_insert(segment.device) != segment.device {
                return Err(format!("{address:#x} and {len} bytes are of two cards"));
            }
            let from = address + at - start;
            let n = (segment.len - from).min(len - at);
            parts.push(Part { at, from, n, bytes: segment.bytes.clone() });
            at += n;
        }
        Ok(Span { parts, len, device: device.unwrap_or(0) })
    }

    /// Whether units may read whole pieces of 32 bytes up to an end, and one more.
    pub fn may_overread(&self, end: usize) -> bool {
        let state = self.state();
        let mut at = end;
        while at < end.next_multiple_of(32) + 32 {
            match state.segments.range(..=at.saturating_sub(1)).next_back() {
                Some((start, segment)) if start + segment.readable > at => at = start + segment.readable,
                _ => match state.segments.get(&at) {
                    Some(segment) => at += segment.readable,
                    None => return false,
                },
            }
        }
        true
    }

    /// What is at an address.
    pub fn describe(&self, address: usize) -> String {
        self.state().describe(address)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn describe(&self, address: usize) -> String {
        let near = self.segments.range(..=address).next_back();
        let freed = self.freed.iter().rev().find(|(start, len)| (*start..start + len).contains(&address));
        match (near, freed) {
            (Some((start, segment)), _) if address < start + segment.len => {
                format!("byte {} of an allocation of {}", address - start, segment.len)
            }
            (_, Some((_, len))) => format!("in memory that was freed, of {len} bytes"),
            (Some((start, segment)), _) if address < start + segment.len + (1 << 20) => {
                let past = address - start - segment.len;
                format!("{past} bytes past the end of an allocation of {}", segment.len)
            }
            _ if is_device(address) => "no memory of any card".into(),
            _ => "an address of the host".into(),
        }
    }
}
