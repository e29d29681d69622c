//! y[:, j, t] = w[:, :, ids[j, t]] · x[:, j mod n_x, t]: each token's chosen experts. An id outside gives zeros.

use super::{
    Inferred, Rules,
    case::{self, Case},
    check, mul_mat,
    value::Value,
};
use crate::graph::Graph;
use crate::tensor::{Role, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// `w` [k, m, n_expert], `x` [k, 1 or n_used, n_tokens], `ids` [n_used, n_tokens] give [m, n_used, n_tokens].
    pub fn mul_mat_id(&mut self, w: Tensor, x: Tensor, ids: Tensor) -> Tensor {
        self.push(Op::MulMatId, &[Some(w), Some(x), Some(ids)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let w = check::decodable(src, 0, "w")?;
    let x = check::floats(src, 1, "x")?;
    let ids = check::ints(src, 2, "ids")?;
    if w.ne[0] != x.ne[0] || w.ne[3] != 1 {
        return Err(format!("experts {:?} for rows {:?}", w.ne, x.ne));
    }
    let (n_used, n_tokens) = (ids.ne[0], ids.ne[1]);
    if ids.ne[2..] != [1, 1] || x.ne[2..] != [n_tokens, 1] || (x.ne[1] != 1 && x.ne[1] != n_used) {
        return Err(format!("ids {:?} for x {:?}, expected [k, 1 or n_used, n_tokens]", ids.ne, x.ne));
    }
    Ok((DType::F32, [w.ne[1], n_used, n_tokens, 1]))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (w, x, ids) = (check::arg(src, 0), check::arg(src, 1), check::arg(src, 2));
    let (m, n_expert) = (w.ne[1] as usize, w.ne[2] as usize);
    let (n_used, n_x) = (ids.ne[0] as usize, x.ne[1] as usize);
    let mut y = Vec::with_capacity(m * ids.ints().len());
    for (i, &id) in ids.ints().iter().enumerate() {
        let (token, j) = (i / n_used, i % n_used);
        let x_row = x.row(token * n_x + j % n_x);
        match usize::try_from(id) {
            Ok(id) if id < n_expert => y.extend((0..m).map(|i| mul_mat::dot(w.row(id * m + i), x_row))),
            _ => y.resize(y.len() + m, 0.0),
        }
    }
    Value::f32([w.ne[1], ids.ne[0], ids.ne[1], 1], y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in case::weight_dtypes() {
        let nmse = mul_mat::limit(dtype);
        for n_x in [1, 2] {
            cases.push(
                Case::new(format!("two of four {dtype} experts, {n_x} rows per token"), |g, ints| {
                    let w = g.weight("w", dtype, &[256, 6, 4], Role::Experts);
                    let x = g.input("x", DType::F32, &[256, n_x, 3]);
                    let ids = g.input("ids", DType::I32, &[2, 3]);
                    ints.push((ids, vec![3, 0, 1, 2, 0, 1]));
                    g.mul_mat_id(w, x, ids);
                })
                .nmse(nmse),
            );
        }
    }
    cases.push(Case::new("all tokens choose one expert of eight", |g, ints| {
        let w = g.weight("w", DType::F32, &[17, 5, 8], Role::Experts);
        let x = g.input("x", DType::F32, &[17, 1, 9]);
        let ids = g.input("ids", DType::I32, &[1, 9]);
        ints.push((ids, vec![6; 9]));
        g.mul_mat_id(w, x, ids);
    }));
    cases.push(Case::new("one token, ids a part of a longer row", |g, ints| {
        let w = g.weight("w", DType::F16, &[32, 7, 5], Role::Experts);
        let x = g.input("x", DType::F32, &[32, 2, 2]);
        let ids = g.input("ids", DType::I32, &[5, 2]);
        let used = g.slice(ids, 0, 0, 2);
        ints.push((ids, vec![4, 1, 0, 2, 3, 0, 3, 2, 1, 4]));
        g.mul_mat_id(w, x, used);
    }));
    cases
}
