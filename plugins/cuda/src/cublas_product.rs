//! One product as cuBLASLt does it: described, its algorithm chosen once, enqueued any number of times.

use crate::cublas::lt;
use crate::sys::*;
use crate::tables::CublasLt;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// y [m, n] = Σ over parts of w [k, m] times part of x [k, n], in the dims of tensors. Sums and y are F32.
pub struct Problem {
    /// Whether w and x are BF16 rather than F16.
    pub is_bf16: bool,
    /// Dims.
    pub m: usize,
    /// Columns.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
    /// First address, and elements from row to row.
    pub w: (u64, usize),
    /// First address of each part, and elements from column to column of all.
    pub x: (Vec<u64>, usize),
    /// First address; columns follow each other.
    pub y: u64,
    /// Bytes of scratch memory that may be taken.
    pub workspace: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtype = if self.is_bf16 { "BF16" } else { "F16" };
        write!(f, "{dtype} [{}, {}] times [{}, {}]", self.k, self.m, self.k, self.n)
    }
}

/// A product that is ready to be enqueued.
pub struct Product {
    table: CublasLt,
    handle: cublasLtHandle_t,
    objects: Objects,
    algo: cublasLtMatmulAlgo_t,
    /// Address and bytes.
    workspace: (u64, usize),
    w: u64,
    parts: Vec<u64>,
    y: u64,
}

// SAFETY: the library's objects are read only from here on, and any thread may do so after entering the device.
unsafe impl Send for Product {}
// SAFETY: as above.
unsafe impl Sync for Product {}

impl Product {
    /// Describes it and queries the best algorithm; the error is why there is none. The library sees columns where
    /// tensors have rows: y = wᵀ x.
    pub fn new(table: &CublasLt, handle: cublasLtHandle_t, p: &Problem) -> Result<Product, String> {
        let mut objects =
            Objects { table: *table, desc: null_mut(), layouts: [null_mut(); 3], preference: null_mut() };
        let halves = if p.is_bf16 { CUDA_R_16BF } else { CUDA_R_16F };
        let [k, m, n] = [p.k, p.m, p.n].map(|n| n as u64);
        let shapes = [(halves, k, m, p.w.1), (halves, k, n, p.x.1), (CUDA_R_32F, m, n, p.m)];
        // SAFETY: the outputs are ours; an attribute has the size that the library's documentation specifies.
        unsafe {
            lt!(table, cublasLtMatmulDescCreate(&mut objects.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F))?;
            for (attribute, operation) in
                [(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T), (CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N)]
            {
                let (value, n) = bytes_of(&operation);
                lt!(table, cublasLtMatmulDescSetAttribute(objects.desc, attribute, value, n))?;
            }
            for (layout, (dtype, rows, cols, ld)) in objects.layouts.iter_mut().zip(shapes) {
                lt!(table, cublasLtMatrixLayoutCreate(layout, dtype, rows, cols, ld as i64))?;
            }
            lt!(table, cublasLtMatmulPreferenceCreate(&mut objects.preference))?;
        }
        objects.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &(p.workspace as u64))?;
        for (attribute, addresses) in [
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &[p.w.0][..]),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &p.x.0),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &[p.y]),
            (CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &[p.y]),
        ] {
            objects.prefer(attribute, &alignment(addresses))?;
        }
        let found = objects.best(handle)?;
        if found.workspace > p.workspace {
            return Err(format!("it takes {} bytes of scratch memory, of {}", found.workspace, p.workspace));
        }
        Ok(Product {
            table: *table,
            handle,
            objects,
            algo: found.algo,
            workspace: (0, found.workspace),
            w: p.w.0,
            parts: p.x.0.clone(),
            y: p.y,
        })
    }

    /// Bytes of scratch memory that it takes.
    pub fn workspace(&self) -> usize {
        self.workspace.1
    }

    /// Gives it that memory.
    pub fn take(&mut self, address: u64) {
        self.workspace.0 = address;
    }

    /// Enqueues it; the first part is written over y, others are added.
    pub(crate) fn enqueue(&self, stream: CUstream) -> Result<(), String> {
        let [a, b, d] = self.objects.layouts;
        let (alpha, pointer) = (1.0f32, |address: u64| address as *mut c_void);
        for (i, x) in self.parts.iter().enumerate() {
            let beta = if i == 0 { 0.0f32 } else { 1.0 };
            let (alpha, beta) = ((&raw const alpha).cast(), (&raw const beta).cast());
            let (y, workspace) = (pointer(self.y), pointer(self.workspace.0));
            // SAFETY: live objects of the library, a live stream of the entered device, addresses on it which the host
            // keeps, and checked, until the work is done; alpha and beta are of the host and read during the call.
            unsafe {
                lt!(
                    self.table,
                    cublasLtMatmul(
                        self.handle,
                        self.objects.desc,
                        alpha,
                        pointer(self.w),
                        a,
                        pointer(*x),
                        b,
                        beta,
                        y,
                        d,
                        y,
                        d,
                        &self.algo,
                        workspace,
                        self.workspace.1,
                        stream.cast()
                    )
                )?;
            }
        }
        Ok(())
    }
}

