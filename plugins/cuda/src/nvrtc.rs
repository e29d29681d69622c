//! The run-time compiler: kernels' sources to binaries of a chip, or to PTX. It needs neither a device nor a driver, and
//! the sources need none of its headers.

use crate::kernels::{Family, HEADERS};
use crate::library;
use crate::sys::nvrtcProgram;
use crate::tables::{Nvrtc, call};
use std::ffi::{CString, c_char, c_int};
use std::path::Path;

/// The open compiler.
pub struct Compiler(Nvrtc);

/// Bytes of stack of the thread that compiles. The compiler recurses over a kernel's code: 8 MiB, a main thread's, overflowed
/// with the largest kernels, and a thread of Rust's has 2. Pages that are not touched take no memory.
const STACK: usize = 256 << 20;

/// What a compilation gave.
pub struct Compiled {
    /// A binary, or PTX with its final zero.
    pub image: Vec<u8>,
    /// The compiler's log: registers, spills and shared memory of every kernel.
    pub log: String,
}

impl Compiler {
    /// From this folder, or where the loader finds it; of a release whose binaries a driver of this version takes.
    pub fn open(folder: Option<&Path>, driver: Option<i32>) -> Result<Compiler, String> {
        library::compiler(folder, driver.map(|version| version / 1000)).map(Compiler)
    }

    /// Compiles a family: a binary for `sm_…`, PTX for `compute_…`.
    pub fn compile(&self, family: &Family, target: &str) -> Result<Compiled, String> {
        self.compile_text(family.name, family.source, HEADERS, target)
    }

    /// As above, of any source, with the names and texts of headers that it includes; on a thread with a stack of its own size.
    pub fn compile_text(
        &self,
        family: &str,
        source: &str,
        headers: &[(&str, &str)],
        target: &str,
    ) -> Result<Compiled, String> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("llmrt nvrtc".into()).stack_size(STACK);
            let work = || self.compile_here(family, source, headers, target);
            let thread = thread.spawn_scoped(scope, work).map_err(|e| format!("no thread for NVRTC: {e}"))?;
            thread
                .join()
                .unwrap_or_else(|_| Err(format!("{family} for {target}: the thread of NVRTC panicked")))
        })
    }

    fn compile_here(
        &self,
        family: &str,
        source: &str,
        headers: &[(&str, &str)],
        target: &str,
    ) -> Result<Compiled, String> {
        let text = |text: &str| CString::new(text).map_err(|e| e.to_string());
        let (source, name) = (text(source)?, text(&format!("{family}.cu"))?);
        let names = headers.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let headers = headers.iter().map(|(_, source)| text(source)).collect::<Result<Vec<_>, _>>()?;
        let (headers, names) = (pointers(&headers), pointers(&names));
        let mut program = Program { nvrtc: &self.0, raw: std::ptr::null_mut() };
        let (n, source, name) = (headers.len() as c_int, source.as_ptr(), name.as_ptr());
        let (headers, names) = (headers.as_ptr(), names.as_ptr());
        // SAFETY: texts that end and live through the call; as many headers as names.
        let code =
            unsafe { call!(self.0, nvrtcCreateProgram(&mut program.raw, source, name, n, headers, names)) };
        done("nvrtcCreateProgram", code)?;
        program.compile(family, target)
    }
}

struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: nvrtcProgram,
}

/// Bytes that a program gives by two functions: their count, and the bytes.
macro_rules! output {
    ($program:ident, $size:ident, $get:ident) => {{
        let mut n = 0;
        // SAFETY: a live program; the output is ours.
        done(stringify!($size), unsafe { call!($program.nvrtc, $size($program.raw, &mut n)) })?;
        let mut bytes = vec![0u8; n];
        let to = bytes.as_mut_ptr().cast::<c_char>();
        // SAFETY: as above; as many bytes as the compiler has.
        done(stringify!($get), unsafe { call!($program.nvrtc, $get($program.raw, to)) })?;
        bytes
    }};
}

impl Program<'_> {
    fn compile(&self, family: &str, target: &str) -> Result<Compiled, String> {
        let mut options = vec![format!("-arch={target}"), "--std=c++17".into(), "-default-device".into()];
        if target.starts_with("sm_") {
            options.push("--ptxas-options=-v".into());
        }
        let options: Vec<CString> = options.into_iter().filter_map(|text| CString::new(text).ok()).collect();
        let options = pointers(&options);
        let (n, options) = (options.len() as c_int, options.as_ptr());
        // SAFETY: a live program; texts that live through the call.
        let code = unsafe { call!(self.nvrtc, nvrtcCompileProgram(self.raw, n, options)) };
        let log = output!(self, nvrtcGetProgramLogSize, nvrtcGetProgramLog);
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_string();
        done(&format!("{family} for {target}"), code).map_err(|e| format!("{e}\n{log}"))?;
        let image = match target.starts_with("sm_") {
            true => output!(self, nvrtcGetCUBINSize, nvrtcGetCUBIN),
            false => output!(self, nvrtcGetPTXSize, nvrtcGetPTX),
        };
        Ok(Compiled { image, log })
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: a program that was created, once; NULL if it was not, which is refused.
        let _ = unsafe { call!(self.nvrtc, nvrtcDestroyProgram(&mut self.raw)) };
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// Whether a call, by its status, did what it should; `None`: the compiler lacks the function.
fn done(what: &str, status: Option<c_int>) -> Result<(), String> {
    match status {
        Some(0) => Ok(()),
        Some(status) => Err(format!("{what}: NVRTC returned {status}")),
        None => Err(format!("{what} is absent")),
    }
}
