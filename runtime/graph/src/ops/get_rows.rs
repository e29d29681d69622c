//! y[:, i] = table[:, ids[i]], as F32, or I32 from an I32 table, as ggml's get_rows; dims 2 and 3 of the table are
//! batches, each with its own ids. An id outside the table gives a row of zeros.
//!
//! Result: F32 (I32 of an I32 table), [n, n_ids, ne2, ne3] of table [n, m, ne2, ne3] and ids I32 [n_ids, ne2, ne3].

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, value::Data, value::Value};
use crate::graph::Graph;
use crate::quant;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Rows of `table` [n, m, b, c] picked by `ids` [k, b, c]: [n, k, b, c], I32 if the table is, otherwise F32.
    pub fn get_rows(&mut self, table: Tensor, ids: Tensor) -> Tensor {
        self.push(Op::GetRows, &[Some(table), Some(ids)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (table, dtype) = match check::given(src, 0, "table")?.dtype {
        DType::I32 => (check::ints(src, 0, "table")?, DType::I32),
        _ => (check::decodable(src, 0, "table")?, DType::F32),
    };
    let ids = check::ints(src, 1, "ids")?;
    if ids.ne[1] != table.ne[2] || ids.ne[2] != table.ne[3] || ids.ne[3] != 1 {
        return Err(format!("ids {:?} for a table of {:?}", ids.ne, table.ne));
    }
    Ok((dtype, [table.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (table, ids) = (check::arg(src, 0), check::arg(src, 1));
    let numbers = match &table.data {
        Data::Blocks { floats, .. } => &Value::f32(table.ne, floats.clone()),
        _ => table,
    };
    let ne = [table.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]];
    moves::gather(ne, &[numbers], |[i0, i, b, c]| {
        let id = ids.ints()[((c * ne[2] + b) * ne[1] + i) as usize];
        match u64::try_from(id) {
            Ok(id) if id < table.ne[1] => From::Source(0, [i0, id, b, c]),
            _ => From::Number(0.0),
        }
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for &dtype in DType::ALL.iter().filter(|&&t| quant::is_supported(t)) {
        cases.push(Case::new(format!("rows of a {dtype} table"), |g, ints| {
            let table = g.weight("table", dtype, &[512, 7], Role::Embedding);
            let ids = g.input("ids", DType::I32, &[4]);
            ints.push((ids, vec![6, 0, 3, 3]));
            g.get_rows(table, ids);
        }));
    }
    for &dtype in DType::ALL.iter().filter(|&&t| quant::is_supported(t)) {
        cases.push(Case::new(format!("batches and rows in part, {dtype}"), |g, ints| {
            let table = g.state("table", dtype, &[512, 4, 3, 2], Role::KCache);
            let table = g.slice(table, 0, 256, 256);
            let ids = g.input("ids", DType::I32, &[5, 3, 2]);
            ints.push((ids, (0..30).map(|i| i * i % 5 - i / 29).collect()));
            g.get_rows(table, ids);
        }));
    }
    for (n, m, k, b, c) in
        [(1, 1, 1, 1, 1), (1, 9, 4, 1, 1), (3, 5, 7, 2, 1), (80, 7, 3, 2, 3), (1500, 3, 5, 1, 2)]
    {
        for dtype in [DType::F32, DType::I32, DType::F16, DType::BF16] {
            cases.push(Case::new(
                format!("{k} of {m} rows of {n} {dtype}, {b} by {c} batches"),
                |g, ints| {
                    let table = g.input("table", dtype, &[n, m, b, c]);
                    if dtype == DType::I32 {
                        ints.push((table, (0..(n * m * b * c) as i32).map(|i| i * 9973 - 7).collect()));
                    }
                    let ids = g.input("ids", DType::I32, &[k, b, c]);
                    ints.push((ids, (0..(k * b * c) as i32).map(|i| i * 5 % m as i32).collect()));
                    g.get_rows(table, ids);
                },
            ));
        }
    }
    cases.push(Case::new("ids outside an I32 table give zeros", |g, ints| {
        let table = g.input("table", DType::I32, &[2, 3]);
        ints.push((table, vec![1, 2, 3, 4, 5, 6]));
        let ids = g.input("ids", DType::I32, &[4]);
        ints.push((ids, vec![2, -1, 3, i32::MAX]));
        g.get_rows(table, ids);
    }));
    cases.push(Case::new("one id of a table with one row of one element", |g, ints| {
        let table = g.weight("table", DType::F32, &[1, 1], Role::Embedding);
        let ids = g.input("ids", DType::I32, &[1]);
        ints.push((ids, vec![0]));
        g.get_rows(table, ids);
    }));
    cases.push(Case::new("batches with their own ids", |g, ints| {
        let table = g.input("table", DType::F32, &[5, 4, 3, 2]);
        let ids = g.input("ids", DType::I32, &[2, 3, 2]);
        ints.push((ids, vec![0, 1, 2, 3, 3, 3, 1, 0, 2, 2, 0, 3]));
        g.get_rows(table, ids);
    }));
    cases.push(Case::new("strided table and strided ids", |g, ints| {
        let table = g.input("table", DType::F32, &[32, 9]);
        let part = g.slice(table, 0, 8, 16);
        let ids = g.input("ids", DType::I32, &[8]);
        let some = g.slice(ids, 0, 3, 4);
        ints.push((ids, vec![0, 1, 2, 8, 7, 6, 5, 4]));
        g.get_rows(part, some);
    }));
    cases.push(Case::new("ids outside the table give zeros", |g, ints| {
        let table = g.weight("table", DType::F32, &[8, 3], Role::Embedding);
        let ids = g.input("ids", DType::I32, &[3]);
        ints.push((ids, vec![-1, 2, 3]));
        g.get_rows(table, ids);
    }));
    cases
}
