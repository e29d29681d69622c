//! [`Device`] as the ABI's device table.

use super::{backend, buffer, event, guard, guard_value};
use crate::host::borrowed;
use crate::{Device, DeviceInfo, GraphView, PeerView, Reason, Scratch, StreamParams, TensorView, Verdict};
use core::ffi::c_void;
use llmrt_abi::types as c;
use std::sync::Arc;

/// What `*mut c::Device` points to: the device, its table, and the data its info borrows.
#[repr(C)]
pub(crate) struct Shell {
    abi: c::Device,
    vt: c::DeviceVt,
    info: c::DeviceInfo,
    buffer_types: Vec<c::BufferType>,
    text: DeviceInfo,
    inner: Arc<dyn Device>,
}

/// Every device's table has this function, and no other plugin's has it.
const OPEN: unsafe extern "C" fn(*mut c::Device, *mut c::Error) -> i32 = open;

/// Prepares a device for the host; the box must not be moved out of while the host has its address.
pub(crate) fn shell(inner: Arc<dyn Device>) -> *mut Shell {
    let text = inner.info();
    let has = |cap: u64| text.caps & cap != 0;
    let vt = c::DeviceVt {
        struct_size: size_of::<c::DeviceVt>() as u32,
        reserved: 0,
        open: Some(OPEN),
        close: Some(close),
        memory: Some(memory),
        supports: Some(supports),
        buffer_alloc: Some(buffer_alloc),
        backend_create: Some(backend_create),
        alloc_size: Some(alloc_size),
        accepts: Some(accepts),
        event_create: has(c::CAP_EVENTS).then_some(event_create),
        import_host: has(c::CAP_HOST_READ).then_some(import_host),
    };
    let abi = c::Device { vt: std::ptr::null(), info: std::ptr::null(), imp: std::ptr::null_mut() };
    let info = c::DeviceInfo {
        struct_size: size_of::<c::DeviceInfo>() as u32,
        kind: text.kind,
        caps: text.caps,
        name: c::Str::EMPTY,
        description: c::Str::EMPTY,
        arch: c::Str::EMPTY,
        pci_id: c::Str::EMPTY,
        uuid: text.uuid,
        memory_total: text.memory_total,
        n_buffer_types: text.buffer_types.len() as u32,
        bt_stride: size_of::<c::BufferType>() as u32,
        buffer_types: std::ptr::null(),
        kv_block_size: text.kv_block_size,
        reserved: 0,
    };
    let mut shell = Box::new(Shell { abi, vt, info, buffer_types: Vec::new(), text, inner });
    shell.buffer_types = buffer_types(&shell.text);
    shell.info.name = borrowed(&shell.text.name);
    shell.info.description = borrowed(&shell.text.description);
    shell.info.arch = borrowed(&shell.text.arch);
    shell.info.pci_id = borrowed(&shell.text.pci_id);
    shell.info.buffer_types = shell.buffer_types.as_ptr();
    let shell = Box::into_raw(shell);
    // SAFETY: `shell` was just allocated; its parts stay where they are until it is freed.
    unsafe {
        (*shell).abi.vt = &raw const (*shell).vt;
        (*shell).abi.info = &raw const (*shell).info;
    }
    shell
}

fn buffer_types(info: &DeviceInfo) -> Vec<c::BufferType> {
    let row = |(index, bt): (usize, &crate::BufferTypeInfo)| c::BufferType {
        struct_size: size_of::<c::BufferType>() as u32,
        index: index as u32,
        kind: bt.kind,
        flags: bt.flags,
        alignment: bt.alignment,
        max_size: bt.max_size,
        name: borrowed(&bt.name),
    };
    info.buffer_types.iter().enumerate().map(row).collect()
}

/// Whether this plugin made the device.
pub(crate) fn is_ours(dev: &c::Device) -> bool {
    // SAFETY: a device's table lives as long as the device, and `open` is in every version of it.
    let theirs = unsafe { (*dev.vt).open };
    theirs.is_some_and(|f| std::ptr::fn_addr_eq(f, OPEN))
}

