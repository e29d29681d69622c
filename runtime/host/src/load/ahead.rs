//! Pages of files brought into memory ahead of the threads that copy them.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::bytes::Bytes;
use super::place::Item;
use super::read::CHUNK;

/// Bytes that are read at most before those that are copied: memory may be short.
const DISTANCE: u64 = 256 << 20;
/// From one look at how far the copies are to the next.
const PAUSE: Duration = Duration::from_millis(1);

/// How far copies are, and whether pages are still needed.
#[derive(Default)]
pub(super) struct Ahead {
    copied: AtomicU64,
    ended: AtomicBool,
}

impl Ahead {
    /// Counts bytes that were copied, or need not be read.
    pub fn copied(&self, n: u64) {
        self.copied.fetch_add(n, Relaxed);
    }

    /// Ends [`Ahead::read`] when the value is dropped.
    pub fn until_dropped(&self) -> End<'_> {
        End(self)
    }

    /// Brings the pages of items in order, about as the threads take them, and then requests those of the rest: ranges of files,
    /// by index. Parts of a matrix that have some columns of each row are left to the threads.
    pub fn read<'a>(
        &self,
        bytes: &Bytes<'_>,
        items: impl Iterator<Item = &'a Item<'a>>,
        rest: &[(usize, Range<u64>)],
    ) {
        let mut at = 0;
        for item in items {
            for off in (0..item.info.nbytes).step_by(CHUNK) {
                let n = (item.info.nbytes - off).min(CHUNK as u64);
                at += n;
                while at > self.copied.load(Relaxed) + DISTANCE && !self.ended.load(Relaxed) {
                    std::thread::sleep(PAUSE);
                }
                if self.ended.load(Relaxed) {
                    return;
                }
                let is_copied = at <= self.copied.load(Relaxed);
                if item.pieces.is_together() && !is_copied {
                    let start = item.info.offset + off;
                    bytes.read_ahead(item.info.file, start..start + n);
                }
            }
        }
        rest.iter().for_each(|(file, range)| bytes.request(*file, range.clone()));
    }
}

/// See [`Ahead::until_dropped`].
pub(super) struct End<'a>(&'a Ahead);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Relaxed);
    }
}
