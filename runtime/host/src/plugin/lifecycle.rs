//! At most one `init` … `shutdown` of a plugin's table at a time in this process, shared by all who load it.

use super::loaded::Loaded;
use super::open::StartError;
use crate::device::Device;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// A table that is being initialised, in use, or being shut down.
enum Slot {
    /// Being initialised.
    Starting,
    /// In use; being shut down once the last reference is dropped.
    Live(Weak<Loaded>, Vec<Weak<Device>>),
    /// Quarantined, so never shut down; cannot start again in this process.
    Broken(String),
}

/// How long a host may take to go.
const LEAVING: Duration = Duration::from_secs(2);

static SLOTS: Mutex<Option<HashMap<usize, Slot>>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// A plugin and its devices.
pub(crate) type Module = (Arc<Loaded>, Vec<Arc<Device>>);

/// The plugin with the table at address `key`: the one in use, or what `start` makes.
pub(crate) fn begin(
    key: usize,
    start: impl FnOnce() -> Result<Module, StartError>,
) -> Result<Module, StartError> {
    if let Some(module) = reserve(key)? {
        return Ok(module);
    }
    let reservation = Reservation(key);
    let (loaded, devices) = start()?;
    std::mem::forget(reservation);
    let slot = Slot::Live(Arc::downgrade(&loaded), devices.iter().map(Arc::downgrade).collect());
    slots().get_or_insert_default().insert(key, slot);
    CHANGED.notify_all();
    Ok((loaded, devices))
}

/// Shuts a plugin down and frees its place, unless it is broken. Called when the last handle is gone.
pub(crate) fn end(key: usize, broken: Option<&String>, shutdown: impl FnOnce()) {
    if broken.is_none() {
        shutdown();
    }
    let mut slots = slots();
    let slots = slots.get_or_insert_default();
    match broken {
        Some(reason) => {
            slots.insert(key, Slot::Broken(reason.clone()));
        }
        // A plugin that failed while starting is taken out by its reservation.
        None if matches!(slots.get(&key), Some(Slot::Live(..))) => {
            slots.remove(&key);
        }
        None => {}
    }
    CHANGED.notify_all();
}

/// The plugin in use; or `None`, and then its place is the caller's.
fn reserve(key: usize) -> Result<Option<Module>, String> {
    let give_up = Instant::now() + LEAVING;
    let mut guard = slots();
    loop {
        let map = guard.get_or_insert_default();
        match map.get(&key) {
            None => {
                map.insert(key, Slot::Starting);
                return Ok(None);
            }
            Some(Slot::Live(loaded, devices)) => {
                if let Some(loaded) = loaded.upgrade() {
                    let devices: Option<Vec<_>> = devices.iter().map(Weak::upgrade).collect();
                    // Dropping handles may end the plugin, which takes the lock.
                    drop(guard);
                    if let Some(devices) = devices {
                        return Ok(Some((loaded, devices)));
                    }
                    drop(loaded);
                    // Some devices are gone and others not: a host that shuts down, or an object that outlived it.
                    if Instant::now() > give_up {
                        return Err(
                            "an object of this plugin outlived the host that loaded it; drop it first".into(),
                        );
                    }
                    std::thread::sleep(Duration::from_millis(1));
                    guard = slots();
                    continue;
                }
            }
            Some(Slot::Broken(reason)) => {
                return Err(format!("it was quarantined in this process after: {reason}"));
            }
            Some(Slot::Starting) => {}
        }
        CHANGED.wait(&mut guard);
    }
}

/// A place that is freed if `start` fails.
struct Reservation(usize);

impl Drop for Reservation {
    fn drop(&mut self) {
        slots().get_or_insert_default().remove(&self.0);
        CHANGED.notify_all();
    }
}

fn slots() -> MutexGuard<'static, Option<HashMap<usize, Slot>>> {
    SLOTS.lock()
}
