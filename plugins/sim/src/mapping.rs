//! Addresses in pairs: one view without any rights, which the host may learn, and the alias that only the device's own
//! work uses. All of both is backed by memory, or the parts of them that were given some.

use std::ptr::NonNull;

/// Two views of the same bytes.
pub struct Mapping {
    address: NonNull<u8>,
    alias: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointers are addresses of mappings that live as long as the struct; who uses which bytes when is settled
// by the host, as with any device memory.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// What backs a view.
#[derive(Clone, Copy)]
enum Backing {
    Nothing,
    File(i32),
}

impl Mapping {
    /// Bytes of memory's smallest unit.
    pub fn page() -> usize {
        // SAFETY: sysconf has no preconditions.
        unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(4096) as usize
    }

    /// `len` bytes, whole pages, backed by memory; `None` where the system has none.
    pub fn new(len: usize) -> Option<Mapping> {
        let mapping = Mapping::reserve(len, Mapping::page())?;
        mapping.map(0, len).then_some(mapping)
    }

    /// Addresses alone, whole pages, from a multiple of `align` on, a power of two.
    pub fn reserve(len: usize, align: usize) -> Option<Mapping> {
        let address = reserve(len, align)?;
        match reserve(len, align) {
            Some(alias) => Some(Mapping { address, alias, len }),
            None => {
                unmap(address.as_ptr(), len);
                None
            }
        }
    }

    /// The address outside of the device. Nothing can be read or written there.
    pub fn address(&self) -> *const u8 {
        self.address.as_ptr()
    }

    /// The address for the device's own use.
    pub fn alias(&self) -> *mut u8 {
        self.alias.as_ptr()
    }

    /// Backs bytes `at..at + n`, whole pages, with new memory; whether the system had some.
    pub fn map(&self, at: usize, n: usize) -> bool {
        // SAFETY: a NUL-terminated name.
        let fd = unsafe { libc::memfd_create(c"llmrt-sim".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return false;
        }
        // SAFETY: our own descriptor.
        let sized = unsafe { libc::ftruncate(fd, i64::try_from(n).unwrap_or(i64::MAX)) } == 0;
        let done = sized && self.put(at, n, Backing::File(fd));
        // SAFETY: our own descriptor, closed once; mappings outlive it.
        unsafe { libc::close(fd) };
        if !done {
            self.unmap(at, n);
        }
        done
    }

    /// Removes the memory that backs bytes `at..at + n`; touching them faults from now on.
    pub fn unmap(&self, at: usize, n: usize) {
        self.put(at, n, Backing::Nothing);
    }

    fn put(&self, at: usize, n: usize, what: Backing) -> bool {
        assert!(at.checked_add(n).is_some_and(|end| end <= self.len), "bytes {at}+{n} of {}", self.len);
        let rights = match what {
            Backing::Nothing => libc::PROT_NONE,
            Backing::File(_) => libc::PROT_READ | libc::PROT_WRITE,
        };
        [(self.address, libc::PROT_NONE), (self.alias, rights)].into_iter().all(|(view, rights)| {
            let (fd, how) = match what {
                Backing::Nothing => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE),
                Backing::File(fd) => (fd, libc::MAP_SHARED),
            };
            let at = view.as_ptr().wrapping_add(at).cast();
            // SAFETY: the range is inside a mapping of ours, as was checked, and takes the place of a part of it.
            unsafe { libc::mmap(at, n, rights, how | libc::MAP_FIXED, fd, 0) != libc::MAP_FAILED }
        })
    }
}

/// Addresses that nothing backs.
fn reserve(len: usize, align: usize) -> Option<NonNull<u8>> {
    let room = len.checked_add(align)?;
    let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at an address of the system's choice.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), room, libc::PROT_NONE, how, -1, 0) };
    if start == libc::MAP_FAILED {
        return None;
    }
    let start: *mut u8 = start.cast();
    let before = (start as usize).next_multiple_of(align) - start as usize;
    unmap(start, before);
    let aligned = start.wrapping_add(before);
    unmap(aligned.wrapping_add(len), align - before);
    NonNull::new(aligned)
}

fn unmap(at: *mut u8, n: usize) {
    if n > 0 {
        // SAFETY: part of a mapping of this module that is no longer used.
        unsafe { libc::munmap(at.cast(), n) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.address.as_ptr(), self.len);
        unmap(self.alias.as_ptr(), self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rights and file of the mapping that an address is in.
    fn rights(address: *const u8) -> String {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (start, end) = line.split_whitespace().next().unwrap().split_once('-').unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(start)..number(end)).contains(&(address as usize))
        };
        maps.lines().find(holds).unwrap().split_whitespace().nth(1).unwrap().to_string()
    }

    #[test]
    fn the_host_has_no_rights_at_the_address_it_may_learn() {
        let mapping = Mapping::new(Mapping::page()).unwrap();
        assert_eq!((rights(mapping.address()), rights(mapping.alias())), ("---s".into(), "rw-s".into()));
    }

    #[test]
    fn reserved_addresses_are_aligned_and_get_memory_part_by_part() {
        let (unit, align) = (Mapping::page(), 1 << 20);
        let mapping = Mapping::reserve(8 * unit, align).unwrap();
        assert_eq!((mapping.address() as usize % align, mapping.alias() as usize % align), (0, 0));
        let second = mapping.alias().wrapping_add(unit);
        assert_eq!(rights(second), "---p");
        assert!(mapping.map(unit, unit));
        assert_eq!((rights(second), rights(mapping.alias())), ("rw-s".into(), "---p".into()));
        mapping.unmap(unit, unit);
        assert_eq!(rights(second), "---p");
    }
}