/// # Safety
/// `dev` came from [`shell`] and was not freed.
pub(super) unsafe fn inner<'a>(dev: *mut c::Device) -> &'a dyn Device {
    // SAFETY: the caller's promise; `abi` is the shell's first field.
    unsafe { &*(*dev.cast::<Shell>()).inner }
}

// In every function below `dev` came from `shell`; graphs, tensors and output pointers are the host's.

unsafe extern "C" fn open(dev: *mut c::Device, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe { guard(err, || inner(dev).open()) }
}

unsafe extern "C" fn close(dev: *mut c::Device) {
    // SAFETY: see above.
    guard_value((), || unsafe { inner(dev) }.close());
}

unsafe extern "C" fn memory(dev: *mut c::Device, free: *mut u64, total: *mut u64, err: *mut c::Error) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            (*free, *total) = inner(dev).memory()?;
            Ok(())
        })
    }
}

unsafe extern "C" fn supports(
    dev: *mut c::Device,
    graph: *const c::Graph,
    first: u32,
    n: u32,
    verdicts: *mut c::Verdict,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; `verdicts` has `n` rows that the host initialised.
    unsafe {
        guard(err, || {
            let verdicts = match n {
                0 => &mut [],
                n => std::slice::from_raw_parts_mut(verdicts, n as usize),
            };
            let (graph, first) = (GraphView::new(&*graph), first as usize);
            inner(dev).supports_range(&graph, first, verdicts);
            refuse_unknown_sources(&graph, first, verdicts);
            Ok(())
        })
    }
}

/// No plugin runs a node with a source that this build does not have, whatever its driver answers: an optional source
/// of a later minor would be ignored.
fn refuse_unknown_sources(graph: &GraphView<'_>, first: usize, verdicts: &mut [Verdict]) {
    for (i, verdict) in verdicts.iter_mut().enumerate() {
        if verdict.support != 0 && !graph.node(first + i).has_known_sources() {
            *verdict = Verdict::no(Reason::Param);
        }
    }
}

unsafe extern "C" fn buffer_alloc(
    dev: *mut c::Device,
    bt: u32,
    size: u64,
    usage: u32,
    out: *mut *mut c::Buffer,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            *out = buffer::into_raw(inner(dev).alloc(bt, size, usage)?);
            Ok(())
        })
    }
}

unsafe extern "C" fn backend_create(
    dev: *mut c::Device,
    params: *const c::BackendParams,
    out: *mut *mut c::Backend,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            let p = &*params;
            let params = StreamParams {
                n_threads: p.n_threads,
                priority: p.priority,
                native_stream: p.native_stream,
                scratch: Scratch::new(p.scratch),
            };
            *out = backend::into_raw(inner(dev).stream(&params)?);
            Ok(())
        })
    }
}

unsafe extern "C" fn alloc_size(dev: *mut c::Device, bt: u32, tensor: *const c::Tensor) -> u64 {
    // SAFETY: see above. A panic answers 0, which the host takes for an error.
    unsafe { guard_value(0, || inner(dev).alloc_size(bt, &TensorView::new(&*tensor))) }
}

unsafe extern "C" fn accepts(dev: *mut c::Device, owner: *const c::Device, bt: u32) -> u32 {
    // SAFETY: see above; `owner` is a live device.
    unsafe { guard_value(0, || inner(dev).accepts(&PeerView(&*owner), bt).into()) }
}

unsafe extern "C" fn event_create(
    dev: *mut c::Device,
    _flags: u32,
    out: *mut *mut c::Event,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above.
    unsafe {
        guard(err, || {
            *out = event::into_raw(inner(dev).event()?);
            Ok(())
        })
    }
}

unsafe extern "C" fn import_host(
    dev: *mut c::Device,
    ptr: *mut c_void,
    n: u64,
    flags: u32,
    out: *mut *mut c::Buffer,
    err: *mut c::Error,
) -> i32 {
    // SAFETY: see above; the host keeps the memory until the buffer is destroyed.
    unsafe {
        guard(err, || {
            let read_only = flags & c::IMPORT_READ_ONLY != 0;
            *out = buffer::into_raw(inner(dev).import_host(ptr.cast(), n, read_only)?);
            Ok(())
        })
    }
}
