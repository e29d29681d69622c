//! `--check-tensors`: checks every number of a model, on all cores, for NaN and infinity.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use llmrt_gguf::TensorInfo;
use llmrt_graph::quant::find_invalid;

use super::read::CHUNK;
use super::{Error, ModelFiles, Result};
use crate::load::bytes::Bytes;

/// Interval at which a check polls for cancellation.
const PATIENCE: Duration = Duration::from_millis(5);

/// Checks every number of a model that is not loaded, on all cores. An error names the tensors with NaN or infinity.
/// `cancelled` is polled.
pub fn check(files: &ModelFiles, cancelled: &(dyn Fn() -> bool + Sync)) -> Result<()> {
    let bytes = Bytes { files, maps: &[] };
    let check = Check::new(&bytes);
    std::thread::scope(|scope| {
        let n_threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let workers: Vec<_> = (0..n_threads).map(|_| scope.spawn(|| check.work())).collect();
        while !workers.iter().all(|worker| worker.is_finished()) {
            if cancelled() {
                check.stop();
            }
            std::thread::sleep(PATIENCE);
        }
    });
    if cancelled() {
        return Err(Error::Cancelled);
    }
    check.finish()
}

/// The check of a model while it goes on; threads share it and each calls [`Check::work`].
pub(super) struct Check<'a> {
    bytes: &'a Bytes<'a>,
    next: AtomicUsize,
    stopped: AtomicBool,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    /// Row of the tensor table, and the first bad block.
    bad: Vec<(usize, usize)>,
    error: Option<Error>,
}

impl<'a> Check<'a> {
    pub(super) fn new(bytes: &'a Bytes<'a>) -> Check<'a> {
        Check { bytes, next: 0.into(), stopped: false.into(), found: Mutex::default() }
    }

    /// Checks tensors that no other thread has taken, until there are none or the check is stopped.
    pub(super) fn work(&self) {
        let mut scratch = Vec::new();
        while let Some((i, tensor)) = self.take() {
            let result = self.first_bad_block(tensor, &mut scratch);
            let mut found = self.found.lock();
            match result {
                Ok(None) => {}
                Ok(Some(block)) => found.bad.push((i, block)),
                Err(error) => {
                    found.error = Some(error);
                    self.stop();
                }
            }
        }
    }

    /// Makes all threads return soon; the check is then worth nothing.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Relaxed);
    }

    /// An error that names all bad tensors, once every thread has returned.
    pub(super) fn finish(self) -> Result<()> {
        let Found { mut bad, error } = self.found.into_inner();
        if let Some(error) = error {
            return Err(error);
        }
        if bad.is_empty() {
            return Ok(());
        }
        bad.sort_unstable();
        let tensors = &self.bytes.files.model.tensors;
        let describe = |&(i, block): &(usize, usize)| (tensors[i].name.clone(), describe(&tensors[i], block));
        Err(Error::InvalidData { tensors: bad.iter().map(describe).collect() })
    }

    fn take(&self) -> Option<(usize, &'a TensorInfo)> {
        let i = self.next.fetch_add(1, Relaxed);
        let tensor = self.bytes.files.model.tensors.get(i)?;
        (!self.stopped.load(Relaxed)).then_some((i, tensor))
    }

    fn first_bad_block(&self, tensor: &TensorInfo, scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        let block = tensor.dtype.block_bytes();
        let step = CHUNK / block * block;
        for at in (0..tensor.nbytes).step_by(step) {
            if self.stopped.load(Relaxed) {
                break;
            }
            let n = (tensor.nbytes - at).min(step as u64);
            let chunk = self.bytes.get(tensor, at, n, scratch)?;
            if let Some(bad) = find_invalid(tensor.dtype, chunk) {
                return Ok(Some(at as usize / block + bad));
            }
        }
        Ok(None)
    }
}

/// Where a bad block is and what is wrong with it.
fn describe(tensor: &TensorInfo, block: usize) -> String {
    let per_row = (tensor.ne[0] / tensor.dtype.block_elems() as u64).max(1);
    let (row, column) = (block as u64 / per_row, block as u64 % per_row);
    let what = if tensor.dtype.is_quantised() { "block" } else { "element" };
    format!("NaN or infinity in row {row}, {what} {column} ({})", tensor.dtype)
}
