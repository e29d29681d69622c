//! FRACTAL_NZ: a [k, n] matrix as blocks of 16 rows and 32 bytes, blocks of a column of blocks first.

use super::check::*;
use super::*;
use crate::fault::Answer;
use crate::tensor::{Tensor, bits, element_bytes};

/// Elements of 32 bytes.
fn c0(dtype: aclDataType) -> i64 {
    256 / bits(dtype).unwrap_or(8) as i64
}

/// Calls `f` with the place of every element. A view whose last two strides are turned around is of the turned matrix.
pub fn for_each(t: &Tensor, mut f: impl FnMut(i64)) {
    let rank = t.dims.len();
    if rank < 2 {
        return (0..t.n_elements() as i64).for_each(f);
    }
    let turned = is_turned(t) && crate::world::world().config.keeps("nz-turned");
    let (rows, cols) = (t.dims[rank - 2], t.dims[rank - 1]);
    let (k, n) = if turned { (cols, rows) } else { (rows, cols) };
    let (c0, k16) = (c0(t.dtype), (k + 15) / 16 * 16);
    let each = (n + c0 - 1) / c0 * k16 * c0;
    for matrix in 0..count(&t.dims[..rank - 2]) as i64 {
        for row in 0..rows {
            for col in 0..cols {
                let (i, j) = if turned { (col, row) } else { (row, col) };
                f(t.offset + matrix * each + (j / c0 * k16 + i) * c0 + j % c0);
            }
        }
    }
}

fn is_turned(t: &Tensor) -> bool {
    let rank = t.dims.len();
    t.strides[rank - 2] == 1 && t.dims[rank - 1] > 1 && t.strides[rank - 1] != 1
}

/// The storage of a weight has the dims of its blocks: (n1, k1, k0, n0), of a view that is turned around (k1, n1, n0, k0), with k0
/// and n0 of 16 for F16 and BF16 (ops-nn 9.1.0, the page of aclnnMatmulWeightNz).
pub fn check_storage(t: &Tensor) -> Answer {
    let (c0, rank) = (c0(t.dtype), t.dims.len());
    valid(rank >= 2, || "less than 2 dims".into())?;
    let (rows, cols) = (t.dims[rank - 2], t.dims[rank - 1]);
    let (k, n) = if is_turned(t) { (cols, rows) } else { (rows, cols) };
    let expected = [&t.dims[..rank - 2], &[(n + c0 - 1) / c0, (k + 15) / 16, 16, c0]].concat();
    valid(t.storage == expected, || format!("storage of {:?}, expected {expected:?}", t.storage))
}

/// Elements of the blocks of a matrix, padding included.
fn elements(dims: &[i64], dtype: aclDataType) -> Option<u64> {
    let (batch, [k, n]) = dims.split_last_chunk()?;
    let c0 = c0(dtype);
    Some(((k + 15) / 16 * 16 * ((n + c0 - 1) / c0 * c0) * batch.iter().product::<i64>()) as u64)
}

pub(super) use trans::ROWS;

mod trans {
    use super::*;
    ops! { cann_nn;
        // In place: the memory has to have room for the padding.
        aclnnTransMatmulWeight(weight: Out) "P" => |a| {
            let t = a.whole("weight")?.clone();
            crate::fault::ensure(a.world.chip.nz, ACLNN_ERR_RUNTIME_ERROR, || "no such layout on this chip".into())?;
            a.of("weight", &[ACL_FLOAT16, ACL_BF16, ACL_INT8])?;
            let room = elements(&t.dims, t.dtype);
            valid(room.is_some(), || "less than 2 dims".into())?;
            let size = element_bytes(t.dtype);
            Ok(kernel(move |r| {
                let t = r.args.tensor("weight")?;
                let n = room.unwrap_or(0) as i64;
                let values = r.elements(t)?;
                let flat = Tensor { dims: vec![n], strides: vec![1], storage: vec![n], ..t.clone() };
                let blocks = Tensor { format: ACL_FORMAT_FRACTAL_NZ, storage: vec![n], ..t.clone() };
                r.write_elements(&flat, size, &vec![[0; 8]; n as usize])?;
                r.write_elements(&blocks, size, &values)
            }))
        };
    }
}

/// One phase: elements, and not bytes.
#[unsafe(export_name = "llmrt_sim_aclnnCalculateMatmulWeightSizeV2")]
unsafe extern "C" fn aclnnCalculateMatmulWeightSizeV2(shape: Ints, dtype: aclDataType, n: *mut u64) -> i32 {
    crate::world::call("aclnnCalculateMatmulWeightSizeV2", |w| {
        crate::fault::ensure(w.chip.nz, ACLNN_ERR_RUNTIME_ERROR, || "no such layout on this chip".into())?;
        let dims = w.objects.ints.get(shape as usize);
        let size = dims.and_then(|dims| elements(&dims, dtype));
        match size {
            Some(size) => crate::world::put(n, size),
            None => crate::fault::fault(ACLNN_ERR_PARAM_INVALID, "no shape of 2 dims or more"),
        }
    })
}

/// Fills the header's table.
pub(crate) fn fill(table: &mut cann_nn) {
    trans::fill(table);
    table.aclnnCalculateMatmulWeightSizeV2 = Some(aclnnCalculateMatmulWeightSizeV2);
}
