//! Tensors on their way between devices, while a graph runs.

use super::Executor;
use crate::device::EarlyRead;
use crate::error::Result;
use crate::sched::bind::describe;
use crate::sched::place::DeviceIdx;
use crate::sched::prepared::{Copy, Prepared};

impl Executor {
    /// Enqueues a copy after what makes its tensor: between devices of one plugin it is on its way, from another it is read to
    /// the host.
    pub(super) fn begin(&self, p: &Prepared, to: DeviceIdx, copy: &Copy) -> Result<Option<EarlyRead>> {
        let Some(event) = &copy.read else { return self.copy(p, to, copy).map(|()| None) };
        let (from, source) = (&self.streams[copy.from.0], &copy.from.1);
        let def = p.resolved.graph.def(copy.tensor);
        from.read_early(event, &source.buffer, &describe(def, Some(source))).map(Some)
    }

    /// Makes a copy, or the rest of one that has begun.
    pub(super) fn bring(
        &self,
        p: &Prepared,
        to: DeviceIdx,
        copy: &Copy,
        read: Option<EarlyRead>,
    ) -> Result<()> {
        if let Some(read) = read {
            let target = describe(p.resolved.graph.def(copy.tensor), Some(&copy.to));
            return self.streams[to].set_async(&copy.to.buffer, &target, read.wait()?, 0);
        }
        if copy.after.is_none() {
            self.copy(p, to, copy)?;
        }
        // What overwrites the source comes after this split.
        copy.done.as_ref().map_or(Ok(()), |done| self.streams[copy.from.0].wait(done))
    }

    fn copy(&self, p: &Prepared, to: DeviceIdx, copy: &Copy) -> Result<()> {
        let def = p.resolved.graph.def(copy.tensor);
        let (from, source) = (&self.streams[copy.from.0], &copy.from.1);
        self.streams[to].copy_async(
            from,
            (&copy.to.buffer, &describe(def, Some(&copy.to))),
            (&source.buffer, &describe(def, Some(source))),
        )?;
        copy.done.as_ref().map_or(Ok(()), |done| self.streams[to].record(done))
    }
}
