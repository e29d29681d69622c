//! Simulated devices that put their results together: the first one's queue does it when the others have come as far, and
//! they go on when it is done.

use crate::memory::Memory;
use crate::program::memory_of;
use crate::queue::Mark;
use crate::stream::SimStream;
use llmrt_plugin::{Error, Group, Result, Stream, TensorView};
use std::any::Any;
use std::sync::Arc;

/// A group.
pub struct SimGroup;

/// Bytes of a tensor.
struct Place {
    memory: Arc<Memory>,
    at: u64,
    n: u64,
}

impl Place {
    fn of(t: &TensorView<'_>) -> Result<Place> {
        Ok(Place { memory: memory_of(t)?.clone(), at: t.offset(), n: t.nbytes() })
    }

    fn all(tensors: &[TensorView<'_>]) -> Result<Vec<Place>> {
        tensors.iter().map(Place::of).collect()
    }

    fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.n as usize];
        // SAFETY: as many bytes as the vector has.
        unsafe { self.memory.read(self.at, bytes.as_mut_ptr(), self.n)? };
        Ok(bytes)
    }

    fn write(&self, bytes: &[u8]) -> Result<()> {
        // SAFETY: as many bytes as the slice has.
        unsafe { self.memory.write(self.at, bytes.as_ptr(), bytes.len() as u64) }
    }
}

impl Group for SimGroup {
    fn all_reduce(
        &mut self,
        streams: &mut [&mut dyn Stream],
        src: &[TensorView<'_>],
        dst: &[TensorView<'_>],
    ) -> Result<()> {
        let (src, dst) = (Place::all(src)?, Place::all(dst)?);
        together(streams, move || {
            let mut total: Vec<f32> = numbers(&src[0].read()?);
            for more in &src[1..] {
                total.iter_mut().zip(numbers(&more.read()?)).for_each(|(a, b)| *a += b);
            }
            let bytes: Vec<u8> = total.iter().flat_map(|x| x.to_ne_bytes()).collect();
            dst.iter().try_for_each(|to| to.write(&bytes))
        })
    }

    fn all_gather(
        &mut self,
        streams: &mut [&mut dyn Stream],
        src: &[TensorView<'_>],
        dst: &[TensorView<'_>],
    ) -> Result<()> {
        let row = src[0].ne()[0] * size_of::<f32>();
        let (src, dst) = (Place::all(src)?, Place::all(dst)?);
        together(streams, move || {
            let parts = src.iter().map(Place::read).collect::<Result<Vec<_>>>()?;
            let n_rows = parts[0].len() / row.max(1);
            let rows = (0..n_rows).flat_map(|r| parts.iter().map(move |part| &part[r * row..][..row]));
            let bytes = rows.collect::<Vec<_>>().concat();
            dst.iter().try_for_each(|to| to.write(&bytes))
        })
    }

    fn broadcast(
        &mut self,
        streams: &mut [&mut dyn Stream],
        root: usize,
        tensors: &[TensorView<'_>],
    ) -> Result<()> {
        let all = Place::all(tensors)?;
        together(streams, move || {
            let bytes = all[root].read()?;
            all.iter().try_for_each(|to| to.write(&bytes))
        })
    }
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// `work` on the first stream after what all have enqueued; what the others enqueue next comes after it.
fn together(
    streams: &mut [&mut dyn Stream],
    work: impl FnOnce() -> Result<()> + Send + 'static,
) -> Result<()> {
    let mut all: Vec<&mut SimStream> = Vec::new();
    for stream in streams {
        let stream = (&mut **stream as &mut dyn Any).downcast_mut::<SimStream>();
        all.push(stream.ok_or_else(|| Error::invalid("a stream of another plugin"))?);
    }
    let Some((first, others)) = all.split_first_mut() else { return Ok(()) };
    let ready: Vec<Mark> = others.iter().map(|stream| stream.mark()).collect();
    first.push(move || {
        ready.iter().try_for_each(|mark| mark.wait(None).map(|_| ()))?;
        work()
    })?;
    let done = first.mark();
    others.iter_mut().try_for_each(|stream| {
        let done = done.clone();
        stream.push(move || done.wait(None).map(|_| ()))
    })
}
