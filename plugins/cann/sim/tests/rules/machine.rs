//! A simulated machine for one test. Tests take turns: there is one machine per process.

use cann_simulator::door::{self, Tables, tables};
use cann_simulator::sys::*;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CStr, c_void};

/// Calls a function of the runtime and returns its status.
macro_rules! acl {
    ($m:expr, $name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: arguments as the header specifies them, or wrong in a way that the test is about.
        unsafe { $m.t.acl.$name.expect(stringify!($name))($($arg),*) }
    };
}

/// Plans an operator; the answer is the status, the size and the executor.
macro_rules! plan {
    ($m:expr, $library:ident.$name:ident($($arg:expr),* $(,)?)) => {{
        let (mut size, mut executor) = (0, std::ptr::null_mut());
        let plan = $m.t.$library.$name.plan.expect(stringify!($name));
        // SAFETY: as above.
        let status = unsafe { plan($($arg,)* &mut size, &mut executor) };
        (status, size, executor)
    }};
}

/// Launches what was planned.
macro_rules! launch {
    ($m:expr, $library:ident.$name:ident, $workspace:expr, $size:expr, $executor:expr, $stream:expr) => {
        // SAFETY: as above.
        unsafe { $m.t.$library.$name.launch.expect(stringify!($name))($workspace, $size, $executor, $stream) }
    };
}

/// Both phases, with a workspace of its own.
macro_rules! run {
    ($m:expr, $library:ident.$name:ident($($arg:expr),* $(,)?), $stream:expr) => {{
        match plan!($m, $library.$name($($arg),*)) {
            (0, size, executor) => {
                let workspace = $m.alloc(size.max(1) as usize);
                launch!($m, $library.$name, workspace, size, executor, $stream)
            }
            (status, ..) => status,
        }
    }};
}

/// The machine.
pub struct Machine {
    pub t: Tables,
    _turn: MutexGuard<'static, ()>,
}

impl Machine {
    /// As described, started, with card 0 set.
    pub fn new(config: &str) -> Machine {
        let m = Machine::raw(config);
        assert_eq!(acl!(m, aclInit(std::ptr::null())), 0);
        assert_eq!(acl!(m, aclrtSetDevice(0)), 0);
        m
    }

    /// As described, and nothing more.
    pub fn raw(config: &str) -> Machine {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock();
        door::configure(config);
        Machine { t: tables(), _turn: turn }
    }

    pub fn alloc(&self, n: usize) -> *mut c_void {
        let mut ptr = std::ptr::null_mut();
        assert_eq!(acl!(self, aclrtMalloc(&mut ptr, n, 0)), 0, "{}", self.message());
        ptr
    }

    pub fn stream(&self) -> aclrtStream {
        let mut stream = std::ptr::null_mut();
        assert_eq!(acl!(self, aclrtCreateStream(&mut stream)), 0);
        stream
    }

    /// Memory of the card with these numbers.
    pub fn floats(&self, values: &[f32]) -> *mut c_void {
        let ptr = self.alloc(size_of_val(values));
        assert_eq!(self.write(ptr, values), 0);
        ptr
    }

    pub fn write<T: Copy>(&self, ptr: *mut c_void, values: &[T]) -> i32 {
        let n = size_of_val(values);
        acl!(self, aclrtMemcpy(ptr, n, values.as_ptr().cast(), n, ACL_MEMCPY_HOST_TO_DEVICE))
    }

    pub fn read<T: Copy + Default>(&self, ptr: *mut c_void, n: usize) -> Vec<T> {
        let mut values = vec![T::default(); n];
        let bytes = size_of_val(values.as_slice());
        let status =
            acl!(self, aclrtMemcpy(values.as_mut_ptr().cast(), bytes, ptr, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
        assert_eq!(status, 0, "{}", self.message());
        values
    }

    /// A tensor without gaps.
    pub fn tensor(&self, dtype: i32, dims: &[i64], ptr: *mut c_void) -> *mut aclTensor {
        let mut strides = vec![1; dims.len()];
        (1..dims.len()).rev().for_each(|d| strides[d - 1] = strides[d] * dims[d]);
        self.view(dtype, dims, &strides, 0, ptr)
    }

    pub fn view(
        &self,
        dtype: i32,
        dims: &[i64],
        strides: &[i64],
        offset: i64,
        ptr: *mut c_void,
    ) -> *mut aclTensor {
        let last: i64 = dims.iter().zip(strides).map(|(n, stride)| (n - 1).max(0) * stride).sum();
        let storage = (offset + last + 2) & !1;
        self.tensor_of(dtype, dims, strides, offset, ACL_FORMAT_ND, &[storage], ptr)
    }

    #[allow(clippy::too_many_arguments)]
    pub fn tensor_of(
        &self,
        dtype: i32,
        dims: &[i64],
        strides: &[i64],
        offset: i64,
        format: i32,
        storage: &[i64],
        ptr: *mut c_void,
    ) -> *mut aclTensor {
        let create = self.t.object.aclCreateTensor.unwrap();
        let (n, n_storage) = (dims.len() as u64, storage.len() as u64);
        // SAFETY: arrays of these lengths.
        unsafe {
            create(
                dims.as_ptr(),
                n,
                dtype,
                strides.as_ptr(),
                offset,
                format,
                storage.as_ptr(),
                n_storage,
                ptr,
            )
        }
    }

    pub fn scalar(&self, mut value: f32) -> *mut aclScalar {
        // SAFETY: a value of this type.
        unsafe { self.t.object.aclCreateScalar.unwrap()((&raw mut value).cast(), ACL_FLOAT) }
    }

    pub fn ints(&self, values: &[i64]) -> *mut aclIntArray {
        // SAFETY: an array of this length.
        unsafe { self.t.object.aclCreateIntArray.unwrap()(values.as_ptr(), values.len() as u64) }
    }

    pub fn destroy(&self, tensor: *mut aclTensor) -> i32 {
        // SAFETY: a handle.
        unsafe { self.t.object.aclDestroyTensor.unwrap()(tensor) }
    }

    pub fn sync(&self, stream: aclrtStream) -> i32 {
        acl!(self, aclrtSynchronizeStream(stream))
    }

    /// The thread's latest message; empty if there is none.
    pub fn message(&self) -> String {
        let text = acl!(self, aclGetRecentErrMsg());
        if text.is_null() {
            return String::new();
        }
        // SAFETY: a text that lives to the next message.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    /// y = 2 · x on a stream, for vectors of F32.
    pub fn double(&self, x: *mut c_void, y: *mut c_void, n: i64, stream: aclrtStream) -> i32 {
        let (x, y) = (self.tensor(ACL_FLOAT, &[n], x), self.tensor(ACL_FLOAT, &[n], y));
        run!(self, math.aclnnMuls(x, self.scalar(2.0), y), stream)
    }
}
