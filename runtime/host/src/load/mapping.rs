//! A file mapped read-only into memory, and trimmed later to the parts that are used.
//!
//! If another program truncates the file after it was mapped, the lost pages read as zeros and the mapping is marked
//! ([`super::lost_pages`]). The length is checked before and after mapping, when loading is done, and after each run.
//! Bytes that are overwritten in place are not detected: files that may change while a model runs require
//! `--load-mode none`.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use super::lost_pages::GuardedRange;
use super::read::OpenFile;
use super::{Error, Result};

/// Pages of a file. Ranges are byte positions in the file.
#[derive(Debug)]
pub struct Mapping {
    /// Address of byte `start` of the file.
    base: NonNull<u8>,
    /// First mapped byte: a multiple of the page size.
    start: u64,
    /// What is still mapped, in order and apart from each other.
    fragments: Vec<Range<u64>>,
    /// Their addresses.
    guarded: Vec<GuardedRange>,
    /// Whether pages were lost that are not guarded any more.
    was_lost: bool,
}

// SAFETY: the pages are read-only and owned by this value; nothing is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: with `&Mapping` the pages can only be read; unmapping needs `&mut` or the value.
unsafe impl Sync for Mapping {}

/// How much to request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadAhead {
    /// Bytes to bring into memory while mapping; 0: none, the file is read when touched.
    pub prefetch: u64,
    /// Pages will be touched in no order, by several nodes.
    pub random: bool,
}

impl ReadAhead {
    /// Nothing: pages come when they are touched, or by [`Mapping::read_ahead`].
    pub const NONE: ReadAhead = ReadAhead { prefetch: 0, random: false };

    /// The whole file, unless memory has several nodes: then each page should come to the node that touches it first.
    pub fn for_this_machine() -> ReadAhead {
        ReadAhead::for_nodes(n_numa_nodes(Path::new("/sys/devices/system/node")))
    }

    fn for_nodes(n: usize) -> ReadAhead {
        match n {
            0 | 1 => ReadAhead { prefetch: u64::MAX, random: false },
            _ => ReadAhead { prefetch: 0, random: true },
        }
    }
}

impl Mapping {
    /// Maps a whole file. What the kernel refuses to advise is put into `warnings`: it costs time only.
    pub fn whole(file: &OpenFile, ahead: ReadAhead, warnings: &mut Vec<String>) -> Result<Mapping> {
        Mapping::range(file, 0..file.len, ahead, warnings)
    }

    /// Maps the pages of a part of a file.
    pub fn range(
        file: &OpenFile,
        range: Range<u64>,
        ahead: ReadAhead,
        warnings: &mut Vec<String>,
    ) -> Result<Mapping> {
        let failed = |source| Error::Map { path: file.path.clone(), source };
        let too_big = || failed(io::Error::other("the range does not fit the address space or the file"));
        file.check_len()?;
        let page = page_size() as u64;
        let (start, end) = (range.start / page * page, range.end.min(file.len));
        let len = end.checked_sub(start).and_then(|n| usize::try_from(n).ok()).filter(|&n| n > 0);
        let len = len.ok_or_else(too_big)?;
        let offset = libc::off_t::try_from(start).map_err(|_| too_big())?;

        let fd = file.file.as_raw_fd();
        // SAFETY: only advises about a file descriptor that is open.
        let code = unsafe { libc::posix_fadvise(fd, 0, 0, libc::POSIX_FADV_SEQUENTIAL) };
        warn(warnings, file, "posix_fadvise(SEQUENTIAL)", code);

        let populate = if ahead.prefetch > 0 { libc::MAP_POPULATE } else { 0 };
        // SAFETY: a new mapping at an address that the kernel chooses touches no memory of ours.
        let base = unsafe {
            let flags = libc::MAP_SHARED | populate;
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, flags, fd, offset)
        };
        let base = if base == libc::MAP_FAILED { None } else { NonNull::new(base.cast::<u8>()) };
        let base = base.ok_or_else(|| failed(io::Error::last_os_error()))?;
        let whole = start..end;
        let mut mapping =
            Mapping { base, start, fragments: vec![whole], guarded: Vec::new(), was_lost: false };
        mapping.guard();

