//! The libraries of the driver, of the run-time compiler and of cuBLASLt, opened at run time: found or not, complete or not.

use crate::sys::MAJOR_VERSION;
use crate::tables::{CublasLt, Cuda, Functions, Nvrtc, OPTIONAL, call};
use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};
use std::error::Error as _;
use std::ffi::c_void;
use std::path::Path;

/// Why there are no devices, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// What was looked for and what was found.
    pub reason: String,
    /// What helps.
    pub hint: &'static str,
}

const INSTALL: &str = "install NVIDIA's driver, or set LLMRT_CUDA_LIB_DIR to the folder of libcuda.so.1";
const UPDATE: &str = "install a driver for CUDA 12.0 (r525) or newer, r570 for compute capability 10 and 12";

/// The newest release of CUDA whose compiler is looked for where no driver reports which it takes.
const NEWEST: i32 = 13;

/// The driver's functions, every one of them there but those that came late.
pub fn driver(folder: Option<&Path>) -> Result<Cuda, Absent> {
    let file = "libcuda.so.1";
    let library = open(folder, file).map_err(|reason| Absent { reason, hint: INSTALL })?;
    let (table, mut missing) = functions::<Cuda>(library);
    missing.retain(|name| !OPTIONAL.contains(name));
    match missing.is_empty() {
        true => Ok(table),
        false => Err(Absent { reason: format!("{file} lacks {}", missing.join(", ")), hint: UPDATE }),
    }
}

/// The run-time compiler's functions, or why it cannot be used. A driver takes binaries of its own major release of CUDA
/// and of older ones.
pub fn compiler(folder: Option<&Path>, newest: Option<i32>) -> Result<Nvrtc, String> {
    let mut problems = Vec::new();
    for file in compilers(newest.unwrap_or(NEWEST)) {
        match open(folder, &file).map(functions::<Nvrtc>) {
            Ok((_, missing)) if !missing.is_empty() => {
                problems.push(format!("{file} lacks {}", missing.join(", ")));
            }
            Ok((table, _)) => match (release(&table), newest) {
                (found, Some(newest)) if found > newest => {
                    problems.push(format!("{file} is of CUDA {found}, the driver is for {newest}"));
                }
                _ => return Ok(table),
            },
            Err(problem) => problems.push(problem),
        }
    }
    Err(problems.join("; "))
}

/// cuBLASLt's functions, or why it cannot be used with a driver for this release of CUDA.
pub fn cublas(folder: Option<&Path>, newest: i32) -> Result<CublasLt, String> {
    let numbered = (11..=newest.min(NEWEST)).rev().map(|release| format!("libcublasLt.so.{release}"));
    let mut problems = Vec::new();
    for file in numbered.chain(["libcublasLt.so".into()]) {
        match open(folder, &file).map(functions::<CublasLt>) {
            Ok((_, missing)) if !missing.is_empty() => {
                problems.push(format!("{file} lacks {}", missing.join(", ")));
            }
            Ok((table, _)) => {
                let mut found = 0;
                // SAFETY: the output is ours.
                let _ = unsafe { call!(table, cublasLtGetProperty(MAJOR_VERSION, &mut found)) };
                match found {
                    found if found > newest => {
                        problems.push(format!("{file} is of CUDA {found}, the driver is for {newest}"));
                    }
                    1..11 => problems.push(format!("{file} is of CUDA {found}, older than 11")),
                    _ => return Ok(table),
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    Err(problems.join("; "))
}

/// Names of the library, newest first: a release's compiler is distinguished by the number, and all of 11 share one.
fn compilers(newest: i32) -> Vec<String> {
    let numbered = (12..=newest).rev().map(|release| format!("libnvrtc.so.{release}"));
    numbered.chain(["libnvrtc.so.11.2".into(), "libnvrtc.so".into()]).collect()
}

/// The compiler's major release of CUDA.
fn release(nvrtc: &Nvrtc) -> i32 {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the outputs are ours.
    let _ = unsafe { call!(nvrtc, nvrtcVersion(&mut major, &mut minor)) };
    major
}

/// Opens a library for ever: the driver's threads and thread-locals live until the process ends.
fn open(folder: Option<&Path>, name: &str) -> Result<&'static Library, String> {
    let path = folder.map_or_else(|| name.into(), |folder| folder.join(name));
    // SAFETY: the driver and the compiler may be loaded at any time; their constructors are theirs.
    let library = unsafe { Library::open(Some(path), RTLD_LAZY | RTLD_LOCAL) };
    // The cause names the file and the reason; the error itself only that something failed.
    let words = |e: libloading::Error| e.source().map_or_else(|| e.to_string(), ToString::to_string);
    library.map(|library| &*Box::leak(Box::new(library))).map_err(words)
}

/// A table filled by name, and the names that the library lacks.
fn functions<T: Functions>(library: &Library) -> (T, Vec<&'static str>) {
    const { assert!(size_of::<Option<extern "C" fn()>>() == size_of::<*mut c_void>()) };
    let mut table = std::mem::MaybeUninit::<T>::zeroed();
    let mut missing = Vec::new();
    for (i, name) in T::NAMES.iter().enumerate() {
        // SAFETY: the symbol is taken for an address only.
        let symbol = unsafe { library.get::<*mut c_void>(*name) };
        match symbol.ok().map(|symbol| symbol.as_raw_ptr()).filter(|address| !address.is_null()) {
            // SAFETY: `Functions` promises as many pointer fields as names, in this order.
            Some(address) => unsafe { table.as_mut_ptr().cast::<*mut c_void>().add(i).write(address) },
            None => missing.push(*name),
        }
    }
    // SAFETY: every field is zero, which is `None`, or the address of the function of its name.
    (unsafe { table.assume_init() }, missing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_driver_the_reason_names_it_and_the_hint_names_the_remedy() {
        let absent = driver(Some(&std::env::temp_dir())).err().unwrap();
        assert!(absent.reason.contains("libcuda.so.1"), "{absent:?}");
        assert!(absent.hint.contains("driver"));
        assert!(compiler(Some(&std::env::temp_dir()), None).err().unwrap().contains("libnvrtc.so.12"));
    }

    #[test]
    fn the_compiler_is_not_of_a_later_release_than_the_driver() {
        assert_eq!(compilers(13).join(" "), "libnvrtc.so.13 libnvrtc.so.12 libnvrtc.so.11.2 libnvrtc.so");
        assert_eq!(compilers(12).join(" "), "libnvrtc.so.12 libnvrtc.so.11.2 libnvrtc.so");
        assert_eq!(compilers(11).join(" "), "libnvrtc.so.11.2 libnvrtc.so");
    }
}
