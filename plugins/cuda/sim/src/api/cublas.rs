//! cuBLASLt's functions, as far as they are declared: what the library's documentation refuses is refused here, and
//! reported.

use super::{api, give};
use crate::config::Products;
use crate::product::{Matrix, Product, Shape};
use crate::sys::*;
use crate::sys::{CUresult, CUstream};
use crate::task::Task;
use crate::world::{Answer, World};
use std::ffi::{c_int, c_void};

/// What a handle of the library is of.
#[derive(Clone)]
pub enum Object {
    /// The library itself, on a card.
    Library(usize),
    /// Compute type, scale type, what is transposed.
    Desc(cublasComputeType_t, cudaDataType, [c_int; 2]),
    /// A matrix that has no address yet.
    Layout(Matrix),
    /// Bytes of workspace; bytes that A, B, C and D are multiples of.
    Preference(u64, [u32; 4]),
}

/// Words of an algorithm: the mark, bytes of workspace, alignments, and the problem that it was chosen for.
const MARK: u64 = 0x616c_676f_0000_0001;
/// What algorithms take where they may.
const WORKSPACE: u64 = 64 << 10;

fn add<T>(world: &mut World, to: *mut *mut T, object: Object) -> Answer {
    let id = world.handle();
    world.products.insert(id, object);
    give(to, id as *mut T).map_err(|_| CUBLAS_STATUS_INVALID_VALUE)
}

fn remove<T>(world: &mut World, id: *mut T, is_it: fn(&Object) -> bool) -> Answer {
    match world.products.get(&(id as usize)) {
        Some(object) if is_it(object) => drop(world.products.remove(&(id as usize))),
        _ => {
            world.report("an object of cuBLASLt that is none is destroyed".into());
            return Err(CUBLAS_STATUS_INVALID_VALUE);
        }
    }
    Ok(())
}

