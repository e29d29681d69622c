//! y[:, i] = table[:, ids[i]], as F32; dims 2 and 3 of the table are batches, each with its own ids.
//! An id outside the table gives a row of zeros.

use super::{
    Inferred, Rules,
    case::{self, Case},
    check,
    value::Value,
};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Rows of `table` [n, m, b, c] picked by `ids` [k, b, c]: [n, k, b, c], always F32.
    pub fn get_rows(&mut self, table: Tensor, ids: Tensor) -> Tensor {
        self.push(Op::GetRows, &[Some(table), Some(ids)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let table = check::decodable(src, 0, "table")?;
    let ids = check::ints(src, 1, "ids")?;
    if ids.ne[1] != table.ne[2] || ids.ne[2] != table.ne[3] || ids.ne[3] != 1 {
        return Err(format!("ids {:?} for a table of {:?}", ids.ne, table.ne));
    }
    Ok((DType::F32, [table.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (table, ids) = (check::arg(src, 0), check::arg(src, 1));
    let (n, m, k) = (table.ne[0] as usize, table.ne[1] as usize, ids.ne[0] as usize);
    let mut y = Vec::with_capacity(n * ids.ints().len());
    for (i, &id) in ids.ints().iter().enumerate() {
        let batch = i / k;
        match usize::try_from(id) {
            Ok(id) if id < m => y.extend_from_slice(table.row(batch * m + id)),
            _ => y.resize(y.len() + n, 0.0),
        }
    }
    Value::f32([table.ne[0], ids.ne[0], ids.ne[1], ids.ne[2]], y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in case::weight_dtypes() {
        cases.push(Case::new(format!("rows of a {dtype} table"), |g, ints| {
            let table = g.weight("table", dtype, &[512, 7], Role::Embedding);
            let ids = g.input("ids", DType::I32, &[4]);
            ints.push((ids, vec![6, 0, 3, 3]));
            g.get_rows(table, ids);
        }));
    }
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
