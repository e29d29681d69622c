//! The run-time compiler: kernels' sources to binaries of a chip, or to PTX. It needs neither a device nor a driver, and
//! the sources need none of its headers.

use crate::kernels::{Family, HEADERS};
use crate::library;
use crate::sys::Nvrtc;
use std::ffi::{CString, c_char, c_int, c_void};
use std::path::Path;

/// The open compiler.
pub struct Compiler(Nvrtc);

/// What a compilation gave.
pub struct Compiled {
    /// A binary, or PTX with its final zero.
    pub image: Vec<u8>,
    /// What the compiler said: registers, spills and shared memory of every kernel.
    pub log: String,
}

impl Compiler {
    /// From this folder, or where the loader finds it; of a release whose binaries a driver of this version takes.
    pub fn open(folder: Option<&Path>, driver: Option<i32>) -> Result<Compiler, String> {
        library::compiler(folder, driver.map(|version| version / 1000)).map(Compiler)
    }

    /// Compiles a family: a binary for `sm_…`, PTX for `compute_…`.
    pub fn compile(&self, family: &Family, target: &str) -> Result<Compiled, String> {
        let text = |text: &str| CString::new(text).map_err(|e| e.to_string());
        let (source, name) = (text(family.source)?, text(&format!("{}.cu", family.name))?);
        let headers = HEADERS.iter().map(|(_, source)| text(source)).collect::<Result<Vec<_>, _>>()?;
        let names = HEADERS.iter().map(|(name, _)| text(name)).collect::<Result<Vec<_>, _>>()?;
        let (headers, names) = (pointers(&headers), pointers(&names));
        let mut program = Program { nvrtc: &self.0, raw: std::ptr::null_mut() };
        let create = self.0.nvrtcCreateProgram.ok_or("nvrtcCreateProgram is absent")?;
        let (n, source, name) = (headers.len() as c_int, source.as_ptr(), name.as_ptr());
        // SAFETY: texts that end and live through the call; as many headers as names.
        let code = unsafe { create(&mut program.raw, source, name, n, headers.as_ptr(), names.as_ptr()) };
        done("nvrtcCreateProgram", code)?;
        program.compile(family.name, target)
    }
}

struct Program<'a> {
    nvrtc: &'a Nvrtc,
    raw: *mut c_void,
}

type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Get = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;

impl Program<'_> {
    fn compile(&self, family: &str, target: &str) -> Result<Compiled, String> {
        let mut options = vec![format!("-arch={target}"), "--std=c++17".into(), "-default-device".into()];
        if target.starts_with("sm_") {
            options.push("--ptxas-options=-v".into());
        }
        let options: Vec<CString> = options.into_iter().filter_map(|text| CString::new(text).ok()).collect();
        let options = pointers(&options);
        let compile = self.nvrtc.nvrtcCompileProgram.ok_or("nvrtcCompileProgram is absent")?;
        // SAFETY: a live program; texts that live through the call.
        let code = unsafe { compile(self.raw, options.len() as c_int, options.as_ptr()) };
        let log = self.output(self.nvrtc.nvrtcGetProgramLogSize, self.nvrtc.nvrtcGetProgramLog)?;
        let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_string();
        done(&format!("{family} for {target}"), code).map_err(|e| format!("{e}\n{log}"))?;
        let image = match target.starts_with("sm_") {
            true => self.output(self.nvrtc.nvrtcGetCUBINSize, self.nvrtc.nvrtcGetCUBIN)?,
            false => self.output(self.nvrtc.nvrtcGetPTXSize, self.nvrtc.nvrtcGetPTX)?,
        };
        Ok(Compiled { image, log })
    }

    fn output(&self, size: Option<Size>, get: Option<Get>) -> Result<Vec<u8>, String> {
        let (size, get) = size.zip(get).ok_or("the compiler lacks a function")?;
        let mut n = 0;
        // SAFETY: a live program; the outputs are ours and as large as the compiler says.
        unsafe {
            done("the compiler's output", size(self.raw, &mut n))?;
            let mut bytes = vec![0u8; n];
            done("the compiler's output", get(self.raw, bytes.as_mut_ptr().cast()))?;
            Ok(bytes)
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: a program that was created, once; NULL if it was not, which is refused.
        self.nvrtc.nvrtcDestroyProgram.map(|f| unsafe { f(&mut self.raw) });
    }
}

fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

fn done(what: &str, code: c_int) -> Result<(), String> {
    if code == 0 { Ok(()) } else { Err(format!("{what}: NVRTC answered {code}")) }
}
