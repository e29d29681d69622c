//! y = how many elements of a and b, I32 of one shape, are equal: I64 [1]. Semantics: ggml's count_equal.
//!
//! Result: I64 [1].

use super::operand::{Layout, operand};
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Shape, Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// How many elements of `a` and `b` (I32, of one shape) are equal: I64 [1].
    pub fn count_equal(&mut self, a: Tensor, b: Tensor) -> Tensor {
        self.push(Op::CountEqual, &[Some(a), Some(b)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let (a, b) = (check::any_ints(src, 0, "a")?, check::any_ints(src, 1, "b")?);
    match a.ne == b.ne {
        true => Ok((DType::I64, [1; 4])),
        false => Err(format!("a {:?} and b {:?} differ in shape", a.ne, b.ne)),
    }
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let (a, b) = (check::arg(src, 0), check::arg(src, 1));
    let n = a.ints().iter().zip(b.ints()).filter(|(a, b)| a == b).count();
    Value::i32([1; 4], vec![n as i32])
}

fn cases() -> Vec<Case> {
    let case = |ne: Shape, of_a, of_b| {
        Case::new(format!("{ne:?}, {of_a:?} and {of_b:?}"), |g, ints| {
            let a = operand(g, "a", DType::I32, ne, of_a);
            let b = operand(g, "b", DType::I32, ne, of_b);
            for (t, every) in [(a, 5), (b, 3)] {
                let owner = g.owner(t);
                let n = g.def(owner).n_elems() as i32;
                ints.push((owner, (0..n).map(|i| i * 7 % every).collect()));
            }
            g.count_equal(a, b);
        })
    };
    let mut cases = vec![];
    for ne in [
        [4, 500, 1, 1],
        [33, 7, 3, 2],
        [1, 1, 1, 1],
        [5001, 1, 1, 1],
        [1, 4500, 1, 1],
        [0, 3, 1, 1],
        [3, 0, 1, 1],
    ] {
        cases.push(case(ne, Layout::Dense, Layout::Dense));
    }
    for of_a in Layout::ALL {
        for of_b in Layout::STRIDED {
            cases.push(case([12, 6, 4, 2], of_a, of_b));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, ints};
    use super::*;

    #[test]
    fn equal_elements_in_equal_places_count() {
        let build = |g: &mut Graph| {
            let a = g.input("a", DType::I32, &[4]);
            let b = g.input("b", DType::I32, &[4]);
            g.count_equal(a, b)
        };
        check(build, &[("a", ints(&[1, 2, 3, 4])), ("b", ints(&[1, 3, 3, 0]))], &[2.]);
    }
}