/// An attribute of so many bytes.
fn read<T: Copy>(world: &mut World, value: *const c_void, n: usize) -> Answer<T> {
    if value.is_null() || n != size_of::<T>() {
        world.report(format!("an attribute of cuBLASLt in {n} bytes"));
        return Err(CUBLAS_STATUS_INVALID_VALUE);
    }
    // SAFETY: the caller's value, of as many bytes.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

fn refuse<T>(world: &mut World, status: CUresult, text: String) -> Answer<T> {
    world.report(format!("cuBLASLt: {text}"));
    Err(status)
}

/// The product that is described, at addresses 0.
fn described(
    world: &mut World,
    desc: cublasLtMatmulDesc_t,
    layouts: [cublasLtMatrixLayout_t; 4],
) -> Answer<Shape> {
    let Some(Object::Desc(compute, scale, transposed)) = world.products.get(&(desc as usize)).cloned() else {
        return refuse(world, CUBLAS_STATUS_INVALID_VALUE, "no description".into());
    };
    let mut matrices = [Matrix::default(); 4];
    for (matrix, layout) in matrices.iter_mut().zip(layouts) {
        match world.products.get(&(layout as usize)) {
            Some(Object::Layout(found)) => *matrix = *found,
            _ => return refuse(world, CUBLAS_STATUS_INVALID_VALUE, "no layout".into()),
        }
    }
    let shape = Shape { matrices, transposed };
    if compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F {
        return refuse(
            world,
            CUBLAS_STATUS_NOT_SUPPORTED,
            format!("computing in {compute:?}, scaled in {scale:?}"),
        );
    }
    match shape.problem() {
        Some(problem) => refuse(world, CUBLAS_STATUS_INVALID_VALUE, problem),
        None => Ok(shape),
    }
}

/// The card whose context is the thread's, which must be the library's.
fn card(world: &mut World, handle: cublasLtHandle_t) -> Answer<usize> {
    let current = world.current().map_err(|_| CUBLAS_STATUS_NOT_INITIALIZED)?;
    match world.products.get(&(handle as usize)) {
        Some(Object::Library(device)) if *device == current => Ok(current),
        _ => refuse(world, CUBLAS_STATUS_NOT_INITIALIZED, "a handle of another card, or none".into()),
    }
}

api! {
    cublasLtCreate(handle: *mut cublasLtHandle_t) |world| {
        let device = world.current().map_err(|_| CUBLAS_STATUS_NOT_INITIALIZED)?;
        world.not_capturing().map_err(|_| CUBLAS_STATUS_NOT_INITIALIZED)?;
        if world.config.products == Products::Closed {
            return Err(CUBLAS_STATUS_NOT_INITIALIZED);
        }
        add(world, handle, Object::Library(device))
    };
    cublasLtDestroy(handle: cublasLtHandle_t) |world| {
        card(world, handle)?;
        remove(world, handle, |object| matches!(object, Object::Library(_)))
    };
    cublasLtGetProperty(property: libraryPropertyType, value: *mut c_int) |world| {
        let _ = world;
        let found = if property == MAJOR_VERSION { crate::nvrtc::release() } else { 0 };
        give(value, found).map_err(|_| CUBLAS_STATUS_INVALID_VALUE)
    };
    cublasLtMatmulDescCreate(desc: *mut cublasLtMatmulDesc_t, compute: cublasComputeType_t, scale: cudaDataType) |world| {
        add(world, desc, Object::Desc(compute, scale, [CUBLAS_OP_N; 2]))
    };
    cublasLtMatmulDescDestroy(desc: cublasLtMatmulDesc_t) |world| {
        remove(world, desc, |object| matches!(object, Object::Desc(..)))
    };
    cublasLtMatmulDescSetAttribute(desc: cublasLtMatmulDesc_t, attribute: cublasLtMatmulDescAttributes_t,
        value: *const c_void, n: usize) |world| {
        let value = read::<c_int>(world, value, n)?;
        match (world.products.get_mut(&(desc as usize)), attribute) {
            (Some(Object::Desc(_, _, ops)), CUBLASLT_MATMUL_DESC_TRANSA) => ops[0] = value,
            (Some(Object::Desc(_, _, ops)), CUBLASLT_MATMUL_DESC_TRANSB) => ops[1] = value,
            _ => return refuse(world, CUBLAS_STATUS_INVALID_VALUE, format!("attribute {attribute:?} of a description")),
        }
        Ok(())
    };
    cublasLtMatrixLayoutCreate(layout: *mut cublasLtMatrixLayout_t, dtype: cudaDataType, rows: u64, cols: u64, ld: i64) |world| {
        let matrix = Matrix { at: 0, dtype, rows: rows as usize, cols: cols as usize, ld: ld as usize };
        add(world, layout, Object::Layout(matrix))
    };
    cublasLtMatrixLayoutDestroy(layout: cublasLtMatrixLayout_t) |world| {
        remove(world, layout, |object| matches!(object, Object::Layout(_)))
    };
    cublasLtMatmulPreferenceCreate(preference: *mut cublasLtMatmulPreference_t) |world| {
        add(world, preference, Object::Preference(0, [256; 4]))
    };
    cublasLtMatmulPreferenceDestroy(preference: cublasLtMatmulPreference_t) |world| {
        remove(world, preference, |object| matches!(object, Object::Preference(..)))
    };
    cublasLtMatmulPreferenceSetAttribute(preference: cublasLtMatmulPreference_t,
        attribute: cublasLtMatmulPreferenceAttributes_t, value: *const c_void, n: usize) |world| {
        let mut new = match world.products.get(&(preference as usize)) {
            Some(Object::Preference(bytes, alignments)) => (*bytes, *alignments),
            _ => return refuse(world, CUBLAS_STATUS_INVALID_VALUE, "no preference".into()),
        };
        match attribute {
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES => new.0 = read(world, value, n)?,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES => new.1[0] = read(world, value, n)?,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES => new.1[1] = read(world, value, n)?,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES => new.1[2] = read(world, value, n)?,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES => new.1[3] = read(world, value, n)?,
            _ => return refuse(world, CUBLAS_STATUS_INVALID_VALUE, format!("preference {attribute:?}")),
        }
        world.products.insert(preference as usize, Object::Preference(new.0, new.1));
        Ok(())
    };
    cublasLtMatmulAlgoGetHeuristic(handle: cublasLtHandle_t, desc: cublasLtMatmulDesc_t, a: cublasLtMatrixLayout_t,
        b: cublasLtMatrixLayout_t, c: cublasLtMatrixLayout_t, d: cublasLtMatrixLayout_t,
        preference: cublasLtMatmulPreference_t, n: c_int, results: *mut cublasLtMatmulHeuristicResult_t,
        n_found: *mut c_int) |world| {
        card(world, handle)?;
        let shape = described(world, desc, [a, b, c, d])?;
        let Some(Object::Preference(room, alignments)) = world.products.get(&(preference as usize)).cloned() else {
            return refuse(world, CUBLAS_STATUS_INVALID_VALUE, "no preference".into());
        };
        if n <= 0 || results.is_null() {
            return refuse(world, CUBLAS_STATUS_INVALID_VALUE, format!("room for {n} answers"));
        }
        // On tensor cores only.
        let is_found = world.config.products != Products::Nothing && alignments.iter().all(|n| *n >= 16);
        give(n_found, is_found as c_int).map_err(|_| CUBLAS_STATUS_INVALID_VALUE)?;
        let workspace = if room >= WORKSPACE { WORKSPACE } else { 0 };
        let [a, b, c, d] = alignments.map(u64::from);
        let algo = [MARK, workspace, a << 48 | b << 32 | c << 16 | d, shape.hash(), 0, 0, 0, 0];
        let best = cublasLtMatmulHeuristicResult_t {
            algo: cublasLtMatmulAlgo_t { data: algo },
            workspaceSize: workspace as usize,
            state: cudarc::cublaslt::sys::cublasStatus_t::CUBLAS_STATUS_SUCCESS,
            wavesCount: 0.0,
            reserved: [0; 4],
        };
        if is_found { give(results, best).map_err(|_| CUBLAS_STATUS_INVALID_VALUE) } else { Ok(()) }
    };
    cublasLtMatmul(handle: cublasLtHandle_t, desc: cublasLtMatmulDesc_t, alpha: *const c_void, a: *const c_void,
        a_layout: cublasLtMatrixLayout_t, b: *const c_void, b_layout: cublasLtMatrixLayout_t, beta: *const c_void,
        c: *const c_void, c_layout: cublasLtMatrixLayout_t, d: *mut c_void, d_layout: cublasLtMatrixLayout_t,
        algo: *const cublasLtMatmulAlgo_t, workspace: *mut c_void, n: usize, stream: CUstream) |world| {
        let device = card(world, handle)?;
        let id = world.own_stream(stream).map_err(|_| CUBLAS_STATUS_INVALID_VALUE)?;
        let mut shape = described(world, desc, [a_layout, b_layout, c_layout, d_layout])?;
        if alpha.is_null() || beta.is_null() || algo.is_null() {
            return refuse(world, CUBLAS_STATUS_INVALID_VALUE, "no factors, or no algorithm".into());
        }
        // SAFETY: the caller's factors, floats of the host as the description specifies, and its algorithm.
        let (alpha, beta, algo) = unsafe { (*alpha.cast::<f32>(), *beta.cast::<f32>(), (*algo).data) };
        if algo[0] != MARK || algo[3] != shape.hash() {
            return refuse(world, CUBLAS_STATUS_INVALID_VALUE, "the algorithm is for another product".into());
        }
        let workspace = (workspace as u64, n);
        if (n as u64) < algo[1] || !workspace.0.is_multiple_of(16) || (n > 0 && workspace.0 == 0) {
            return refuse(world, CUBLAS_STATUS_INVALID_VALUE, format!("a workspace of {n} bytes at {:x}", workspace.0));
        }
        for (i, at) in [a as u64, b as u64, c as u64, d as u64].into_iter().enumerate() {
            shape.matrices[i].at = at;
            if !at.is_multiple_of(algo[2] >> (48 - 16 * i) & 0xffff) {
                return refuse(world, CUBLAS_STATUS_NOT_SUPPORTED, format!("matrix {i} at {at:x}"));
            }
            match world.space.bytes(at, shape.matrices[i].n_bytes()) {
                Some((owner, _)) if owner == device => {}
                _ => return refuse(world, CUBLAS_STATUS_INVALID_VALUE, format!("matrix {i} is not the card's")),
            }
        }
        if c as u64 == d as u64 && c_layout != d_layout && shape.matrices[2] != shape.matrices[3] {
            return refuse(world, CUBLAS_STATUS_INVALID_VALUE, "C and D are one, laid out in two ways".into());
        }
        world.n_products += 1;
        if world.config.products == Products::Fails(world.n_products) {
            return Err(CUBLAS_STATUS_EXECUTION_FAILED);
        }
        let product = Product { shape, alpha, beta, workspace };
        world.enqueue(id, Task::Product(Box::new(product))).map_err(|_| CUBLAS_STATUS_EXECUTION_FAILED)
    };
}