        let n_ahead = len.min(usize::try_from(ahead.prefetch).unwrap_or(usize::MAX));
        if n_ahead > 0 {
            mapping.advise(file, n_ahead, libc::MADV_WILLNEED, "madvise(WILLNEED)", warnings);
        }
        if ahead.random {
            mapping.advise(file, len, libc::MADV_RANDOM, "madvise(RANDOM)", warnings);
        }
        file.check_len()?;
        Ok(mapping)
    }

    fn advise(&self, file: &OpenFile, n: usize, advice: i32, name: &str, warnings: &mut Vec<String>) {
        let code = match self.advise_range(self.start..self.start + n as u64, advice) {
            true => 0,
            false => io::Error::last_os_error().raw_os_error().unwrap_or(0),
        };
        warn(warnings, file, name, code);
    }

    /// Brings the pages of a range into memory and into the map, as touching them would; where the kernel has no call for it,
    /// they are requested from storage. A refusal costs time only.
    pub fn read_ahead(&self, range: Range<u64>) {
        if !self.advise_range(range.clone(), libc::MADV_POPULATE_READ) {
            self.request(range);
        }
    }

    /// Requests the pages of a range from storage. A refusal costs time only.
    pub fn request(&self, range: Range<u64>) {
        self.advise_range(range, libc::MADV_WILLNEED);
    }

    /// Whether the kernel took advice about the pages of a range, which leaves them as they are.
    fn advise_range(&self, range: Range<u64>, advice: i32) -> bool {
        let page = page_size() as u64;
        self.bytes(range.start / page * page..range.end).is_some_and(|bytes| {
            // SAFETY: the bytes are mapped while `self` is borrowed, and no advice of the callers changes them.
            unsafe { libc::madvise(bytes.as_ptr().cast_mut().cast(), bytes.len(), advice) == 0 }
        })
    }

    /// From now on lost pages of the fragments are replaced by zeros.
    fn guard(&mut self) {
        let address = |byte| self.at(byte).addr();
        let pages = |f: &Range<u64>| address(f.start)..address(f.end).next_multiple_of(page_size());
        self.guarded = self.fragments.iter().map(|f| GuardedRange::new(pages(f))).collect();
    }

    /// Before pages are unmapped, whose addresses may be another mapping's at once.
    fn unguard(&mut self) {
        self.was_lost = self.is_lost();
        self.guarded.clear();
    }

    /// An error if the file has lost pages: what was computed from the mapping since the last check is then worthless.
    /// A truncation within the last page is found by the length alone, because the rest of that page reads as zeros.
    pub fn check(&self, file: &OpenFile) -> Result<()> {
        let now = file.len_now()?;
        if now < file.len || self.is_lost() {
            return Err(Error::Lost { path: file.path.clone(), was: file.len, now });
        }
        Ok(())
    }

    /// Whether pages were read that the file had lost.
    fn is_lost(&self) -> bool {
        self.was_lost || self.guarded.iter().any(GuardedRange::is_lost)
    }

    /// The bytes of a range, if all of it is still mapped.
    pub fn bytes(&self, range: Range<u64>) -> Option<&[u8]> {
        let n = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        let inside = |f: &&Range<u64>| f.start <= range.start && range.end <= f.end;
        self.fragments.iter().find(inside)?;
        // SAFETY: the range is inside a fragment, which stays mapped and unwritten as long as `self` is borrowed.
        Some(unsafe { std::slice::from_raw_parts(self.at(range.start), n) })
    }

    /// What is still mapped, in order; starts and ends are page boundaries or those of the file.
    pub fn fragments(&self) -> &[Range<u64>] {
        &self.fragments
    }

    /// How many bytes are still mapped.
    pub fn n_mapped(&self) -> u64 {
        self.fragments.iter().map(|f| f.end - f.start).sum()
    }

    /// The fragments that stay if every page is unmapped that has no byte in `keep`, which may be in any order and
    /// overlap.
    pub fn fragments_of(&self, keep: &[Range<u64>]) -> Vec<Range<u64>> {
        let keep = whole_pages(keep);
        let parts_of = |f: &Range<u64>| {
            let f = f.clone();
            keep.iter().map(move |k| k.start.max(f.start)..k.end.min(f.end)).filter(|part| !part.is_empty())
        };
        self.fragments.iter().flat_map(parts_of).collect()
    }

    /// Unmaps every page that has no byte in `keep`.
    pub fn unmap_unused(&mut self, keep: &[Range<u64>]) {
        let kept = self.fragments_of(keep);
        self.unguard();
        for fragment in std::mem::replace(&mut self.fragments, kept.clone()) {
            let mut at = fragment.start;
            for part in kept.iter().filter(|part| fragment.start <= part.start && part.end <= fragment.end) {
                self.unmap(at..part.start);
                at = part.end;
            }
            self.unmap(at..fragment.end);
        }
        self.guard();
    }

    fn unmap(&self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // SAFETY: the range is a mapped part of this mapping and begins at a page; the callers own or exclusively
        // borrow `self`, so no slice into it is alive, and have taken the range out of `fragments`.
        unsafe { libc::munmap(self.at(range.start).cast_mut().cast(), (range.end - range.start) as usize) };
    }

    /// Gives memory back that holds pages of this range and nothing else; touched again, they are read again.
    pub fn release(&self, range: Range<u64>) {
        let page = page_size() as u64;
        let (start, end) = (range.start.next_multiple_of(page), range.end / page * page);
        if start < end && self.bytes(start..end).is_some() {
            // SAFETY: whole pages of a fragment; a shared mapping of a file reads the same bytes again. A refusal costs
            // memory only, until the pages are unmapped.
            unsafe {
                libc::madvise(self.at(start).cast_mut().cast(), (end - start) as usize, libc::MADV_DONTNEED)
            };
        }
    }

    /// Address of a byte that is or was mapped.
    fn at(&self, byte: u64) -> *const u8 {
        self.base.as_ptr().wrapping_add((byte - self.start) as usize)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.unguard();
        for fragment in std::mem::take(&mut self.fragments) {
            self.unmap(fragment);
        }
    }
}

