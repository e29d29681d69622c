//! The run-time compiler's functions: it takes sources and gives an image that names the chip it is for. The kernels
//! themselves were compiled with the simulator.

use crate::world::world;
use std::ffi::{CStr, c_char, c_int, c_void};

/// How an image of this compiler begins; the target, ` by ` and the compiler's major release follow.
pub const MARK: &[u8] = b"emulated kernels for ";

const INVALID_INPUT: c_int = 3;
const COMPILATION: c_int = 6;

/// A program, and what was made of it.
struct Program {
    source: Vec<u8>,
    image: Vec<u8>,
}

/// The number in the library's name, `libnvrtc.so.13` or `libcublasLt.so.13`; 12 where it is one file with the driver.
pub fn release() -> c_int {
    // SAFETY: an address of this library; the name that is found ends, and lives as long as the library.
    let file = unsafe {
        let mut info = std::mem::zeroed::<libc::Dl_info>();
        match libc::dladdr(release as *const c_void, &mut info) {
            0 => return 12,
            _ => CStr::from_ptr(info.dli_fname).to_string_lossy(),
        }
    };
    // Other names may lead to it.
    let file = std::fs::canonicalize(&*file).map_or(file.into(), |file| file.display().to_string());
    let names = ["libnvrtc.so.", "libcublasLt.so."];
    let number = names.iter().find_map(|name| file.rsplit_once(name)?.1.parse().ok());
    number.unwrap_or(12)
}

macro_rules! compiler {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) $body:block)*) => { $(
        /// As the compiler's.
        ///
        /// # Safety
        /// As the compiler's documentation specifies.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            world().count(stringify!($name), 1);
            // SAFETY: handles are boxes that `nvrtcCreateProgram` made and `nvrtcDestroyProgram` has not freed; texts
            // end; outputs are the caller's.
            unsafe { $body }
        }
    )* };
}

compiler! {
    nvrtcVersion(major: *mut c_int, minor: *mut c_int) {
        *major = release();
        *minor = 0;
        0
    }
    nvrtcCreateProgram(program: *mut *mut c_void, source: *const c_char, _name: *const c_char, n: c_int,
        headers: *const *const c_char, names: *const *const c_char) {
        if source.is_null() || (n > 0 && (headers.is_null() || names.is_null())) {
            return INVALID_INPUT;
        }
        let source = CStr::from_ptr(source).to_bytes().to_vec();
        *program = Box::into_raw(Box::new(Program { source, image: Vec::new() })).cast();
        0
    }
    nvrtcDestroyProgram(program: *mut *mut c_void) {
        if program.is_null() || (*program).is_null() {
            return INVALID_INPUT;
        }
        drop(Box::from_raw((*program).cast::<Program>()));
        *program = std::ptr::null_mut();
        0
    }
    nvrtcCompileProgram(program: *mut c_void, n: c_int, options: *const *const c_char) {
        let program = &mut *program.cast::<Program>();
        let options = (0..n as usize).map(|i| CStr::from_ptr(*options.add(i)).to_bytes());
        let target = options.filter_map(|option| option.strip_prefix(b"-arch=")).next();
        match target {
            Some(target) if !program.source.is_empty() => {
                program.image = [MARK, target, format!(" by {}\0", release()).as_bytes()].concat();
                0
            }
            _ => COMPILATION,
        }
    }
    nvrtcGetProgramLogSize(_program: *mut c_void, n: *mut usize) {
        *n = 1;
        0
    }
    nvrtcGetProgramLog(_program: *mut c_void, log: *mut c_char) {
        *log = 0;
        0
    }
    nvrtcGetCUBINSize(program: *mut c_void, n: *mut usize) {
        *n = (*program.cast::<Program>()).image.len();
        0
    }
    nvrtcGetCUBIN(program: *mut c_void, cubin: *mut c_char) {
        let image = &(*program.cast::<Program>()).image;
        cubin.cast::<u8>().copy_from(image.as_ptr(), image.len());
        0
    }
    nvrtcGetPTXSize(program: *mut c_void, n: *mut usize) {
        *n = (*program.cast::<Program>()).image.len();
        0
    }
    nvrtcGetPTX(program: *mut c_void, ptx: *mut c_char) {
        let image = &(*program.cast::<Program>()).image;
        ptx.cast::<u8>().copy_from(image.as_ptr(), image.len());
        0
    }
}
