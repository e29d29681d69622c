//! Order: equal values come in any order, so that no caller relies on one.

use super::check::*;
use super::*;
use crate::world::World;

ops! { cann_math;
    aclnnArgsort(x: In, dim: i64, descending: bool, out: Out) "PbN" => |a| {
        let dims = a.of("x", NUMBERS)?.dims.clone();
        let (dim, descending) = (a.dim("dim", dims.len())?, a.int("descending")? != 0);
        tiles(dim + 1 == dims.len(), || "the simulator sorts the last dim only".into())?;
        a.shaped("out", &[ACL_INT64], &dims)?;
        let n = dims[dim].max(1) as usize;
        Ok(kernel(move |r| {
            let x = r.read("x")?;
            let order: Vec<f64> = x.chunks_exact(n).flat_map(|row| sorted(r.world, row, descending)).map(|i| i as f64).collect();
            r.write("out", &order)
        }))
    };
    aclnnTopk(x: In, k: i64, dim: i64, largest: bool, sorted: bool, values: Out, indices: Out) "PbN" => |a| {
        let mut dims = a.of("x", NUMBERS)?.dims.clone();
        let (k, dim, largest) = (a.int("k")?, a.dim("dim", dims.len())?, a.int("largest")? != 0);
        tiles(dim + 1 == dims.len(), || "the simulator sorts the last dim only".into())?;
        valid((0..=dims[dim]).contains(&k), || format!("{k} of {}", dims[dim]))?;
        let n = dims[dim].max(1) as usize;
        dims[dim] = k;
        a.shaped("values", NUMBERS, &dims)?;
        a.shaped("indices", &[ACL_INT64], &dims)?;
        let (k, in_order) = (k as usize, a.int("sorted")? != 0);
        Ok(kernel(move |r| {
            let x = r.read("x")?;
            let (mut values, mut indices) = (Vec::new(), Vec::new());
            for row in x.chunks_exact(n) {
                let mut best = super::sorted(r.world, row, largest);
                best.truncate(k);
                if !in_order {
                    best.sort_by_key(|i| r.world.random(&[*i as u64, 3]));
                }
                values.extend(best.iter().map(|i| row[*i]));
                indices.extend(best.iter().map(|i| *i as f64));
            }
            r.write("values", &values)?;
            r.write("indices", &indices)
        }))
    };
}

fn sorted(w: &World, row: &[f64], descending: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by_key(|i| w.random(&[*i as u64, 5]));
    order.sort_by(|i, j| if descending { row[*j].total_cmp(&row[*i]) } else { row[*i].total_cmp(&row[*j]) });
    order
}
