//! y[:, j, t] = w[:, :, ids[j, t]] · x[:, j mod n_x, t]: each token's chosen experts. An id outside gives zeros.
//!
//! Result: F32 [m, n_used, n_tokens] of w [k, m, n_expert], x [k, n_x, n_tokens] (n_x divides n_used) and ids I32
//! [n_used, n_tokens].

use super::{Inferred, Rules, check, mul_mat, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

#[path = "mul_mat_id_cases.rs"]
mod mul_mat_id_cases;

impl Graph {
    /// `w` [k, m, n_expert], `x` [k, a divisor of n_used, n_tokens], `ids` [n_used, n_tokens] give [m, n_used, n_tokens].
    pub fn mul_mat_id(&mut self, w: Tensor, x: Tensor, ids: Tensor) -> Tensor {
        self.push(Op::MulMatId, &[Some(w), Some(x), Some(ids)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases: mul_mat_id_cases::cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let w = check::matrix(src, 0, "w")?;
    let x = check::numbers(src, 1, "x")?;
    let ids = check::ints(src, 2, "ids")?;
    if w.ne[0] != x.ne[0] || w.ne[3] != 1 {
        return Err(format!("experts {:?} for rows {:?}", w.ne, x.ne));
    }
    let (n_used, n_tokens) = (ids.ne[0], ids.ne[1]);
    let rows_fit = n_used.is_multiple_of(x.ne[1]);
    if ids.ne[2..] != [1, 1] || x.ne[2..] != [n_tokens, 1] || !rows_fit {
        return Err(format!(
            "ids {:?} for x {:?}, expected [k, a divisor of n_used, n_tokens]",
            ids.ne, x.ne
        ));
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
