//! y[i, j] = x[i] where i = j, else 0, as ggml's diag.
//!
//! Result: dtype of x (any plain one), [n, n, ne2, ne3] of x [n, 1, ne2, ne3].

use super::moves::{self, From};
use super::{Inferred, Rules, case::Case, check, copy_cases, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::Op;

impl Graph {
    /// Matrices [n, n, ...] with the rows of `x` [n, 1, ...] on their diagonals.
    pub fn diag(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Diag, &[Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let x = moves::plain(src, 0, "x")?;
    match x.ne[1] {
        1 => Ok((x.dtype, [x.ne[0], x.ne[0], x.ne[2], x.ne[3]])),
        _ => Err(format!("x {:?} is no vector, nor several along dims 2 and 3", x.ne)),
    }
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let x = check::arg(src, 0);
    let ne = [x.ne[0], x.ne[0], x.ne[2], x.ne[3]];
    moves::gather(ne, &[x], |[i0, i1, i2, i3]| match i0 == i1 {
        true => From::Source(0, [i0, 0, i2, i3]),
        false => From::Number(0.0),
    })
}

fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for dtype in copy_cases::PLAIN {
        for ne in [[10, 1, 4, 3], [1, 1, 1, 1], [130, 1, 1, 1], [7, 1, 1, 2]] {
            cases.push(Case::new(format!("{dtype} {ne:?}"), |g, ints| {
                let x = copy_cases::operand(g, ints, dtype, dtype, &ne);
                g.diag(x);
            }));
        }
        cases.push(Case::new(format!("{dtype}, columns"), |g, ints| {
            let x = copy_cases::operand(g, ints, dtype, dtype, &[3, 9]);
            let x = g.permute(x, [1, 2, 0, 3]); // [9, 1, 3]
            g.diag(x);
        }));
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::tests::{check, floats};
    use llmrt_abi::DType;

    #[test]
    fn a_vector_becomes_a_diagonal_matrix() {
        let build = |g: &mut Graph| {
            let x = g.input("x", DType::F32, &[3]);
            g.diag(x)
        };
        check(build, &[("x", floats(&[1., 2., 3.]))], &[1., 0., 0., 0., 2., 0., 0., 0., 3.]);
    }
}
