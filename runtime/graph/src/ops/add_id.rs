//! y = a [n, n_used, n_tokens] + rows of b [n, n_expert]: row j of token t gets row ids[j, t]. An id outside of b adds
//! nothing. Computed in f32, in the dtype of a. Semantics: ggml's add_id (which stops at ids outside of b).
//!
//! Result: dtype and shape of a. a and b are F32, F16 or BF16, ids are I32.

use super::operand::{Layout, NUMBERS, operand, rounding};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// `a` [n, n_used, n_tokens] plus the rows of `b` [n, n_expert] that `ids` (I32 [n_used, n_tokens]) name.
    pub fn add_id(&mut self, a: Tensor, b: Tensor, ids: Tensor) -> Tensor {
        self.push(Op::AddId, &[Some(a), Some(b), Some(ids)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (a, b) = (check::numbers(src, 0, "a")?, check::numbers(src, 1, "b")?);
    let ids = check::any_ints(src, 2, "ids")?;
    let [n, n_used, n_tokens, ne3] = a.ne;
    if ne3 != 1 || b.ne != [n, b.ne[1], 1, 1] || ids.ne != [n_used, n_tokens, 1, 1] {
        return Err(format!(
            "a {:?}, b {:?} and ids {:?}, expected [n, n_used, n_tokens], [n, n_expert] and [n_used, n_tokens]",
            a.ne, b.ne, ids.ne
        ));
    }
    Ok((a.dtype, a.ne))
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (a, b, ids) = (check::arg(src, 0), check::arg(src, 1), check::arg(src, 2));
    let mut y = Vec::with_capacity(a.floats().len());
    for (i, &id) in ids.ints().iter().enumerate() {
        match usize::try_from(id).ok().filter(|&id| id < b.n_rows()) {
            Some(id) => y.extend(a.row(i).iter().zip(b.row(id)).map(|(a, b)| a + b)),
            None => y.extend(a.row(i)),
        }
    }
    Value::f32(a.ne, y)
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for (n, n_used, n_tokens, n_expert) in [
        (64, 2, 5, 4),
        (33, 4, 7, 8),
        (1, 1, 1, 1),
        (1030, 2, 3, 128),
        (7, 3, 0, 4),
        (0, 2, 3, 4),
        (16, 1, 9, 3),
    ] {
        for dtype in NUMBERS {
            let name = format!("{dtype} [{n}, {n_used}, {n_tokens}], {n_expert} experts");
            cases.push(
                Case::new(name, |g, ints| {
                    let a = g.input("a", dtype, &[n, n_used, n_tokens]);
                    let b = g.input("b", dtype, &[n, n_expert]);
                    let ids = g.input("ids", DType::I32, &[n_used, n_tokens]);
                    ints.push((ids, ids_of(n_used * n_tokens, n_expert)));
                    g.add_id(a, b, ids);
                })
                .nmse(rounding(dtype)),
            );
        }
    }
    for of_a in Layout::ALL {
        for of_b in [Layout::Dense, Layout::Sliced, Layout::Transposed] {
            for of_ids in [Layout::Dense, Layout::Sliced, Layout::Transposed] {
                cases.push(Case::new(format!("a {of_a:?}, b {of_b:?}, ids {of_ids:?}"), |g, ints| {
                    let a = operand(g, "a", DType::F32, [20, 4, 6, 1], of_a);
                    let b = operand(g, "b", DType::F32, [20, 5, 1, 1], of_b);
                    let ids = operand(g, "ids", DType::I32, [4, 6, 1, 1], of_ids);
                    let owner = g.owner(ids);
                    ints.push((owner, ids_of(g.def(owner).n_elems(), 5)));
                    g.add_id(a, b, ids);
                }));
            }
        }
    }
    cases.push(Case::new("ids outside of b add nothing", |g, ints| {
        let a = g.input("a", DType::F32, &[20, 2, 2]);
        let b = g.input("b", DType::F32, &[20, 3]);
        let ids = g.input("ids", DType::I32, &[2, 2]);
        ints.push((ids, vec![-1, 3, 2, i32::MAX]));
        g.add_id(a, b, ids);
    }));
    cases
}

/// `n` ids that jump about.
fn ids_of(n: u64, n_expert: u64) -> Vec<i32> {
    (0..n).map(|i| (i * 7 % 11 % n_expert) as i32).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats, ints};
    use super::*;

    #[test]
    fn each_row_gets_the_bias_of_its_expert() {
        let build = |g: &mut Graph| {
            let a = g.input("a", DType::F32, &[2, 2, 1]);
            let b = g.input("b", DType::F32, &[2, 3]);
            let ids = g.input("ids", DType::I32, &[2, 1]);
            g.add_id(a, b, ids)
        };
        let b = floats(&[10., 20., 30., 40., 50., 60.]);
        let inputs = [("a", floats(&[1., 2., 3., 4.])), ("b", b), ("ids", ints(&[2, 0]))];
        check(build, &inputs, &[51., 62., 13., 24.]);
    }
}
