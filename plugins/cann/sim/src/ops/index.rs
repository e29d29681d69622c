//! Rows by number: gathering, writing and repeating them. A number that is out of range is a fault of the kernel.

use super::check::*;
use super::*;
use crate::args::Args;
use crate::fault::Answer;
use crate::plan::Kernel;
use crate::tensor::{Tensor, element_bytes};
use crate::view::Run;

ops! { cann_nn;
    aclnnGatherV2(x: In, dim: i64, index: In, out: Out) "PbN" => |a| gather(a);
    aclnnIndexSelect(x: In, dim: i64, index: In, out: Out) "PbN" => |a| {
        valid(a.tensor("index")?.dims.len() <= 1, || "`index` has more than 1 dim".into())?;
        gather(a)
    };
    // The same row twice: one of the two, whichever comes last on the card.
    aclnnInplaceIndexCopy(x: Out, dim: i64, index: In, source: In) "pbn" => |a| {
        valid(a.of("index", INDEX)?.dims.len() <= 1, || "`index` has more than 1 dim".into())?;
        scatter(a, "dim", "index", "source")
    };
    aclnnInplaceScatterUpdate(x: Out, indices: In, updates: In, axis: i64) "pN" => |a| {
        scatter(a, "axis", "indices", "updates")
    };
    aclnnInplaceIndexFillTensor(x: Out, dim: i64, index: Ints, value: Num) "pbn" => |a| {
        let (t, index, value) = (a.of("x", ALL)?, a.ints("index")?.to_vec(), a.scalar("value")?);
        let dim = a.dim("dim", t.dims.len())?;
        valid(index.iter().all(|i| (0..t.dims[dim]).contains(i)), || format!("index {index:?}"))?;
        Ok(kernel(move |r| {
            index.iter().try_for_each(|i| {
                let row = row(r.args.tensor("x")?, dim, *i);
                r.write_numbers(&row, &vec![value; row.n_elements()])
            })
        }))
    };
    aclnnRepeatInterleaveIntWithDim(x: In, n: i64, dim: i64, out_size: i64, out: Out) "pbn" => |a| {
        let (t, n) = (a.of("x", ALL)?, a.int("n")?);
        let dim = a.dim("dim", t.dims.len())?;
        let mut dims = t.dims.clone();
        dims[dim] *= n.max(0);
        valid(n >= 0 && a.int("out_size")? == dims[dim], || format!("{n} times {:?}", t.dims))?;
        valid(a.shaped("out", ALL, &dims)?.dtype == t.dtype, || "another dtype".into())?;
        Ok(kernel(move |r| {
            let (x, out) = (r.args.tensor("x")?, r.args.tensor("out")?);
            (0..dims[dim]).try_for_each(|i| copy(r, &row(x, dim, i / n), &row(out, dim, i)))
        }))
    };
}

fn gather(a: &Args) -> Answer<Kernel> {
    let (x, index) = (a.of("x", ALL)?, a.of("index", INDEX)?);
    let dim = a.dim("dim", x.dims.len())?;
    let mut dims = x.dims[..dim].to_vec();
    dims.extend(&index.dims);
    dims.extend(&x.dims[dim + 1..]);
    valid(a.shaped("out", ALL, &dims)?.dtype == x.dtype, || "another dtype".into())?;
    let (outer, inner) = (count(&x.dims[..dim]), count(&x.dims[dim + 1..]));
    let (n_rows, size) = (x.dims[dim], element_bytes(x.dtype));
    Ok(kernel(move |r| {
        let ids = r.read("index")?;
        if let Some(id) = ids.iter().find(|id| **id < 0.0 || **id >= n_rows as f64) {
            return Err(r.fault(&format!("row {id} of {n_rows}")));
        }
        // Row by row: a table of embeddings is long, and few of its rows are requested.
        let x = r.args.tensor("x")?;
        let picked: Vec<_> =
            ids.iter().map(|id| r.elements(&row(x, dim, *id as i64))).collect::<Answer<_>>()?;
        let mut all = Vec::with_capacity(outer * ids.len() * inner);
        for o in 0..outer {
            picked.iter().for_each(|row| all.extend_from_slice(&row[o * inner..][..inner]));
        }
        r.write_elements(r.args.tensor("out")?, size, &all)
    }))
}

fn scatter(a: &Args, dim: &str, index: &'static str, source: &'static str) -> Answer<Kernel> {
    let (x, ids) = (a.of("x", ALL)?, a.of(index, INDEX)?);
    let dim = a.dim(dim, x.dims.len())?;
    let mut dims = x.dims.clone();
    dims[dim] = ids.n_elements() as i64;
    valid(a.shaped(source, ALL, &dims)?.dtype == x.dtype, || "another dtype".into())?;
    let (n_rows, seed) = (x.dims[dim], a.world.clone());
    Ok(kernel(move |r| {
        let (x, source) = (r.args.tensor("x")?, r.args.tensor(source)?);
        let ids = r.read(index)?;
        // Any order, so that no caller relies on one.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by_key(|i| seed.random(&[*i as u64, 7]));
        order.into_iter().try_for_each(|i| match ids[i] {
            id if id < 0.0 || id >= n_rows as f64 => Err(r.fault(&format!("row {id} of {n_rows}"))),
            id => copy(r, &row(source, dim, i as i64), &row(x, dim, id as i64)),
        })
    }))
}

fn row(t: &Tensor, dim: usize, i: i64) -> Tensor {
    let mut row = t.clone();
    row.offset += i * row.strides[dim];
    row.dims[dim] = 1;
    row
}

fn copy(r: &Run<'_>, from: &Tensor, to: &Tensor) -> Answer {
    r.write_elements(to, element_bytes(to.dtype), &r.elements(from)?)
}
