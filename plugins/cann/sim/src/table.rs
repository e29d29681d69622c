//! Handles that programs hold: numbers, not pointers, looked up at every use. A stale or foreign one is found.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Never the same number twice, also not in another simulated machine.
static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The live objects of a kind.
pub struct Table<T>(Mutex<HashMap<usize, Arc<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Table<T> {
        Table(Mutex::default())
    }
}

impl<T> Table<T> {
    /// A new object's handle.
    pub fn insert(&self, object: T) -> usize {
        self.insert_with(|_| Arc::new(object))
    }

    /// A new object that has its handle.
    pub fn insert_with(&self, make: impl FnOnce(usize) -> Arc<T>) -> usize {
        // A page that no program has, and no object of another kind in between.
        let handle = 0x10 * NEXT.fetch_add(1, Relaxed) + (0x7ace << 40);
        let object = make(handle);
        self.0.lock().insert(handle, object);
        handle
    }

    /// The object of a handle.
    pub fn get(&self, handle: usize) -> Option<Arc<T>> {
        self.0.lock().get(&handle).cloned()
    }

    /// The same; the handle is dead from now on.
    pub fn remove(&self, handle: usize) -> Option<Arc<T>> {
        self.0.lock().remove(&handle)
    }

    /// All of them.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.0.lock().values().cloned().collect()
    }

    /// How many live.
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Whether none lives.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
