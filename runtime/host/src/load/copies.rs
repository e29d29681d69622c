//! Copies of matrices for devices that could use the file in place and are faster with a layout of their own. Each copy
//! is a buffer, so that all cores copy and seal at once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

use llmrt_abi::types::USAGE_WEIGHTS;

use super::ahead::Ahead;
use super::bytes::Bytes;
use super::place::{Item, canonical};
use super::progress::Progress;
use super::storage::{BUFFER_TYPE, Unsealed, bring};
use super::weights::{Placed, WeightRequest};
use super::{Error, Result};
use crate::{Buffer, Layout};

/// Matrices on their way.
pub(super) struct Copies<'a> {
    items: Vec<(Item<'a>, Buffer)>,
    layouts: Vec<Layout>,
    unsealed: Unsealed,
}

impl<'a> Copies<'a> {
    /// Allocates a buffer for each.
    pub fn new(items: Vec<Item<'a>>) -> Result<Copies<'a>> {
        let alloc = |item: Item<'a>| {
            let device = &item.request.device;
            let n = device.alloc_size(BUFFER_TYPE, &item.request.desc(0));
            let n = n.map_err(|source| Error::tensor(item.request, source))?;
            let buffer = device.alloc(BUFFER_TYPE, n, USAGE_WEIGHTS);
            let failed = |source| Error::Alloc { device: device.name().into(), n, source };
            Ok((buffer.map_err(failed)?, item))
        };
        let items = items.into_iter().map(|item| alloc(item).map(|(buffer, item)| (item, buffer)));
        let items = items.collect::<Result<_>>()?;
        Ok(Copies { items, layouts: Vec::new(), unsealed: Unsealed::default() })
    }

    /// Fills and seals all of them, and releases the file's pages one by one; pages are read ahead, and those of `rest` (ranges of
    /// files, by index) at last. `filled(base, end)` is called for those that the CPU can reach.
    pub fn fill(
        &mut self,
        bytes: &Bytes<'_>,
        rest: &[(usize, Range<u64>)],
        progress: &mut Progress<'_>,
        filled: &mut dyn FnMut(*const u8, *const u8),
    ) -> Result<()> {
        if self.items.is_empty() {
            return Ok(());
        }
        let (next, stopped, ahead) = Default::default();
        let team = Team { items: &self.items, bytes, next, stopped, ahead };
        let mut done = std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(self.items.len());
            let workers: Vec<_> = (0..n_threads)
                .map(|_| {
                    let sender = sender.clone();
                    scope.spawn(|| team.work(sender))
                })
                .collect();
            drop(sender);
            let _end = team.ahead.until_dropped();
            scope.spawn(|| team.ahead.read(bytes, team.items.iter().map(|(item, _)| item), rest));
            // Progress is reported on this thread, the one that waits for the load.
            let cancelled = receiver.iter().try_for_each(|n| progress.add(n)).inspect_err(|_| team.stop());
            let (mut done, mut failed) = (Vec::new(), cancelled.err());
            for worker in workers {
                match worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
                    Ok(some) => done.extend(some),
                    // `Cancelled` from a stopped worker is less specific than the error that stopped it.
                    Err(e) if matches!(failed, None | Some(Error::Cancelled)) => failed = Some(e),
                    Err(_) => {}
                }
            }
            failed.map_or(Ok(done), Err)
        })?;
        done.sort_by_key(|(i, _)| *i);
        for ((_, buffer), (_, (layout, failed))) in self.items.iter().zip(done) {
            self.layouts.push(layout);
            self.unsealed.add(failed);
            if let Some(base) = buffer.host_ptr() {
                let base = base.as_ptr().cast_const();
                filled(base, base.wrapping_add(buffer.size() as usize));
            }
        }
        Ok(())
    }

    /// What did not work but costs time only, in words for the user.
    pub fn warning(&self) -> Option<String> {
        self.unsealed.warning(self.items.first()?.0.request.device.name())
    }

    /// Where everything is, once filled.
    pub fn finish(self) -> impl Iterator<Item = (&'a WeightRequest, Placed)> {
        self.items.into_iter().zip(self.layouts).map(|((item, buffer), layout)| {
            let at = canonical(&buffer, 0, item.info.nbytes);
            (item.request, Placed { layout_id: layout.id, layout_flags: layout.flags, is_sealed: true, ..at })
        })
    }
}

/// What the threads share.
struct Team<'a> {
    items: &'a [(Item<'a>, Buffer)],
    bytes: &'a Bytes<'a>,
    next: AtomicUsize,
    stopped: AtomicBool,
    ahead: Ahead,
}

/// Row of a matrix, the layout it got, and why it is the file's, if sealing failed.
type Done = (usize, (Layout, Option<String>));

impl Team<'_> {
    /// Brings matrices that no other thread has taken, until there are none or the team is stopped.
    fn work(&self, sender: mpsc::Sender<u64>) -> Result<Vec<Done>> {
        let (mut scratch, mut done) = (Vec::new(), Vec::new());
        loop {
            let i = self.next.fetch_add(1, Relaxed);
            let Some((item, buffer)) = self.items.get(i) else { return Ok(done) };
            let mut copied = 0;
            let mut count = |n| {
                copied += n;
                self.ahead.copied(n);
                if item.pieces.is_together() {
                    self.bytes.release(&item.info, copied);
                }
                match self.stopped.load(Relaxed) || sender.send(n).is_err() {
                    true => Err(Error::Cancelled),
                    false => Ok(()),
                }
            };
            let brought = bring(item, buffer, 0, self.bytes, &mut scratch, &mut count);
            done.push((i, brought.inspect_err(|_| self.stop())?));
        }
    }

    /// Makes all threads return soon.
    fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }
}
