//! The live objects of plugins: their tables, the tensors sealed in them, and the threads that call them.

use super::violation;
use crate::device::Device;
use crate::error::Result;
use crate::plugin::loaded::Loaded;
use llmrt_abi::{Scope, types as c};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::thread::ThreadId;

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Buffer,
    Stream,
    Event,
    Plan,
    Group,
}

struct Object {
    kind: Kind,
    /// Address of its plugin's table.
    plugin: usize,
    /// Address of its own table; 0 for plans and groups, which have none.
    vt: usize,
    /// The thread that is calling it, for streams.
    caller: Option<ThreadId>,
    /// What `seal` made: where, how many bytes, which layout.
    sealed: Vec<Sealed>,
}

/// A sealed weight in a buffer.
#[derive(Clone, Copy, Debug)]
struct Sealed {
    offset: u64,
    nbytes: u64,
    layout_id: u32,
    flags: u32,
}

static LIVE: Mutex<Option<HashMap<usize, Object>>> = Mutex::new(None);

fn live() -> MutexGuard<'static, Option<HashMap<usize, Object>>> {
    LIVE.lock()
}

/// Notes an object that a plugin made just now. Two live ones at one address are not two.
///
/// # Safety
/// `object` is live; if it is no plan and no group, its first field is the address of its table.
pub(crate) unsafe fn born<T>(
    plugin: &Loaded,
    call: &'static str,
    kind: Kind,
    object: *const T,
) -> Result<()> {
    if !plugin.services.validate {
        return Ok(());
    }
    let vt = match kind {
        Kind::Plan | Kind::Group => 0,
        // SAFETY: the caller's promise.
        _ => unsafe { *object.cast::<usize>() },
    };
    let new = Object { kind, plugin: plugin.key, vt, caller: None, sealed: Vec::new() };
    let old = live().get_or_insert_default().insert(object as usize, new);
    match old {
        Some(old) => {
            let text = format!("gave a {:?} at {object:p}, where a {:?} still lives", kind, old.kind);
            Err(violation(plugin, call, Scope::Plugin, text))
        }
        None => Ok(()),
    }
}

/// Notes that an object is about to be destroyed.
pub(crate) fn dies<T>(plugin: &Loaded, object: *const T) {
    if plugin.services.validate && live().get_or_insert_default().remove(&(object as usize)).is_none() {
        plugin
            .services
            .log_line(1, &format!("LLMRT_VALIDATE: {}: {object:p} is destroyed twice", plugin.desc.name));
    }
}

/// The right to call a stream, given back when dropped.
pub(crate) struct Turn(usize);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(object) = live().get_or_insert_default().get_mut(&self.0) {
            object.caller = None;
        }
    }
}

/// Calls whose object is a device, or several.
const ON_DEVICE: [&str; 11] = [
    "open",
    "memory",
    "supports",
    "buffer_alloc",
    "import_host",
    "backend_create",
    "event_create",
    "raw_alloc",
    "va_reserve",
    "va_map",
    "group_create",
];

/// Before a call: the object lives, its table is the one it was made with, and no other thread is calling a stream.
/// Devices are not in the list: they live until `shutdown`.
pub(crate) fn check(
    plugin: usize,
    object: usize,
    call: &str,
) -> std::result::Result<Option<Turn>, (Scope, String)> {
    let mut live = live();
    let Some(found) = live.get_or_insert_default().get_mut(&object) else {
        return match ON_DEVICE.contains(&call) {
            true => Ok(None),
            false => Err((
                Scope::Call,
                format!("the object at {object:#x} is not alive: destroyed, or never made"),
            )),
        };
    };
    let vt = match found.kind {
        Kind::Plan | Kind::Group => 0,
        // SAFETY: the object is alive, and starts with the address of its table, as all others do.
        _ => unsafe { *(object as *const usize) },
    };
    if found.plugin != plugin || vt != found.vt {
        let text = format!("the {:?} at {object:#x} has another table than when it was made", found.kind);
        return Err((Scope::Plugin, text));
    }
    if found.kind != Kind::Stream {
        return Ok(None);
    }
    let me = std::thread::current().id();
    match found.caller.replace(me) {
        Some(other) => {
            found.caller = Some(other);
            Err((Scope::Call, format!("{me:?} calls a stream that {other:?} is calling")))
        }
        None => Ok(Some(Turn(object))),
    }
}

/// Objects of a plugin that are still alive, as text; `None` if there are none.
pub(crate) fn left_over(plugin: usize) -> Option<String> {
    let mut guard = live();
    let map = guard.get_or_insert_default();
    let mut kinds: Vec<_> =
        map.values().filter(|o| o.plugin == plugin).map(|o| format!("{:?}", o.kind)).collect();
    map.retain(|_, object| object.plugin != plugin);
    kinds.sort();
    (!kinds.is_empty())
        .then(|| format!("{} objects are alive at shutdown: {}", kinds.len(), kinds.join(", ")))
}

impl Device {
    /// Forgets the layout of a weight that will be written again.
    pub(crate) fn forget_seal(&self, buffer: *const c::Buffer, t: &c::Tensor) {
        if let Some(object) = live().get_or_insert_default().get_mut(&(buffer as usize)) {
            object.sealed.retain(|s| !overlap(s, t));
        }
    }

    /// Records the layout that `seal` returned for a tensor. A weight is sealed once after it was written.
    pub(crate) fn note_seal(
        &self,
        buffer: *const c::Buffer,
        t: &c::Tensor,
        layout: &c::Layout,
    ) -> Result<()> {
        let seal =
            Sealed { offset: t.offset, nbytes: t.nbytes, layout_id: layout.layout_id, flags: layout.flags };
        self.check_answer("seal", Scope::Call, || {
            let mut live = live();
            let object = live.get_or_insert_default().get_mut(&(buffer as usize))?;
            let before = object.sealed.iter().find(|s| overlap(s, t)).copied();
            object.sealed.push(seal);
            before.map(|s| format!("bytes {}..{} were sealed before", s.offset, s.offset + s.nbytes))
        })
    }

    /// Before a tensor's bytes are moved or used: sealed ones are used in the layout made by sealing, and opaque or
    /// rearranged ones are not written. `write`: canonical bytes are written; `read`: they are read.
    pub(crate) fn check_sealed(&self, call: &'static str, t: &c::Tensor, use_of: Use) -> Result<()> {
        self.check_answer(call, Scope::Call, || {
            let mut live = live();
            let object = live.get_or_insert_default().get(&(t.buffer as usize));
            let Some(object) = object else {
                return Some(format!("a tensor in a buffer at {:p}, which is not alive", t.buffer));
            };
            let s = object.sealed.iter().find(|s| s.layout_id != 0 && overlap(s, t))?;
            match use_of {
                Use::Write => {
                    Some(format!("bytes {}..{} were sealed and are written", s.offset, s.offset + s.nbytes))
                }
                Use::Read if s.flags & c::LAYOUT_OPAQUE != 0 => {
                    Some(format!("layout {} is opaque and is read", s.layout_id))
                }
                Use::Node if t.layout_id != s.layout_id => {
                    Some(format!("a node uses bytes of layout {} as layout {}", s.layout_id, t.layout_id))
                }
                _ => None,
            }
        })
    }
}

/// What is done with a tensor's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Write,
    Read,
    Node,
}

fn overlap(s: &Sealed, t: &c::Tensor) -> bool {
    s.offset < t.offset.saturating_add(t.nbytes) && t.offset < s.offset.saturating_add(s.nbytes)
}
