//! Device memory. Addresses of the device are no addresses of the process: dereferencing one there faults. The
//! bytes are elsewhere, poisoned when new, and no address is given twice.

use std::collections::BTreeMap;

/// Where device addresses begin: beyond all that a process can map.
const FIRST: u64 = 0x4000_0000_0000_0000;
/// What new memory is filled with: NaN in every float dtype, -1 in every integer.
const POISON: u8 = 0xff;

/// A piece of memory, or of addresses.
pub struct Region {
    /// First address.
    pub at: u64,
    /// Bytes.
    pub len: usize,
    /// Its device.
    pub device: usize,
    /// Bytes and where they are. Of reserved addresses, those that have memory: from which address, the handle.
    kind: Kind,
}

enum Kind {
    Plain(Box<[u64]>),
    Reserved { bytes: Reservation, mapped: BTreeMap<u64, Mapped> },
}

struct Mapped {
    len: usize,
    handle: u64,
    accessible: bool,
}

/// Room in the process, of so many bytes, that takes memory when it is written to.
struct Reservation(*mut u8, usize);

// SAFETY: owned by its region.
unsafe impl Send for Reservation {}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: mapped with this size, once.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Addresses low..high of the device, at `low + shift` in this process.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// First address.
    pub low: u64,
    /// Past the last.
    pub high: u64,
    /// What is added to an address.
    pub shift: i64,
}

/// All devices' memory.
#[derive(Default)]
pub struct Space {
    regions: BTreeMap<u64, Region>,
    next: u64,
}

impl Space {
    fn take(&mut self, len: usize, align: u64) -> u64 {
        // Never next to another.
        let at = (FIRST + self.next + (64 << 10)).next_multiple_of(align);
        self.next = at + len as u64 - FIRST;
        at
    }

    /// Memory of a device.
    pub fn alloc(&mut self, device: usize, len: usize) -> u64 {
        let at = self.take(len, 512);
        let bytes = vec![u64::from_ne_bytes([POISON; 8]); len.div_ceil(8) + 2].into_boxed_slice();
        self.regions.insert(at, Region { at, len, device, kind: Kind::Plain(bytes) });
        at
    }

    /// Frees what [`Space::alloc`] gave; its bytes, or nothing if there is no such memory.
    pub fn free(&mut self, at: u64) -> Option<(usize, usize)> {
        let region = self.regions.get(&at).filter(|region| matches!(region.kind, Kind::Plain(_)))?;
        let freed = (region.device, region.len);
        self.regions.remove(&at);
        Some(freed)
    }

