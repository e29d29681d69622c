//! Devices of one plugin that put their results together: `llmrt.collective`.

use super::stream::{Inner as StreamInner, Kept, State};
use super::watchdog::watched;
use super::{Buffer, Device, Stream, TensorDesc, call};
use crate::error::{Error, Result};
use crate::plugin::table::{self, mandatory};
use crate::validate::{inside, live};
use llmrt_abi::types as c;
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::Duration;

/// The name under which a plugin offers it.
const NAME: &str = "llmrt.collective";

/// A group of devices. Rank i is the i-th of them.
#[derive(Clone)]
pub struct Group(Arc<Inner>);

struct Inner {
    devices: Vec<Arc<Device>>,
    vt: c::CollectiveVt,
    raw: *mut c::Group,
}

// SAFETY: the plugin's group is touched only while the streams of all its devices are entered, one thread at a time.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// A tensor in its memory, at one rank.
pub type InMemory<'a> = (&'a Buffer, TensorDesc<'a>);

impl Group {
    /// A group of these devices, or the reason there is none: they are of several plugins, or theirs has no such way.
    pub fn new(devices: &[Arc<Device>]) -> Result<Group> {
        let Some(first) = devices.first() else { return Err(Error::invalid("group", "without devices")) };
        if devices.iter().any(|d| !Arc::ptr_eq(&d.plugin, &first.plugin)) {
            return Err(Error::invalid("group", "the devices are of several plugins"));
        }
        devices.iter().try_for_each(|d| d.open())?;
        let none = || Error::invalid(first.plugin(), "has no collectives");
        let get_extension = first.plugin.table.get_extension.ok_or_else(none)?;
        let name = c::Str { ptr: NAME.as_ptr(), len: NAME.len() as u64 };
        // SAFETY: the plugin is initialised; the name is valid for the call.
        let vt = unsafe { get_extension(name, 0) }.cast::<c::CollectiveVt>();
        if vt.is_null() {
            return Err(none());
        }
        // SAFETY: under this name the ABI has this table, valid as long as the plugin.
        let vt = unsafe { table::read(vt) }.and_then(|vt: c::CollectiveVt| {
            mandatory!(vt, "collective", group_create, group_destroy, all_reduce).map(|()| vt)
        });
        let vt = vt.map_err(|e| first.breach("get_extension", e))?;
        let raws: Vec<_> = devices.iter().map(|d| d.raw).collect();
        let (mut raw, n) = (std::ptr::null_mut(), raws.len() as u32);
        // SAFETY: open devices of this plugin, as many as passed; the output is ours.
        unsafe { call!(first, vt, group_create(raws.as_ptr(), n, &mut raw))? };
        if raw.is_null() {
            return Err(first.breach("group_create", "returned OK and no group".into()));
        }
        // SAFETY: the plugin made this group just now.
        unsafe { live::born(&first.plugin, "group_create", live::Kind::Group, raw)? };
        Ok(Group(Arc::new(Inner { devices: devices.to_vec(), vt, raw })))
    }

