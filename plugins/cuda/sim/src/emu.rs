//! Kernels as plain C++: the list of them, and how one is run. The emulated machine: ../emu.

use crate::space::{Space, Span};
#[cfg(not(no_kernels))]
use parking_lot::Mutex;
use std::ffi::{CStr, c_char, c_int, c_void};

/// A kernel, as emu.h declares it.
#[repr(C)]
pub struct Kernel {
    name: *const c_char,
    /// Bytes of its argument.
    pub params_bytes: u32,
    /// Threads of a block at most.
    pub max_threads: u32,
    /// The lowest chip that it is for, as in sm_80, or the only one, [`ALONE`]; 0: it is for all.
    chip: u32,
    run: *const c_void,
    next: *const Kernel,
}

// SAFETY: written before anything runs, and never after.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// Its name.
    pub fn name(&self) -> &str {
        // SAFETY: a literal of the kernels' file.
        unsafe { CStr::from_ptr(self.name) }.to_str().unwrap_or("")
    }

    /// Whether it is what this chip gets of its source.
    pub fn is_for(&self, (major, minor): (i32, i32)) -> bool {
        let (chip, oldest) = ((10 * major + minor) as u32, |chip| chip < 80);
        match self.chip {
            0 => true,
            ALONE => chip == ALONE,
            lowest => oldest(lowest) == oldest(chip),
        }
    }
}

/// The chip whose kernels no other runs.
const ALONE: u32 = 90;

type Lookup = unsafe extern "C" fn(*mut c_void, u64, *mut Span) -> c_int;

#[cfg(not(no_kernels))]
unsafe extern "C" {
    fn llmrt_emu_kernels() -> *const Kernel;
    fn llmrt_emu_run(
        kernel: *const Kernel,
        params: *const c_void,
        grid: *const u32,
        threads: u32,
        shared: u32,
        more: u32,
        find: Lookup,
        context: *mut c_void,
        text: *mut *const c_char,
    ) -> c_int;
}

/// All kernels.
pub fn kernels() -> impl Iterator<Item = &'static Kernel> {
    #[cfg(not(no_kernels))]
    // SAFETY: no arguments; a list that is complete before anything runs.
    let first = unsafe { llmrt_emu_kernels().as_ref() };
    #[cfg(no_kernels)]
    let first: Option<&'static Kernel> = None;
    // SAFETY: each points to another or is NULL.
    std::iter::successors(first, |kernel| unsafe { kernel.next.as_ref() })
}

/// Bytes of shared memory that a block may have without requesting more.
pub const SHARED: u32 = 48 << 10;
/// What it may have at most, requested at launch.
pub const MAX_SHARED: u32 = 227 << 10;

/// Runs a kernel to its end, or to its first mistake, with blocks of `threads` that have `more` bytes of shared memory than
/// they declare. One at a time, because there is one machine for kernels.
pub fn run(
    kernel: &Kernel,
    params: &[u8],
    grid: [u32; 3],
    (threads, more): (u32, u32),
    space: &Space,
) -> Result<(), String> {
    #[cfg(no_kernels)]
    return Err(format!(
        "{}: built without kernels {params:?} {grid:?} {threads} {more} {}",
        kernel.name(),
        space.n_left()
    ));
    #[cfg(not(no_kernels))]
    {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock();
        let mut text = std::ptr::null();
        let context = std::ptr::from_ref(space).cast_mut().cast();
        let params = params.as_ptr().cast();
        // SAFETY: a kernel of the list with as many bytes of params as it declares, which the caller checked; the space
        // outlives the call.
        let failed = unsafe {
            llmrt_emu_run(kernel, params, grid.as_ptr(), threads, SHARED, more, find, context, &mut text)
        };
        match failed {
            0 => Ok(()),
            // SAFETY: a text that lives until the next kernel, which waits for its turn.
            _ => Err(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()),
        }
    }
}

#[cfg_attr(no_kernels, allow(dead_code))]
unsafe extern "C" fn find(context: *mut c_void, address: u64, span: *mut Span) -> c_int {
    // SAFETY: what `run` passed.
    let space = unsafe { &*context.cast::<Space>() };
    match space.find(address) {
        Some((_, found)) => {
            // SAFETY: an output of the caller's.
            unsafe { *span = found };
            1
        }
        None => 0,
    }
}