    /// Addresses without memory.
    pub fn reserve(&mut self, device: usize, len: usize) -> Option<u64> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory wherever there is room.
        let bytes = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
        if bytes == libc::MAP_FAILED {
            return None;
        }
        let bytes = Reservation(bytes.cast(), len);
        let at = self.take(len, 2 << 20);
        let kind = Kind::Reserved { bytes, mapped: BTreeMap::new() };
        self.regions.insert(at, Region { at, len, device, kind });
        Some(at)
    }

    /// Gives addresses back, exactly as they were reserved and without memory.
    pub fn release(&mut self, at: u64, len: usize) -> bool {
        let good = self.regions.get(&at).is_some_and(|region| {
            region.len == len && matches!(&region.kind, Kind::Reserved { mapped, .. } if mapped.is_empty())
        });
        good && self.regions.remove(&at).is_some()
    }

    /// Maps memory at reserved addresses that have none.
    pub fn map(&mut self, at: u64, len: usize, handle: u64) -> bool {
        let Some(region) = self.region_mut(at) else { return false };
        let (end, start) = (region.at + region.len as u64, region.at);
        let Kind::Reserved { bytes, mapped } = &mut region.kind else { return false };
        let taken = mapped.iter().any(|(m, other)| *m < at + len as u64 && at < *m + other.len as u64);
        if at + len as u64 > end || taken {
            return false;
        }
        // SAFETY: within the reservation, whose pages are not in use yet.
        unsafe { bytes.0.add((at - start) as usize).write_bytes(POISON, len) };
        mapped.insert(at, Mapped { len, handle, accessible: false });
        true
    }

    /// Lets kernels at mapped memory.
    pub fn allow(&mut self, at: u64, len: usize) -> bool {
        let Some(Region { kind: Kind::Reserved { mapped, .. }, .. }) = self.region_mut(at) else {
            return false;
        };
        let found = mapped.get_mut(&at).filter(|mapped| mapped.len == len);
        found.map(|mapped| mapped.accessible = true).is_some()
    }

    /// Takes memory away, exactly as it was mapped; its handle.
    pub fn unmap(&mut self, at: u64, len: usize) -> Option<u64> {
        let Some(Region { kind: Kind::Reserved { mapped, .. }, .. }) = self.region_mut(at) else {
            return None;
        };
        mapped.get(&at).filter(|mapped| mapped.len == len)?;
        mapped.remove(&at).map(|mapped| mapped.handle)
    }

    fn region_mut(&mut self, at: u64) -> Option<&mut Region> {
        let (_, region) = self.regions.range_mut(..=at).next_back()?;
        (at < region.at + region.len as u64).then_some(region)
    }

    /// The memory around an address that may be used, and its device.
    pub fn find(&self, address: u64) -> Option<(usize, Span)> {
        let (_, region) = self.regions.range(..=address).next_back()?;
        let end = region.at + region.len as u64;
        if address >= end {
            return None;
        }
        let (base, mut low, mut high) = match &region.kind {
            Kind::Plain(bytes) => (bytes.as_ptr() as u64, region.at, end),
            Kind::Reserved { bytes, mapped } => {
                let (at, piece) = mapped.range(..=address).next_back()?;
                if address >= at + piece.len as u64 || !piece.accessible {
                    return None;
                }
                (bytes.0 as u64, *at, at + piece.len as u64)
            }
        };
        // Neighbours that are mapped too are one piece to a kernel.
        if let Kind::Reserved { mapped, .. } = &region.kind {
            while let Some((_, next)) = mapped.get_key_value(&high).filter(|(_, m)| m.accessible) {
                high += next.len as u64;
            }
            while let Some((at, before)) = mapped.range(..low).next_back()
                && at + before.len as u64 == low
                && before.accessible
            {
                low = *at;
            }
        }
        Some((region.device, Span { low, high, shift: base.wrapping_sub(region.at) as i64 }))
    }

    /// Where `len` bytes at an address are, if a device may use them all.
    pub fn bytes(&self, address: u64, len: usize) -> Option<(usize, *mut u8)> {
        let (device, span) = self.find(address)?;
        let end = address.checked_add(len as u64)?;
        (end <= span.high).then_some((device, address.wrapping_add_signed(span.shift) as *mut u8))
    }

    /// First address and bytes of each piece that kernels may use, neighbours that are mapped as one.
    pub fn pieces(&self) -> Vec<(u64, usize)> {
        let mut pieces = Vec::new();
        for region in self.regions.values() {
            let mut at = region.at;
            let starts: Vec<u64> = match &region.kind {
                Kind::Plain(_) => vec![region.at],
                Kind::Reserved { mapped, .. } => mapped.keys().copied().collect(),
            };
            for start in starts.into_iter().filter(|start| *start >= region.at) {
                if let Some((_, span)) = self.find(start.max(at)).filter(|(_, span)| span.low >= at) {
                    pieces.push((span.low, (span.high - span.low) as usize));
                    at = span.high;
                }
            }
        }
        pieces
    }

    /// Pieces and reservations that were not given back.
    pub fn n_left(&self) -> usize {
        self.regions.len()
    }
}

/// Copies bytes, one side being memory of a card that [`Space::bytes`] found.
pub(crate) fn copy(to: *mut u8, from: *const u8, n: usize) {
    // SAFETY: a card's memory is the world's alone, which is locked; the host's side has as many bytes by the contract
    // of the driver's caller, and pinned memory lives until it is freed, before which its streams are run.
    unsafe { to.copy_from(from, n) }
}
