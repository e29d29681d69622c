//! A pool as a stream's plugin calls it: `llmrt_pool`.

use super::{Devmem, Pool, PoolKind, PoolStats};
use crate::device::Device;
use crate::error::{Error, Result};
use llmrt_abi::{Status, types as c};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeSet;
use std::ffi::c_void;
use std::sync::Arc;

/// The scratch pool of one stream. Its address is the plugin's until the stream is destroyed.
pub(crate) struct Scratch {
    raw: Box<c::Pool>,
    /// Owned here; `raw.ctx` points to it.
    state: Box<Mutex<State>>,
}

struct State {
    pool: Box<dyn Pool>,
    /// Plans of the stream, which may hold addresses.
    n_plans: usize,
    /// What a plugin freed that it was not given; reported by the next check.
    misuse: Option<Error>,
    n_allocs: u64,
    /// The allocation that fails on purpose, counted like `n_allocs`; 0: none.
    fails_at: u64,
}

// SAFETY: the plugin's calls go through the mutex.
unsafe impl Send for Scratch {}
// SAFETY: as above.
unsafe impl Sync for Scratch {}

impl Scratch {
    /// A pool on this open device, of the requested kind, else of the host's; `None` if its plugin manages its
    /// memory alone.
    pub(crate) fn new(device: &Arc<Device>, requested: Option<PoolKind>) -> Result<Option<Scratch>> {
        let services = &device.plugin.services;
        let requested = requested
            .or(services.scratch_pool)
            .map_or_else(|| PoolKind::of_options(services, device.plugin()), Ok)?;
        let Some(devmem) = Devmem::of(device)? else { return Ok(None) };
        Ok(Some(Scratch::with(super::open(devmem, requested, device.info().memory_total)?)))
    }

    pub(super) fn with(pool: Box<dyn Pool>) -> Scratch {
        let kind = (pool.stats().kind == PoolKind::Vmm) as u32;
        let state = Box::new(Mutex::new(State { pool, n_plans: 0, misuse: None, n_allocs: 0, fails_at: 0 }));
        let ctx = std::ptr::from_ref(&*state).cast_mut().cast();
        let struct_size = size_of::<c::Pool>() as u32;
        let raw = Box::new(c::Pool { struct_size, kind, ctx, alloc: Some(alloc), free: Some(free) });
        Scratch { raw, state }
    }

    /// For the ABI; valid as long as this pool.
    pub(crate) fn as_ptr(&self) -> *const c::Pool {
        &*self.raw
    }

    /// The n-th allocation from now on fails, as if the device had no memory left; 0: none does.
    pub(crate) fn fail_at(&self, n: u64) {
        let mut state = self.lock();
        state.fails_at = if n == 0 { 0 } else { state.n_allocs.saturating_add(n) };
    }

    /// After a computation: idle memory may go; what the plugin did wrong comes out.
    pub(crate) fn after_compute(&self) -> Result<()> {
        let mut state = self.lock();
        state.pool.trim();
        state.misuse.take().map_or(Ok(()), Err)
    }

    /// A plan is about to be made; what it is given must stay where it is.
    pub(crate) fn plan_made(&self) {
        let mut state = self.lock();
        state.n_plans += 1;
        state.pool.pin(true);
    }

    /// A plan is gone, or was not made.
    pub(crate) fn plan_gone(&self) {
        let mut state = self.lock();
        state.n_plans = state.n_plans.saturating_sub(1);
        let pinned = state.n_plans > 0;
        state.pool.pin(pinned);
    }

    /// Bytes of device memory it takes to hand out each of these sizes, one after the other.
    pub(crate) fn room(&self, sizes: &BTreeSet<u64>) -> u64 {
        self.lock().pool.room(sizes)
    }

    /// What it holds.
    pub(crate) fn stats(&self) -> PoolStats {
        let state = self.lock();
        PoolStats { allocs: state.n_allocs, ..state.pool.stats() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// # Safety
/// `ctx` is that of a [`Scratch`] that lives.
unsafe fn state<'a>(ctx: *mut c_void) -> MutexGuard<'a, State> {
    // SAFETY: the caller's promise.
    let state = unsafe { &*ctx.cast::<Mutex<State>>() };
    state.lock()
}

unsafe extern "C" fn alloc(ctx: *mut c_void, size: u64, align: u64, addr: *mut u64, actual: *mut u64) -> i32 {
    if ctx.is_null() || addr.is_null() || actual.is_null() || !(align == 0 || align.is_power_of_two()) {
        return Status::Invalid.code();
    }
    // SAFETY: the plugin passes the pool's `ctx`; the outputs are its own and not NULL.
    unsafe {
        let mut state = state(ctx);
        state.n_allocs += 1;
        if state.n_allocs == state.fails_at {
            return Status::OomDevice.code();
        }
        match state.pool.alloc(size, align) {
            Ok(got) => {
                (*addr, *actual) = got;
                Status::Ok.code()
            }
            Err(e) => e.status().code(),
        }
    }
}

unsafe extern "C" fn free(ctx: *mut c_void, addr: u64, actual: u64) {
    if ctx.is_null() {
        return;
    }
    // SAFETY: the plugin passes the pool's `ctx`.
    let mut state = unsafe { state(ctx) };
    if let Err(e) = state.pool.free(addr, actual) {
        state.misuse.get_or_insert(e);
    }
}
