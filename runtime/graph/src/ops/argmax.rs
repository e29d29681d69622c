//! y = index of the largest element of each row, I32; of equal ones the first. NaN counts as less than every number.
//! ggml's argmax, which leaves open which of equal elements it is: its CPU gives the last.
//!
//! Result: I32 [ne1, ne2, ne3] of x F32 [n, ne1, ne2, ne3].

use super::sum_rows::row_cases;
use super::{Inferred, Rules, case::Case, check, value::Value};
use crate::graph::Graph;
use crate::tensor::{Tensor, TensorDef};
use llmrt_abi::{DType, Op};

impl Graph {
    /// Indices of the largest elements of the rows of `x` [n, a, b, c]: I32 [a, b, c].
    pub fn argmax(&mut self, x: Tensor) -> Tensor {
        self.push(Op::Argmax, &[Some(x)], &[])
    }
}

pub(super) const RULES: Rules = Rules { infer, reference, decompose: None, cases };

fn infer(src: &[Option<&TensorDef>], _params: &[u8]) -> Inferred {
    let [n, ne1, ne2, ne3] = check::any_floats(src, 0, "x")?.ne;
    let has_largest = n > 0 || [ne1, ne2, ne3].contains(&0);
    match has_largest && n <= i32::MAX as u64 {
        true => Ok((DType::I32, [ne1, ne2, ne3, 1])),
        false => Err(format!("rows of {n}, expected 1 to 2^31 - 1 elements")),
    }
}

fn reference(src: &[Option<&Value>], _params: &[u8]) -> Value {
    let x = check::arg(src, 0);
    let largest = |i| {
        let row: &[f32] = x.row(i);
        let mut best = 0;
        for (i, v) in row.iter().enumerate() {
            if *v > row[best] || (row[best].is_nan() && !v.is_nan()) {
                best = i;
            }
        }
        best as i32
    };
    Value::i32([x.ne[1], x.ne[2], x.ne[3], 1], (0..x.n_rows()).map(largest).collect())
}

fn cases() -> Vec<Case> {
    let of_equal = |scale: f32| {
        Case::new(format!("equal elements, {scale}"), |g, _| {
            let x = g.input("x", DType::F32, &[100, 7]);
            let x = g.scale(x, scale);
            let x = g.round(x);
            g.argmax(x);
        })
    };
    row_cases(Graph::argmax).into_iter().chain([of_equal(0.0), of_equal(3.0), of_equal(20.0)]).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check, floats};
    use super::*;

    #[test]
    fn the_first_of_equals_is_meant_and_never_nan() {
        let nan = f32::NAN;
        for (x, expected) in
            [([1., 3., 2., 3.], 1.), ([nan, 1., nan, 2.], 3.), ([nan; 4], 0.), ([f32::NEG_INFINITY; 4], 0.)]
        {
            let build = |g: &mut Graph| {
                let x = g.input("x", DType::F32, &[4]);
                g.argmax(x)
            };
            check(build, &[("x", floats(&x))], &[expected]);
        }
    }
}
