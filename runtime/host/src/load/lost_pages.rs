//! Pages of mapped files that disappear while they are in use: another program truncated the file, or its disk failed.
//!
//! Reading such a page raises SIGBUS, whose default action ends the process. The handler installed here with the first
//! mapping replaces the lost pages by zero pages and marks the mapping. Loading and every run of the executor check the
//! marks and return an error, so no result is computed from the zeros. Any other SIGBUS goes to the handler that was
//! installed before, or has the default action.
//!
//! A handler may run at any point of any thread, so it uses only atomics and system calls: no lock, no allocation.

use std::ops::Range;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering::SeqCst};

use libc::{c_int, c_void, siginfo_t};
use parking_lot::Mutex;

use super::mapping::page_size;

/// Addresses of a mapped file whose lost pages are replaced, until this is dropped.
#[derive(Debug)]
pub(super) struct GuardedRange(&'static Node);

/// One range of addresses, in a list that the handler reads. Nodes are never freed, only reused.
#[derive(Debug)]
struct Node {
    /// Odd while the range changes.
    version: AtomicUsize,
    start: AtomicUsize,
    /// 0: the node is free.
    end: AtomicUsize,
    is_lost: AtomicBool,
    next: Option<&'static Node>,
}

static NODES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());
/// Held while a range changes. The handler does not take it.
static CHANGES: Mutex<()> = Mutex::new(());

impl GuardedRange {
    /// Guards pages of a file mapped for reading. They must stay mapped until this is dropped.
    pub fn new(range: Range<usize>) -> GuardedRange {
        install();
        let _turn = CHANGES.lock();
        let node = nodes().find(|node| node.end.load(SeqCst) == 0).unwrap_or_else(add_node);
        node.is_lost.store(false, SeqCst);
        node.set(range);
        GuardedRange(node)
    }

    /// Whether pages of the range were replaced.
    pub fn is_lost(&self) -> bool {
        self.0.is_lost.load(SeqCst)
    }
}

impl Drop for GuardedRange {
    fn drop(&mut self) {
        let _turn = CHANGES.lock();
        self.0.set(0..0);
    }
}

impl Node {
    fn set(&self, range: Range<usize>) {
        self.version.fetch_add(1, SeqCst);
        self.start.store(range.start, SeqCst);
        self.end.store(range.end, SeqCst);
        self.version.fetch_add(1, SeqCst);
    }

    /// The range; empty while it changes. A range that a thread reads from does not change.
    fn range(&self) -> Range<usize> {
        let version = self.version.load(SeqCst);
        let range = self.start.load(SeqCst)..self.end.load(SeqCst);
        let is_whole = version.is_multiple_of(2) && self.version.load(SeqCst) == version;
        if is_whole { range } else { 0..0 }
    }
}

/// A free node at the head of the list. The caller holds `CHANGES`.
fn add_node() -> &'static Node {
    let node: &'static Node = Box::leak(Box::new(Node {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        is_lost: AtomicBool::new(false),
        next: nodes().next(),
    }));
    NODES.store(std::ptr::from_ref(node).cast_mut(), SeqCst);
    node
}

fn nodes() -> impl Iterator<Item = &'static Node> {
    // SAFETY: NULL, or a node that was complete before its address was stored and is never freed.
    let first: Option<&'static Node> = unsafe { NODES.load(SeqCst).as_ref() };
    std::iter::successors(first, |node| node.next)
}

/// The handler installed before this one, and its flags. Written once, before this one can run.
static BEFORE: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static BEFORE_FLAGS: AtomicI32 = AtomicI32::new(0);
static PAGE_SIZE: AtomicUsize = AtomicUsize::new(4096);

type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

fn install() {
    static ONCE: Once = Once::new();
    // SAFETY: `sigaction` reads and writes structs that live during the calls, for which all zeros is a valid value;
    // `on_sigbus` has the type that SA_SIGINFO requires and is safe in a signal handler.
    ONCE.call_once(|| unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before) != 0 {
            return;
        }
        BEFORE.store(before.sa_sigaction, SeqCst);
        BEFORE_FLAGS.store(before.sa_flags, SeqCst);
        PAGE_SIZE.store(page_size(), SeqCst);
        let handler: Handler = on_sigbus;
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &ours, std::ptr::null_mut());
    });
}

/// # Safety
/// Called by the kernel, as a handler with SA_SIGINFO.
unsafe extern "C" fn on_sigbus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: `info` is valid during the call; its address is read only for signals that have one.
    let lost = unsafe { ((*info).si_code == libc::BUS_ADRERR).then(|| (*info).si_addr().addr()) };
    let is_replaced = |address| nodes().any(|node| node.replace(address));
    if !lost.is_some_and(is_replaced) {
        // SAFETY: the kernel's arguments.
        unsafe { on_other(signal, info, context, lost.is_some()) }
    }
}

impl Node {
    /// Replaces the page of this address and all pages after it, which a truncated file has lost too.
    fn replace(&self, address: usize) -> bool {
        let range = self.range();
        if !range.contains(&address) {
            return false;
        }
        self.is_lost.store(true, SeqCst);
        let start = address & !(PAGE_SIZE.load(SeqCst) - 1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the access that failed proves that the range is in use, so its owner does not unmap it now; the
        // range's pages are mapped for reading, and so are the new ones. `errno` is this thread's, and the interrupted
        // code may be about to read it.
        unsafe {
            let errno = libc::__errno_location();
            let saved = *errno;
            let at = libc::mmap(start as *mut c_void, range.end - start, libc::PROT_READ, flags, -1, 0);
            *errno = saved;
            at != libc::MAP_FAILED
        }
    }
}

/// A SIGBUS of other memory, or one sent by a process. An access is repeated after the return.
///
/// # Safety
/// Called by a handler with SA_SIGINFO, with its arguments.
unsafe fn on_other(signal: c_int, info: *mut siginfo_t, context: *mut c_void, is_access: bool) {
    match BEFORE.load(SeqCst) {
        libc::SIG_IGN if !is_access => {}
        // SAFETY: as in `install`. The signal is blocked until the return, so `raise` takes effect after it.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, &default, std::ptr::null_mut());
            if !is_access {
                libc::raise(signal);
            }
        },
        // SAFETY: a handler of the type that its flags state, with the kernel's arguments.
        handler if BEFORE_FLAGS.load(SeqCst) & libc::SA_SIGINFO != 0 => unsafe {
            std::mem::transmute::<usize, Handler>(handler)(signal, info, context)
        },
        // SAFETY: as above.
        handler => unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(signal) },
    }
}
