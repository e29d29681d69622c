//! Tensors, scalars, arrays and lists: what operators get instead of memory. Here they are handles into tables.

use crate::fault::{Answer, ensure, fault, set_message};
use crate::plan::Executor;
use crate::sys::*;
use crate::table::Table;
use crate::tensor::{Tensor, bits, contiguous};
use crate::world::world;
use std::ffi::c_void;

/// A number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scalar {
    /// Its value.
    pub value: f64,
    /// Its type.
    pub dtype: aclDataType,
}

/// The live objects.
#[derive(Default)]
pub struct Objects {
    /// Tensors.
    pub tensors: Table<Tensor>,
    /// Numbers.
    pub scalars: Table<Scalar>,
    /// Arrays.
    pub ints: Table<Vec<i64>>,
    /// Lists, of handles of tensors.
    pub lists: Table<Vec<usize>>,
    /// Plans.
    pub executors: Table<Executor>,
}

impl Objects {
    /// What was not destroyed.
    pub fn left(&self) -> Vec<String> {
        let all = self.counts().into_iter().filter(|(n, _)| *n > 0);
        all.map(|(n, what)| format!("{n} {what} were not destroyed")).collect()
    }

    /// How many things were not destroyed.
    pub fn n_left(&self) -> usize {
        self.counts().iter().map(|(n, _)| n).sum()
    }

    fn counts(&self) -> [(usize, &'static str); 5] {
        [
            (self.tensors.len(), "tensors"),
            (self.scalars.len(), "scalars"),
            (self.ints.len(), "arrays"),
            (self.lists.len(), "lists"),
            (self.executors.len(), "executors"),
        ]
    }
}

#[unsafe(export_name = "llmrt_sim_aclCreateTensor")]
unsafe extern "C" fn aclCreateTensor(
    dims: *const i64,
    n: u64,
    dtype: aclDataType,
    strides: *const i64,
    offset: i64,
    format: aclFormat,
    storage: *const i64,
    n_storage: u64,
    address: *mut c_void,
) -> *mut aclTensor {
    create("aclCreateTensor", || {
        let dims = array(dims, n, "dims")?.to_vec();
        let strides =
            if strides.is_null() { contiguous(&dims) } else { array(strides, n, "strides")?.to_vec() };
        let storage = array(storage, n_storage, "storage dims")?.to_vec();
        let t = Tensor { dtype, dims, strides, offset, format, storage, base: address as usize };
        t.check()?;
        Ok(world().objects.tensors.insert(t))
    })
}

#[unsafe(export_name = "llmrt_sim_aclDestroyTensor")]
unsafe extern "C" fn aclDestroyTensor(tensor: *const aclTensor) -> aclnnStatus {
    destroy("aclDestroyTensor", tensor as usize, world().objects.tensors.remove(tensor as usize).is_some())
}

#[unsafe(export_name = "llmrt_sim_aclCreateScalar")]
unsafe extern "C" fn aclCreateScalar(value: *mut c_void, dtype: aclDataType) -> *mut aclScalar {
    create("aclCreateScalar", || {
        ensure(!value.is_null(), ACLNN_ERR_PARAM_NULLPTR, || "no value".into())?;
        let size = bits(dtype).filter(|bits| *bits >= 8).map(|bits| bits / 8);
        let Some(size) = size else { return fault(ACLNN_ERR_PARAM_INVALID, format!("dtype {dtype}")) };
        // SAFETY: by the header's contract a value of this type is there.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) };
        let value = crate::number::decode(dtype, bytes);
        Ok(world().objects.scalars.insert(Scalar { value, dtype }))
    })
}

#[unsafe(export_name = "llmrt_sim_aclDestroyScalar")]
unsafe extern "C" fn aclDestroyScalar(scalar: *const aclScalar) -> aclnnStatus {
    destroy("aclDestroyScalar", scalar as usize, world().objects.scalars.remove(scalar as usize).is_some())
}

#[unsafe(export_name = "llmrt_sim_aclCreateIntArray")]
unsafe extern "C" fn aclCreateIntArray(values: *const i64, n: u64) -> *mut aclIntArray {
    create("aclCreateIntArray", || Ok(world().objects.ints.insert(array(values, n, "values")?.to_vec())))
}

#[unsafe(export_name = "llmrt_sim_aclDestroyIntArray")]
unsafe extern "C" fn aclDestroyIntArray(array: *const aclIntArray) -> aclnnStatus {
    destroy("aclDestroyIntArray", array as usize, world().objects.ints.remove(array as usize).is_some())
}

#[unsafe(export_name = "llmrt_sim_aclCreateTensorList")]
unsafe extern "C" fn aclCreateTensorList(tensors: *const *const aclTensor, n: u64) -> *mut aclTensorList {
    create("aclCreateTensorList", || {
        let w = world();
        let handles: Vec<usize> = array(tensors, n, "tensors")?.iter().map(|t| *t as usize).collect();
        let known = handles.iter().all(|handle| w.objects.tensors.get(*handle).is_some());
        ensure(known, ACLNN_ERR_PARAM_INVALID, || "a tensor of the list does not live".into())?;
        Ok(w.objects.lists.insert(handles))
    })
}

/// The list's tensors go with it.
#[unsafe(export_name = "llmrt_sim_aclDestroyTensorList")]
unsafe extern "C" fn aclDestroyTensorList(list: *const aclTensorList) -> aclnnStatus {
    let w = world();
    let members = w.objects.lists.remove(list as usize);
    for handle in members.iter().flat_map(|members| members.iter()) {
        w.objects.tensors.remove(*handle);
    }
    destroy("aclDestroyTensorList", list as usize, members.is_some())
}

/// Fills the header's table.
pub(crate) fn fill(table: &mut cann_object) {
    table.aclCreateTensor = Some(aclCreateTensor);
    table.aclDestroyTensor = Some(aclDestroyTensor);
    table.aclCreateScalar = Some(aclCreateScalar);
    table.aclDestroyScalar = Some(aclDestroyScalar);
    table.aclCreateIntArray = Some(aclCreateIntArray);
    table.aclDestroyIntArray = Some(aclDestroyIntArray);
    table.aclCreateTensorList = Some(aclCreateTensorList);
    table.aclDestroyTensorList = Some(aclDestroyTensorList);
    crate::repeat::fill(table);
}

/// NULL, and a message, if it cannot be made.
fn create<T>(name: &str, make: impl FnOnce() -> Answer<usize>) -> *mut T {
    world().trace.count(name, 1);
    match make() {
        Ok(handle) => handle as *mut T,
        Err(fault) => {
            set_message(&format!("[{name}] {}", fault.text));
            std::ptr::null_mut()
        }
    }
}

/// NULL is fine; something destroyed before is not.
fn destroy(name: &'static str, handle: usize, was_there: bool) -> aclnnStatus {
    let answer = match handle == 0 || was_there {
        true => Ok(()),
        false => world().doubt(ACLNN_ERR_PARAM_INVALID, format!("{name} of something that does not live")),
    };
    crate::world::status(name, answer)
}

/// An array of the program's.
fn array<'a, T>(start: *const T, n: u64, what: &str) -> Answer<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    ensure(!start.is_null(), ACLNN_ERR_PARAM_NULLPTR, || format!("no {what}"))?;
    // SAFETY: by the header's contract `n` elements are there; they are copied before the call returns.
    Ok(unsafe { std::slice::from_raw_parts(start, n as usize) })
}
