//! Bytes of memory that a kernel reads and writes, each tensor once; of tensors from which rows are picked, those rows.

use crate::args::{Args, Value};
use crate::tensor::{Tensor, bits};

/// Bytes that an operator with these parameters moves.
pub fn bytes(args: &Args) -> u64 {
    let mut tensors: Vec<&Tensor> = Vec::new();
    for (_, value) in &args.values {
        match value {
            Value::Tensor(t) => tensors.push(t),
            Value::List(all) => tensors.extend(all),
            _ => {}
        }
    }
    let sum = |tensors: &[&Tensor]| tensors.iter().map(|t| size(t)).sum::<u64>();
    match args.op.name {
        // What is picked is read and written.
        "aclnnGatherV2" | "aclnnIndexSelect" => {
            sum(&tensors[1..]) + tensors.last().map_or(0, |out| size(out))
        }
        "aclnnInplaceIndexCopy" | "aclnnInplaceScatterUpdate" => {
            sum(&tensors[1..]) + size(rows(args, &tensors))
        }
        _ => match (args.opt("block_table_opt"), lens(args)) {
            (Some(_), Some(lens)) => sum(&tensors) - sum(&caches(args)) + cached(args, lens),
            _ => sum(&tensors),
        },
    }
}

fn size(t: &Tensor) -> u64 {
    t.n_elements() as u64 * bits(t.dtype).unwrap_or(0) as u64 / 8
}

/// The rows that are written.
fn rows<'a>(args: &'a Args, tensors: &[&'a Tensor]) -> &'a Tensor {
    args.opt("source").or(args.opt("updates")).unwrap_or(tensors[0])
}

fn lens(args: &Args) -> Option<&[i64]> {
    args.ints("seq_lens_kv_opt").or_else(|_| args.ints("seq_lens_opt")).ok()
}

fn caches(args: &Args) -> Vec<&Tensor> {
    ["key", "value"].into_iter().filter_map(|name| args.list(name).ok()).flatten().collect()
}

/// Keys and values of the lengths of all sequences.
fn cached(args: &Args, lens: &[i64]) -> u64 {
    let n_slots = |t: &Tensor| (t.dims[0] * args.int("block_size").unwrap_or(1)).max(1) as u64;
    let n_keys = lens.iter().sum::<i64>() as u64;
    caches(args).into_iter().map(|t| size(t) / n_slots(t) * n_keys).sum()
}