    /// Its devices, by rank.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.0.devices
    }

    /// Whether it puts rows together ([`Group::all_gather`]).
    pub fn gathers(&self) -> bool {
        self.0.vt.all_gather.is_some()
    }

    /// Whether it copies from one to all ([`Group::broadcast`]).
    pub fn broadcasts(&self) -> bool {
        self.0.vt.broadcast.is_some()
    }

    /// Each `dst` becomes the sum of all `src`, after what the streams have enqueued. Row i of each is of rank i.
    pub fn all_reduce(&self, streams: &[&Stream], src: &[InMemory<'_>], dst: &[InMemory<'_>]) -> Result<()> {
        self.run("all_reduce", streams, src, dst, |call| {
            let Call { inner, backends, src, dst } = call;
            let (vt, raw, device) = (&inner.vt, inner.raw, &inner.devices[0]);
            // SAFETY: a live group and live backends of its devices, all entered; tensors are checked and kept.
            unsafe { call!(device, vt, all_reduce(raw, backends.as_ptr(), src.as_ptr(), dst.as_ptr())) }
        })
    }

    /// Each `dst` becomes the rows of all `src`, those of dim 0 one after the other.
    pub fn all_gather(&self, streams: &[&Stream], src: &[InMemory<'_>], dst: &[InMemory<'_>]) -> Result<()> {
        self.run("all_gather", streams, src, dst, |call| {
            let Call { inner, backends, src, dst } = call;
            let (vt, raw, device) = (&inner.vt, inner.raw, &inner.devices[0]);
            // SAFETY: as in `all_reduce`.
            unsafe { call!(device, vt, all_gather(raw, backends.as_ptr(), src.as_ptr(), dst.as_ptr())) }
        })
    }

    /// Each tensor becomes a copy of that of rank `root`.
    pub fn broadcast(&self, streams: &[&Stream], root: usize, tensors: &[InMemory<'_>]) -> Result<()> {
        if root >= self.0.devices.len() {
            return Err(Error::invalid("group", format!("rank {root} of {}", self.0.devices.len())));
        }
        self.run("broadcast", streams, tensors, &[], move |call| {
            let Call { inner, backends, src, .. } = call;
            let (vt, raw, device) = (&inner.vt, inner.raw, &inner.devices[0]);
            // SAFETY: as in `all_reduce`.
            unsafe { call!(device, vt, broadcast(raw, backends.as_ptr(), root as u32, src.as_ptr())) }
        })
    }

    /// Enters all streams, keeps the buffers, and notes what came of the call on each stream.
    fn run(
        &self,
        name: &'static str,
        streams: &[&Stream],
        src: &[InMemory<'_>],
        dst: &[InMemory<'_>],
        body: impl FnOnce(&Call<'_>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        self.check_ranks(streams)?;
        let mut entered = enter_all(streams)?;
        let place = |tensors: &[InMemory<'_>]| -> Result<Vec<c::Tensor>> {
            tensors.iter().map(|(buffer, tensor)| buffer.place(tensor, 0, 0)).collect()
        };
        let (src_rows, dst_rows) = (place(src)?, place(dst)?);
        check_shapes(name, streams.len(), &src_rows, &dst_rows)?;
        for (rank, (buffer, _)) in src.iter().chain(dst).enumerate() {
            streams[rank % streams.len()].0.check_reachable(buffer)?;
        }
        let work = Work {
            inner: self.0.clone(),
            backends: streams.iter().map(|s| s.0.raw).collect(),
            src: src_rows,
            dst: dst_rows,
        };
        let result = watched(&self.0.devices[0], name, Duration::ZERO, move || {
            let work = work;
            body(&work.call())
        });
        for (rank, state) in &mut entered {
            for (buffer, _) in [src.get(*rank), dst.get(*rank)].into_iter().flatten() {
                streams[*rank].0.keep(state, Kept::Buffer((*buffer).clone()));
            }
            let _ = state.note(result.clone());
        }
        result
    }

    /// One stream of each device, in order.
    fn check_ranks(&self, streams: &[&Stream]) -> Result<()> {
        let devices = &self.0.devices;
        let same = |(stream, device): (&&Stream, &Arc<Device>)| Arc::ptr_eq(stream.device(), device);
        if streams.len() == devices.len() && streams.iter().zip(devices).all(same) {
            return Ok(());
        }
        Err(Error::invalid("group", format!("{} streams for {} ranks", streams.len(), devices.len())))
    }
}

/// What goes into one call.
struct Work {
    inner: Arc<Inner>,
    backends: Vec<*mut c::Backend>,
    src: Vec<c::Tensor>,
    dst: Vec<c::Tensor>,
}

// SAFETY: handles and tensors that the ABI lets any thread pass, one at a time.
unsafe impl Send for Work {}

/// The same as arrays of addresses.
struct Call<'a> {
    inner: &'a Inner,
    backends: &'a [*mut c::Backend],
    src: Vec<*const c::Tensor>,
    dst: Vec<*const c::Tensor>,
}

impl Work {
    fn call(&self) -> Call<'_> {
        let addresses = |tensors: &[c::Tensor]| tensors.iter().map(std::ptr::from_ref).collect();
        Call {
            inner: &self.inner,
            backends: &self.backends,
            src: addresses(&self.src),
            dst: addresses(&self.dst),
        }
    }
}

/// The right to call all streams, with the rank of each; always taken in the order of addresses, so that two threads cannot
/// wait for each other.
fn enter_all<'a>(streams: &[&'a Stream]) -> Result<Vec<(usize, MutexGuard<'a, State>)>> {
    let mut ranks: Vec<usize> = (0..streams.len()).collect();
    ranks.sort_by_key(|&rank| Arc::as_ptr(&streams[rank].0) as usize);
    ranks.into_iter().map(|rank| Ok((rank, StreamInner::enter(&streams[rank].0)?))).collect()
}

/// A tensor per rank without gaps, all alike; results of a gather are as many times as wide.
fn check_shapes(name: &str, n: usize, src: &[c::Tensor], dst: &[c::Tensor]) -> Result<()> {
    let wrong = |problem: String| Err(Error::invalid(name, problem));
    if src.len() != n || !(dst.is_empty() || dst.len() == n) {
        return wrong(format!("{} sources and {} results for {n} ranks", src.len(), dst.len()));
    }
    let first = &src[0];
    let wide = if name == "all_gather" { n as i64 } else { 1 };
    let ne = [first.ne[0] * wide, first.ne[1], first.ne[2], first.ne[3]];
    for (tensor, ne) in src.iter().map(|t| (t, first.ne)).chain(dst.iter().map(|t| (t, ne))) {
        let bytes = ne.iter().product::<i64>() as u64
            * (first.nbytes / first.ne.iter().product::<i64>().max(1) as u64);
        if tensor.ne != ne || tensor.dtype != first.dtype || tensor.nbytes != bytes {
            return wrong(format!(
                "a tensor of {:?}, expected {ne:?}, all of one type and without gaps",
                tensor.ne
            ));
        }
    }
    Ok(())
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(group_destroy) = self.vt.group_destroy else { return };
        if self.devices.iter().all(|d| d.may_destroy()) {
            let _inside = inside::enter();
            live::dies(&self.devices[0].plugin, self.raw);
            // SAFETY: the last handle; its devices are open, and streams that it was used with are synchronised or gone.
            unsafe { group_destroy(self.raw) }
        }
    }
}