/// What the library made for a product; NULL: not yet.
struct Objects {
    table: CublasLt,
    desc: cublasLtMatmulDesc_t,
    /// Of w, x and y.
    layouts: [cublasLtMatrixLayout_t; 3],
    preference: cublasLtMatmulPreference_t,
}

/// The library's choice for a product.
struct Best {
    algo: cublasLtMatmulAlgo_t,
    /// Bytes.
    workspace: usize,
}

impl Objects {
    fn prefer<T>(&self, attribute: cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<(), String> {
        let (value, n) = bytes_of(value);
        // SAFETY: a live preference; the attribute has the size that the library's documentation specifies.
        unsafe { lt!(self.table, cublasLtMatmulPreferenceSetAttribute(self.preference, attribute, value, n)) }
    }

    /// The algorithm that the library thinks fastest.
    fn best(&self, handle: cublasLtHandle_t) -> Result<Best, String> {
        let ([a, b, d], mut n_found) = (self.layouts, 0);
        let mut found = MaybeUninit::<cublasLtMatmulHeuristicResult_t>::zeroed();
        // SAFETY: live objects; room for one result.
        unsafe {
            lt!(
                self.table,
                cublasLtMatmulAlgoGetHeuristic(
                    handle,
                    self.desc,
                    a,
                    b,
                    d,
                    d,
                    self.preference,
                    1,
                    found.as_mut_ptr(),
                    &mut n_found
                )
            )?;
        }
        let found = found.as_ptr();
        // SAFETY: written by the library, or zero. Its status is read as a number, since it may be one that the enum lacks.
        let (state, best) = unsafe {
            let state = (&raw const (*found).state).cast::<c_int>().read();
            (state, Best { algo: (*found).algo, workspace: (*found).workspaceSize })
        };
        match (n_found, state) {
            (1.., CUBLAS_STATUS_SUCCESS) => Ok(best),
            (1.., _) => {
                let name = cublas_name_of(state).unwrap_or("an unknown status");
                Err(format!("the heuristic's result is {name} ({state})"))
            }
            _ => Err("the heuristic finds no algorithm".into()),
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        // SAFETY: each was made by the library and is destroyed once. A failure has no reader.
        unsafe {
            if !self.desc.is_null() {
                let _ = lt!(self.table, cublasLtMatmulDescDestroy(self.desc));
            }
            for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
                let _ = lt!(self.table, cublasLtMatrixLayoutDestroy(layout));
            }
            if !self.preference.is_null() {
                let _ = lt!(self.table, cublasLtMatmulPreferenceDestroy(self.preference));
            }
        }
    }
}

fn bytes_of<T>(value: &T) -> (*const c_void, usize) {
    (std::ptr::from_ref(value).cast(), size_of::<T>())
}

/// Bytes, up to 256, that all addresses are a multiple of.
fn alignment(addresses: &[u64]) -> u32 {
    let all = addresses.iter().fold(256, |all: u64, address| all | address);
    1 << all.trailing_zeros()
}

#[cfg(test)]
mod tests {
    use super::alignment;

    #[test]
    fn what_all_addresses_are_a_multiple_of_is_known_up_to_256() {
        assert_eq!((alignment(&[0x1000]), alignment(&[0x1000, 0x1030]), alignment(&[0x120])), (256, 16, 32));
    }
}