/// Ranges as whole pages, in order, joined where they touch.
fn whole_pages(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let page = page_size() as u64;
    let filled = ranges.iter().filter(|r| !r.is_empty());
    let mut pages: Vec<_> =
        filled.map(|r| r.start / page * page..r.end.saturating_add(page - 1) / page * page).collect();
    pages.sort_by_key(|r| r.start);
    pages.dedup_by(|next, last| {
        let touch = next.start <= last.end;
        if touch {
            last.end = last.end.max(next.end);
        }
        touch
    });
    pages
}

/// Bytes of a page of memory.
pub(super) fn page_size() -> usize {
    // SAFETY: queries a constant of the system; no pointers are passed.
    let n = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(n).ok().filter(|n| n.is_power_of_two()).unwrap_or(4096)
}

/// Nodes of memory that the kernel lists: folders `node0`, `node1`, …
fn n_numa_nodes(sysfs: &Path) -> usize {
    let names = std::fs::read_dir(sysfs).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok());
    names.filter(|name| name.to_str().is_some_and(is_node)).count()
}

fn warn(warnings: &mut Vec<String>, file: &OpenFile, call: &str, code: i32) {
    if code != 0 {
        let reason = io::Error::from_raw_os_error(code);
        warnings.push(format!("{}: {call} failed: {reason}; loading may be slower", file.path.display()));
    }
}

#[cfg(test)]
mod tests;
