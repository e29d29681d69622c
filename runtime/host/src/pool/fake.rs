//! A device's memory for tests: records every allocation, and refuses those past its size.

use super::Mechanism;
use crate::error::{Error, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clones are the same memory.
#[derive(Clone)]
pub(super) struct Fake(Arc<Mutex<State>>);

struct State {
    size: u64,
    granularity: u64,
    next: u64,
    raw: BTreeMap<u64, u64>,
    reserved: BTreeMap<u64, u64>,
    mapped: BTreeMap<u64, u64>,
}

impl Fake {
    pub(super) fn new(size: u64, granularity: u64) -> Fake {
        let (raw, reserved, mapped) = Default::default();
        Fake(Arc::new(Mutex::new(State { size, granularity, next: 1 << 20, raw, reserved, mapped })))
    }

    /// Bytes taken, by either way.
    pub(super) fn taken(&self) -> u64 {
        let state = self.0.lock();
        state.raw.values().sum::<u64>() + state.mapped.values().sum::<u64>()
    }

    /// Whether these addresses are mapped.
    pub(super) fn is_there(&self, addr: u64, n: u64) -> bool {
        let state = self.0.lock();
        let mut at = addr;
        let pieces = state.mapped.iter().chain(&state.raw).collect::<BTreeMap<_, _>>();
        for (&start, &size) in pieces {
            if (start..start + size).contains(&at) {
                at = start + size;
            }
        }
        at >= addr + n
    }

    /// Whether everything went back.
    pub(super) fn is_clean(&self) -> bool {
        let state = self.0.lock();
        state.raw.is_empty() && state.reserved.is_empty() && state.mapped.is_empty()
    }

    fn take(&self, size: u64) -> Result<()> {
        let taken = self.taken();
        let left = self.0.lock().size - taken;
        if size > left { Err(Error::out_of_memory("fake", size, left)) } else { Ok(()) }
    }
}

impl Mechanism for Fake {
    fn granularity(&self) -> u64 {
        self.0.lock().granularity
    }

    fn va_limit(&self) -> u64 {
        0
    }

    fn raw_alloc(&self, size: u64) -> Result<u64> {
        self.take(size)?;
        let mut state = self.0.lock();
        let addr = state.next;
        state.next += size.next_multiple_of(4096);
        state.raw.insert(addr, size);
        Ok(addr)
    }

    fn raw_free(&self, addr: u64) {
        assert!(self.0.lock().raw.remove(&addr).is_some(), "{addr:#x} freed twice");
    }

    fn va_reserve(&self, size: u64) -> Result<u64> {
        let mut state = self.0.lock();
        let addr = state.next.next_multiple_of(state.granularity);
        state.next = addr + size;
        state.reserved.insert(addr, size);
        Ok(addr)
    }

    fn va_map(&self, addr: u64, n: u64) -> Result<u64> {
        self.take(n)?;
        let mut state = self.0.lock();
        assert!(n > 0 && n.is_multiple_of(state.granularity) && addr.is_multiple_of(state.granularity));
        assert!(state.reserved.iter().any(|(&start, &size)| start <= addr && addr + n <= start + size));
        assert!(state.mapped.iter().all(|(&start, &size)| addr + n <= start || start + size <= addr));
        state.mapped.insert(addr, n);
        Ok(addr ^ 7)
    }

    fn va_unmap(&self, addr: u64, n: u64, chunk: u64) {
        assert_eq!((self.0.lock().mapped.remove(&addr), chunk), (Some(n), addr ^ 7));
    }

    fn va_release(&self, addr: u64, size: u64) {
        let mut state = self.0.lock();
        assert!(state.mapped.is_empty(), "released with mapped memory");
        assert_eq!(state.reserved.remove(&addr), Some(size));
    }
}
